"""Starts virtual phones as a child process of the lab."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.supervisor.process import ServiceProcess, service_command, stop_all
from workloads.lab_settings import Lab
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


# only one: two would share the cores that they measure
NATIVE = ("meizu-16t:native",)


def virtual_phones(
    lab: Lab,
    speed: float,
    count: int = 1,
    profiles: Sequence[str] = PROFILES,
    mischief: Path | None = None,
) -> tuple[tuple[ServiceProcess, ...], tuple[str, ...]]:
    """Start virtual phones, one or more per profile; return the process and their addresses."""
    folder = lab.root / "virtual"
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "phones.json"
    ready.unlink(missing_ok=True)
    options: list[str | Path] = [*profiles, "--count", str(count), "--speed", str(speed)]
    options += ["--mischief", mischief] if mischief else []
    options += ["--journal", folder / "journal", "--control", folder, "--ready-file", ready]
    command = service_command("virtual", "up", *options)
    process = ServiceProcess("virtual", command, lab.log_file("virtual"))
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
