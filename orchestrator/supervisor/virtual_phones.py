"""Virtual phones as a child of the lab, for those who have none at hand."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.supervisor.process import ServiceProcess, service_command, stop_all
from workloads.lab_settings import Lab
from workloads.protocol.faults import FarmTrouble

START_S = 15.0
# the phones of the EMDL'21 study
PROFILES = (
    "redmi-note-9-pro",
    "xiaomi-mi-9",
    "huawei-mate-30",
    "meizu-16t",
    "samsung-s8-plus",
    "huawei-honor-8",
)


# one, since two would share the cores that they are measured by
NATIVE = ("meizu-16t:native",)


def virtual_phones(
    lab: Lab, speed: float, count: int = 1, profiles: Sequence[str] = PROFILES
) -> tuple[tuple[ServiceProcess, ...], tuple[str, ...]]:
    """Start virtual phones, one or more of each model; answer the child and their addresses."""
    folder = lab.root / "virtual"
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "phones.json"
    ready.unlink(missing_ok=True)
    options: list[str | Path] = [*profiles, "--count", str(count), "--speed", str(speed)]
    command = service_command(
        "virtual", "up", *options, "--journal", folder / "journal", "--ready-file", ready
    )
    child = ServiceProcess("virtual", command, lab.log_file("virtual"))
    try:
        child.start()
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if child.failed or time.monotonic() > deadline:
                raise FarmTrouble(f"the virtual phones did not start: {child.last_words()}")
            if not child.alive:
                child.start()  # somebody has killed it meanwhile
            time.sleep(0.02)
    except BaseException:
        stop_all([child])
        raise
    return (child,), tuple(phone["address"] for phone in json.loads(ready.read_text()))
