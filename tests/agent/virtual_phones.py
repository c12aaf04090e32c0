"""Virtual phones for tests: each is a process, with the journal that it writes.

They are forked from a process that has everything imported already, so that a phone starts fast.
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
from agent.phone.phone_driver import Phone
from agent.phone.probe import probe
from agent.virtual.fleet_server import FleetConfig, FleetServer, write_ready_file
from agent.virtual.phone_loop import run_phones
from kernels.runner_builds import runner_for
from workloads.protocol.faults import FarmError

_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["pytest", __name__])


@dataclass
class VirtualPhone:
    """A running virtual phone."""

    process: BaseProcess
    address: str
    serial: str
    journal: Path
    forgotten: int = 0

    def forget(self) -> None:
        """Ignore all events so far."""
        self.forgotten = len(self.journal.read_text().splitlines())

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events of the phone's journal, in order."""
        lines = self.journal.read_text().splitlines()[self.forgotten :]
        return [event for event in map(json.loads, lines) if event["event"] in kinds]

    def freeze(self) -> None:
        """Stop answering while the connection stays open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Answer again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process of the phone."""
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
    plan = FleetConfig((profile,), speed=speed, port_base=port, journal=folder)
    process = _FORKSERVER.Process(target=_serve_phone, args=(plan, ready), daemon=True)
    process.start()
    deadline = Deadline.after(120)
    while not ready.exists():
        assert process.is_alive()
        assert not deadline.expired
        time.sleep(0.01)
    (address,) = json.loads(ready.read_text())
    journal = folder / f"{address['serial']}.jsonl"
    return VirtualPhone(process, address["address"], address["serial"], journal)


def _serve_phone(plan: FleetConfig, ready: Path) -> None:
    async def serve() -> None:
        write_ready_file(ready, await FleetServer(plan).start())
        await asyncio.Event().wait()

    run_phones(serve())


@contextmanager
def keep_connected(adb: AdbServer, address: str) -> Iterator[None]:
    """Reconnect a phone whenever it is away, as the phone registry does, only sooner."""
    done = threading.Event()

    def reconnect() -> None:
        while not done.wait(0.1):
            with suppress(FarmError):
                adb.connect(address, Deadline.after(1))

    thread = threading.Thread(target=reconnect, name="reconnect", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def open_phone(adb: AdbServer, address: str) -> Phone:
    """Connect a phone and probe it."""
    assert adb.connect(address, Deadline.after(120)) == "device"
    phone = Phone(adb.open(address))
    probe(phone, runner_for)
    return phone
