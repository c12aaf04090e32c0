"""Fixtures: a stock adb server, and virtual phones behind it, in event time."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.virtual.fleet_server import FleetConfig
from agent.virtual.profiles import load_profile
from agent.virtual.virtual_phone import VirtualPhone
from tests.virtual.adb_host import AdbHost, AdbPhone, adb_host
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME

StartPhone = Callable[..., AdbPhone]
JournalReader = Callable[..., list[dict[str, object]]]


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbHost]:
    with adb_host(tmp_path_factory.mktemp("adb")) as running:
        yield running


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The directory of the phones' journals."""
    return tmp_path / "journal"


@pytest.fixture
def start_phone(host: AdbHost, journal: Path) -> Iterator[StartPhone]:
    """Start a phone in this process and connect it."""
    with ExitStack() as stack:

        def start(profile: str = "meizu-16t", speed: float = EVENT_TIME) -> AdbPhone:
            config = FleetConfig((profile,), speed=speed, journal=journal)
            _, (address,) = stack.enter_context(serve_fleet_in_thread(config))
            stack.callback(host.adb, "disconnect", address.address)
            assert "connected" in host.adb("connect", address.address).out
            return AdbPhone(host, address.address)

        yield start


@pytest.fixture(scope="session")
def phone(host: AdbHost) -> Iterator[AdbPhone]:
    """A shared phone for tests that leave nothing behind."""
    with serve_fleet_in_thread(FleetConfig(("meizu-16t",), speed=EVENT_TIME)) as (_, (address,)):
        assert "connected" in host.adb("connect", address.address).out
        yield AdbPhone(host, address.address)
        host.adb("disconnect", address.address)


@pytest.fixture
def journal_events(journal: Path) -> JournalReader:
    """Read the events of some kinds from the phones' journals."""

    def read(*kinds: str) -> list[dict[str, object]]:
        lines = [line for path in journal.glob("*.jsonl") for line in path.read_text().splitlines()]
        return [entry for entry in map(json.loads, lines) if entry["event"] in kinds]

    return read


@pytest.fixture
def still_phone() -> VirtualPhone:
    """A phone whose clock only `advance` moves, without adb."""
    return VirtualPhone(load_profile("meizu-16t"), speed=0.0)
