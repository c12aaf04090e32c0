"""Virtual phones for tests: processes of their own, and what they witnessed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone.phone import Phone
from agent.phone.probe import probe
from kernels.manifest import runner_for


@dataclass
class VirtualPhone:
    """A running virtual phone."""

    process: subprocess.Popen[bytes]
    address: str
    serial: str
    witness: Path
    forgotten: int = 0

    def forget(self) -> None:
        """Look only at what happens from now on."""
        self.forgotten = len(self.witness.read_text().splitlines())

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """What really happened on the phone, in order."""
        lines = self.witness.read_text().splitlines()[self.forgotten :]
        return [event for event in map(json.loads, lines) if event["event"] in kinds]

    def freeze(self) -> None:
        """Stop answering while the connection stays open."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Answer again."""
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Vanish."""
        self.process.kill()
        self.process.wait()


def start_virtual_phone(folder: Path, profile: str, speed: float, port: int = 0) -> VirtualPhone:
    """Start one phone and wait until it listens."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    options = ["--speed", str(speed), "--journal", str(folder), "--ready-file", str(ready)]
    options += ["--port-base", str(port)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "agent.virtual", "up", profile, *options],
            stdout=log,
            stderr=log,
        )
    deadline = Deadline.after(20)
    while not ready.exists():
        assert process.poll() is None, (folder / "log").read_text()
        assert not deadline.expired
        time.sleep(0.02)
    (told,) = json.loads(ready.read_text())
    witness = folder / f"{told['serial']}.jsonl"
    return VirtualPhone(process, told["address"], told["serial"], witness)


def open_phone(adb: AdbServer, address: str) -> Phone:
    """Connect a phone and learn what it is."""
    assert adb.connect(address, Deadline.after(5)) == "device"
    phone = Phone(adb.open(address))
    probe(phone, runner_for)
    return phone
