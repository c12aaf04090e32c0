"""Virtual phones as a child of the lab, for those who have none at hand."""

import json
import time
from pathlib import Path

from orchestrator.lab.children import Child, service_command
from workloads.fault import FarmTrouble
from workloads.lab import Lab

START_S = 15.0


def virtual_phones(
    lab: Lab, speed: float, count: int = 1
) -> tuple[tuple[Child, ...], tuple[str, ...]]:
    """Start virtual phones of every profile; answer the child and the phones' addresses."""
    folder = lab.root / "virtual"
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "phones.json"
    ready.unlink(missing_ok=True)
    options: list[str | Path] = ["--all", "--count", str(count), "--speed", str(speed)]
    command = service_command(
        "virtual", "up", *options, "--journal", folder / "journal", "--ready-file", ready
    )
    child = Child("virtual", command, lab.log_file("virtual"))
    child.start()
    deadline = time.monotonic() + START_S
    while not ready.exists():
        if not child.alive or time.monotonic() > deadline:
            raise FarmTrouble(f"the virtual phones did not start: {child.last_words()}")
        time.sleep(0.02)
    return (child,), tuple(phone["address"] for phone in json.loads(ready.read_text()))
