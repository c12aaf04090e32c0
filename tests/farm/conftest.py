"""A farm for tests: real broker, real processes, virtual phones over the real protocol."""

import json
import sqlite3
import subprocess
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
from orchestrator.supervisor.virtual_phones import agent_options, virtual_phones
from tests.farm.farm_command import run_in_process
from workloads.lab.settings import Lab

PROCESSES = "/cgroup.procs"  # lists processes, which come and go


def node_name(path: str) -> str:
    """The node whose value a write changes: a wake lock has one node to take and one to release."""
    return path.replace("wake_unlock", "wake_lock")


ROOT = Path(__file__).resolve().parents[2]
LEASE_S = 3.0
SETTINGS = f"[scheduler]\nlease_timeout_s = {LEASE_S}\n"
SPEED = 200.0
HOSTS = ("host-a", "host-b")
SPOOLED_REPORTS = "SELECT count(*) FROM parcel WHERE id NOT LIKE 'announcement:%'"
NO_OPTIONS: Mapping[str, Sequence[str]] = {}

Condition = Callable[[], object]


def run_farm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a farm command; a new process would take a second of the computer."""
    words = list(map(str, arguments))
    return subprocess.CompletedProcess(words, *run_in_process(*words))


def wait_for(condition: Condition, text: str, seconds: float = 300.0) -> None:
    """Wait until a condition is true; `text` describes it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {text}"
        time.sleep(0.05)


class Farm:
    """A running lab: its store, its broker, and the processes that a test may kill."""

    def __init__(self, lab: Lab, processes: list[ServiceProcess]) -> None:
        self.lab = lab
        self.db = Database(lab.store_url)
        self.broker = CentralBroker(lab.broker_url)
        self.connection = LabConnection(lab, "tester")
        self.processes = {process.name: process for process in processes}

    def phone(self, serial: str) -> KnownPhone:
        """Return the current state of a phone."""
        return next(phone for phone in self.phones() if phone.serial == serial)

    def phones(self) -> tuple[KnownPhone, ...]:
        """Return the current state of all phones."""
        return read_lab_status(self.connection).phones

    def idle_phones(self) -> list[str]:
        """Return the serials of idle phones."""
        return [phone.serial for phone in self.phones() if phone.status.state == "idle"]

    def command(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a farm command on this lab."""
        return run_farm(*arguments, "--lab", self.lab.root)

    def journal(self, serial: str, *events: str) -> list[dict[str, Any]]:
        """Read events from the journal that the virtual phone keeps outside the farm's reach."""
        lines = []
        for file in (self.lab.root / "virtual" / "journal").glob(f"*{serial}*"):
            lines += [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in lines if line["event"] in events]

    def spooled_parcels(self) -> int:
        """Count the reports that agents keep because ingest has not confirmed them."""
        count = 0
        for file in (self.lab.root / "agents").glob("*/spool.db"):
            with closing(sqlite3.connect(file)) as spool:
                count += spool.execute(SPOOLED_REPORTS).fetchone()[0]
        return count

    def jobs(self, serial: str) -> list[dict[str, Any]]:
        """Return the runs of jobs, without the canaries, which are shorter."""
        return [run for run in self.journal(serial, "run_start") if run["expected_s"] >= 0.5]

    def clocks(self, serial: str) -> dict[str, str]:
        """Return the last value of every kernel node that was written on a phone."""
        writes = self.journal(serial, "sysfs_write")
        return {
            node_name(write["path"]): write["new"]
            for write in writes
            if not write["path"].endswith(PROCESSES)
        }


@contextmanager
def start_farm(
    lab: Lab,
    settings: str = SETTINGS,
    count: int = 1,
    options: Mapping[str, Sequence[str]] = NO_OPTIONS,
    wrappers: Mapping[str, Sequence[str]] = NO_OPTIONS,
) -> Iterator[Farm]:
    """Start a lab with `count` virtual phones of each of six models on two hosts.

    `options` and `wrappers` have, by host, further options of its agent and what precedes its
    command. All phones are idle.
    """
    lab.root.mkdir(parents=True)
    (lab.root / "lab.toml").write_text(settings)
    lab = Lab.read(lab.root, {})
    phones, addresses = virtual_phones(lab, SPEED, count)
    try:
        agents = []
        for host, share in zip(HOSTS, (addresses[::2], addresses[1::2]), strict=True):
            connect = [part for address in share for part in ("--connect", address)]
            parts = [*agent_options(SPEED), *connect, *options.get(host, ())]
            agents.append(agent_process(lab, host, *parts, wrapper=wrappers.get(host, ())))
        with services(lab, agents) as processes:
            farm = Farm(lab, processes)
            wait_for(lambda: len(farm.idle_phones()) == len(addresses), "all phones are idle")
            yield farm
    finally:
        stop_all(phones)


@contextmanager
def start_farm_with(
    lab: Lab,
    profiles: Sequence[str],
    speed: float,
    mischief: Path | None = None,
    hosts: int = 1,
    count: int = 1,
    wrapper: Sequence[str] = (),
) -> Iterator[Farm]:
    """Start a lab with virtual phones of the given profiles on some hosts; all phones are idle.

    `wrapper` precedes the commands of the agents.
    """
    lab.root.mkdir(parents=True, exist_ok=True)
    phones, addresses = virtual_phones(lab, speed, count, profiles, mischief)
    try:
        agents = []
        for number in range(hosts):
            share = addresses[number::hosts]
            connect = [part for address in share for part in ("--connect", address)]
            options = (*agent_options(speed), *connect)
            agents.append(agent_process(lab, f"host-{number}", *options, wrapper=wrapper))
        with services(lab, agents) as processes:
            farm = Farm(lab, processes)
            wait_for(lambda: len(farm.idle_phones()) == len(addresses), "all phones are idle")
            yield farm
    finally:
        stop_all(phones)


@pytest.fixture(scope="package")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A farm that tests of this folder share; each restores what it changes."""
    with start_farm(Lab.read(tmp_path_factory.mktemp("shared") / "lab", {})) as shared:
        yield shared


@pytest.fixture
def own_farm(lab: Lab) -> Iterator[Farm]:
    """A farm for one test, which may kill its processes."""
    with start_farm(lab) as farm:
        yield farm
