"""A whole farm for a test: real broker, real processes, virtual phones over the real protocol."""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.database import Database
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.supervisor.process import ServiceProcess, stop_all
from orchestrator.supervisor.services import agent_process, services
from orchestrator.supervisor.virtual_phones import virtual_phones
from workloads.lab_settings import Lab

ROOT = Path(__file__).resolve().parents[2]
LEASE_S = 3.0
SETTINGS = f"[scheduler]\nlease_timeout_s = {LEASE_S}\n"
SPEED = 200.0
HOSTS = ("host-a", "host-b")
NO_WORDS: Mapping[str, Sequence[str]] = {}

Condition = Callable[[], object]


def run_farm(*arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a farm command as a user would, in a process of its own."""
    command = [sys.executable, "-m", "orchestrator", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


def wait_for(condition: Condition, what: str, seconds: float = 60.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: it did not happen within {seconds:.0f} s"
        time.sleep(0.05)


class Farm:
    """A lab that is up, and handles to hurt it with."""

    def __init__(self, lab: Lab, children: list[ServiceProcess]) -> None:
        self.lab = lab
        self.db = Database(lab.store_url)
        self.broker = CentralBroker(lab.broker_url)
        self.connection = LabConnection(lab, "tester")
        self.children = {child.name: child for child in children}

    def phone(self, serial: str) -> KnownPhone:
        """A phone as it is now."""
        return next(phone for phone in self.phones() if phone.serial == serial)

    def phones(self) -> tuple[KnownPhone, ...]:
        """All phones as they are now."""
        return read_lab_status(self.connection).phones

    def idle(self) -> list[str]:
        """Serials of idle phones."""
        return [phone.serial for phone in self.phones() if phone.status.state == "idle"]

    def command(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a farm command on this lab."""
        return run_farm(*arguments, "--lab", self.lab.root)

    def witness(self, serial: str, *events: str) -> list[dict[str, Any]]:
        """What the phone itself wrote down, in its order; the farm cannot touch this."""
        lines = []
        for file in (self.lab.root / "virtual" / "journal").glob(f"*{serial}*"):
            lines += [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in lines if line["event"] in events]

    def spooled(self) -> int:
        """What agents keep, because nobody has told them yet that it is stored."""
        count = 0
        for file in (self.lab.root / "agents").glob("*/spool.db"):
            with closing(sqlite3.connect(file)) as spool:
                count += spool.execute("SELECT count(*) FROM parcel").fetchone()[0]
        return count

    def jobs(self, serial: str) -> list[dict[str, Any]]:
        """The runs that were asked for; the canaries around them last a moment only."""
        return [run for run in self.witness(serial, "run_start") if run["expected_s"] >= 0.5]

    def clocks(self, serial: str) -> dict[str, str]:
        """The last value of every clock node that was ever written on a phone."""
        return {write["path"]: write["new"] for write in self.witness(serial, "sysfs_write")}


@contextmanager
def a_farm(
    lab: Lab,
    settings: str = SETTINGS,
    count: int = 1,
    options: Mapping[str, Sequence[str]] = NO_WORDS,
    before: Mapping[str, Sequence[str]] = NO_WORDS,
) -> Iterator[Farm]:
    """Virtual phones of six models, so many of each, on two hosts, everything up and idle.

    Agents may have options of their own, and words before their command, by host.
    """
    lab.root.mkdir(parents=True)
    (lab.root / "lab.toml").write_text(settings)
    lab = Lab.read(lab.root, {})
    phones, addresses = virtual_phones(lab, SPEED, count)
    try:
        agents = []
        for host, share in zip(HOSTS, (addresses[::2], addresses[1::2]), strict=True):
            connect = [part for address in share for part in ("--connect", address)]
            words = ["--private-adb", *connect, *options.get(host, ())]
            agents.append(agent_process(lab, host, *words, wrapper=before.get(host, ())))
        with services(lab, agents) as children:
            made = Farm(lab, children)
            wait_for(lambda: len(made.idle()) == len(addresses), "all phones idle")
            yield made
    finally:
        stop_all(phones)


@contextmanager
def a_farm_of(lab: Lab, profiles: Sequence[str], speed: float) -> Iterator[Farm]:
    """Some virtual phones of one's choice behind one host, everything up and idle."""
    lab.root.mkdir(parents=True)
    phones, addresses = virtual_phones(lab, speed, profiles=profiles)
    try:
        connect = [part for address in addresses for part in ("--connect", address)]
        agent = agent_process(lab, "host-a", "--private-adb", *connect)
        with services(lab, [agent]) as children:
            made = Farm(lab, children)
            wait_for(lambda: len(made.idle()) == len(addresses), "all phones idle")
            yield made
    finally:
        stop_all(phones)


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A farm that tests share, with the embedded broker and SQLite: leave it as you found it."""
    with a_farm(Lab.read(tmp_path_factory.mktemp("shared") / "lab", {})) as made:
        yield made


@pytest.fixture
def own_farm(lab: Lab) -> Iterator[Farm]:
    """A farm of the test's own, to be hurt."""
    with a_farm(lab) as made:
        yield made
