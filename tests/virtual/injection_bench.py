"""A bench for mischief: a phone, a stock adb, the agent's own door, and the phone's witness."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.phone.adb import AdbServer
from agent.phone.phone import Phone
from agent.virtual.mischief.director import Mischief
from agent.virtual.shelf import Shelf, ShelfPlan, shelf_in_thread
from tests.virtual.host import AdbHost, PhoneAt, until


@dataclass
class Bench:
    """One phone in trouble."""

    host: AdbHost
    shelf: Shelf
    serial: str
    at: PhoneAt
    folder: Path

    @property
    def mischief(self) -> Mischief:
        return self.shelf.mischief

    def state(self) -> str:
        """What adb says of the phone."""
        lines = [line.split("\t") for line in self.host.adb("devices").out.splitlines()]
        return next((line[1] for line in lines if line[0] == self.at.address), "absent")

    def connect(self) -> None:
        """Bring the phone in as the agent does: adb's own list is not to be trusted."""
        self.host.adb("disconnect", self.at.address)

        def try_once() -> bool:
            self.host.adb("connect", self.at.address)
            return self.state() == "device"

        until(try_once, "the phone is there")

    def await_state(self, state: str) -> None:
        until(lambda: self.state() == state, f"adb says {state}")

    def door(self) -> Phone:
        """The phone as the agent sees it."""
        return Phone(AdbServer(self.folder, private=False, port=self.host.port).open(self.address))

    @property
    def address(self) -> str:
        return self.at.address

    def events(self, *kinds: str) -> list[dict[str, object]]:
        """What the phone itself witnessed."""
        lines = (self.folder / f"{self.serial}.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] in kinds]

    def starts(self) -> list[object]:
        return [entry["kind"] for entry in self.events("mischief_start")]


@contextmanager
def a_bench(
    host: AdbHost, folder: Path, *profiles: str, speed: float = 100.0, seed: int = 0
) -> Iterator[Bench]:
    """Phones on a bench; the first one is connected."""
    plan = ShelfPlan(profiles or ("meizu-16t",), speed=speed, journal=folder, seed=seed)
    with shelf_in_thread(plan) as (shelf, addresses):
        phone = PhoneAt(host, addresses[0].address)
        bench = Bench(host, shelf, addresses[0].serial, phone, folder)
        bench.connect()
        yield bench
        host.adb("disconnect", bench.address)
