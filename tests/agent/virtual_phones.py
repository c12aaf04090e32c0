"""Virtual phones for tests: processes of their own, and what they witnessed.

They are forked from a process that has everything loaded already: a phone is there in no time.
"""

import asyncio
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone.phone import Phone
from agent.phone.probe import probe
from agent.virtual.shelf import Shelf, ShelfPlan, write_ready_file
from kernels.manifest import runner_for
from workloads.fault import FarmError

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pytest", __name__])


@dataclass
class VirtualPhone:
    """A running virtual phone."""

    process: BaseProcess
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
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Answer again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Vanish."""
        self.process.kill()
        self.process.join()

    def _signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


def start_virtual_phone(folder: Path, profile: str, speed: float, port: int = 0) -> VirtualPhone:
    """Start one phone and wait until it listens."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    plan = ShelfPlan((profile,), speed=speed, port_base=port, journal=folder)
    process = _FORKS.Process(target=_be_a_phone, args=(plan, ready), daemon=True)
    process.start()
    deadline = Deadline.after(20)
    while not ready.exists():
        assert process.is_alive()
        assert not deadline.expired
        time.sleep(0.01)
    (told,) = json.loads(ready.read_text())
    witness = folder / f"{told['serial']}.jsonl"
    return VirtualPhone(process, told["address"], told["serial"], witness)


def _be_a_phone(plan: ShelfPlan, ready: Path) -> None:
    async def serve() -> None:
        write_ready_file(ready, await Shelf(plan).start())
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def reaching(adb: AdbServer, address: str) -> Iterator[None]:
    """Bring a phone back whenever it is away, as the roster does, only sooner."""
    done = threading.Event()

    def reach() -> None:
        while not done.wait(0.1):
            with suppress(FarmError):
                adb.connect(address, Deadline.after(1))

    thread = threading.Thread(target=reach, name="reach", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def open_phone(adb: AdbServer, address: str) -> Phone:
    """Connect a phone and learn what it is."""
    assert adb.connect(address, Deadline.after(5)) == "device"
    phone = Phone(adb.open(address))
    probe(phone, runner_for)
    return phone
