"""Starts virtual phones as a child process of the lab."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.supervisor.process import ServiceProcess, service_command, stop_all
from workloads.cli_options import EVENT_TIME, speed_text
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmTrouble

START_TIMEOUT_S = 15.0
POLL_INTERVAL_S = 0.02
# the phones of the EMDL'21 study
PROFILES = (
    "redmi-note-9-pro",
    "xiaomi-mi-9",
    "huawei-mate-30",
    "meizu-16t",
    "samsung-s8-plus",
    "huawei-honor-8",
)
WATCHDOG_S = 60.0
# only one: two would share the cores that they measure
NATIVE = ("meizu-16t:native",)


def agent_options(speed: float) -> tuple[str, ...]:
    """Return how an agent drives virtual phones, which share this computer with other programs.

    A private adb server keeps them out of the user's own adb. A phone whose clock is faster than
    the agent waits longer for its heartbeats.
    """
    watchdog_s = WATCHDOG_S if speed == EVENT_TIME else WATCHDOG_S * max(speed, 1.0)
    return ("--private-adb", "--patience", "10", "--watchdog", f"{watchdog_s:.3f}s")


def virtual_phones(
    lab: Lab,
    speed: float,
    count: int = 1,
    profiles: Sequence[str] = PROFILES,
    mischief: Path | None = None,
    name: str = "virtual",
) -> tuple[tuple[ServiceProcess, ...], tuple[str, ...]]:
    """Start virtual phones, one or more per profile; return the process and their addresses.

    A process uses one core; `name` is of the process and of its folder.
    """
    folder = lab.root / name
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "phones.json"
    ready.unlink(missing_ok=True)
    options: list[str | Path] = [*profiles, "--count", str(count), "--speed", speed_text(speed)]
    options += ["--mischief", mischief] if mischief else []
    options += ["--journal", folder / "journal", "--control", folder, "--ready-file", ready]
    command = service_command("virtual", "up", *options)
    process = ServiceProcess(name, command, lab.log_file(name))
    try:
        process.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if process.failed or time.monotonic() > deadline:
                raise FarmTrouble(f"the virtual phones did not start: {process.end_reason()}")
            if not process.alive:
                process.start()  # it was killed
            time.sleep(POLL_INTERVAL_S)
    except BaseException:
        stop_all([process])
        raise
    return (process,), tuple(phone["address"] for phone in json.loads(ready.read_text()))
