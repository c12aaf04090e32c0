"""A test bench for mischief: a phone, a stock adb, the agent's view of it, and its journal."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.virtual.fleet_server import FleetConfig, FleetServer
from agent.virtual.mischief.fleet_injector import FleetInjector
from tests.virtual.adb_host import AdbHost, AdbPhone, wait_until
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME


@dataclass
class InjectionBench:
    """One phone with fault injection."""

    host: AdbHost
    fleet: FleetServer
    serial: str
    adb_phone: AdbPhone
    folder: Path

    @property
    def mischief(self) -> FleetInjector:
        return self.fleet.mischief

    def state(self) -> str:
        """Return the state that adb reports for the phone."""
        lines = [line.split("\t") for line in self.host.adb("devices").out.splitlines()]
        return next((line[1] for line in lines if line[0] == self.adb_phone.address), "absent")

    def connect(self) -> None:
        """Connect as the agent does: adb's own reconnect cannot be relied on."""
        self.host.adb("disconnect", self.adb_phone.address)

        def try_once() -> bool:
            self.host.adb("connect", self.adb_phone.address)
            return self.state() == "device"

        wait_until(try_once, "the phone is there")

    def await_state(self, state: str) -> None:
        wait_until(lambda: self.state() == state, f"adb says {state}")

    def agent_phone(self) -> Phone:
        """Return the phone as the agent sees it."""
        return Phone(AdbServer(self.folder, private=False, port=self.host.port).open(self.address))

    @property
    def address(self) -> str:
        return self.adb_phone.address

    def events(self, *kinds: str) -> list[dict[str, object]]:
        """Return the events of some kinds from the phone's journal."""
        lines = (self.folder / f"{self.serial}.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] in kinds]

    def started_kinds(self) -> list[object]:
        return [entry["kind"] for entry in self.events("mischief_start")]


@contextmanager
def start_bench(
    host: AdbHost, folder: Path, *profiles: str, speed: float = EVENT_TIME, seed: int = 0
) -> Iterator[InjectionBench]:
    """Run phones; connect the first one."""
    config = FleetConfig(profiles or ("meizu-16t",), speed=speed, journal=folder, seed=seed)
    with serve_fleet_in_thread(config) as (fleet, addresses):
        adb_phone = AdbPhone(host, addresses[0].address)
        bench = InjectionBench(host, fleet, addresses[0].serial, adb_phone, folder)
        bench.connect()
        yield bench
        host.adb("disconnect", bench.address)
