"""A stock adb server, and phones behind it, as fast as a test needs them."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.virtual.phone import Phone
from agent.virtual.profiles import load_profile
from agent.virtual.shelf import ShelfPlan, shelf_in_thread
from tests.virtual.host import AdbHost, PhoneAt, adb_host

StartPhone = Callable[..., PhoneAt]
Witness = Callable[..., list[dict[str, object]]]


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbHost]:
    with adb_host(tmp_path_factory.mktemp("adb")) as running:
        yield running


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the phones' witnesses write."""
    return tmp_path / "journal"


@pytest.fixture
def start_phone(host: AdbHost, journal: Path) -> Iterator[StartPhone]:
    """Start a phone in this process and connect it."""
    with ExitStack() as shelves:

        def start(profile: str = "meizu-16t", speed: float = 100.0) -> PhoneAt:
            plan = ShelfPlan((profile,), speed=speed, journal=journal)
            _, (address,) = shelves.enter_context(shelf_in_thread(plan))
            shelves.callback(host.adb, "disconnect", address.address)
            assert "connected" in host.adb("connect", address.address).out
            return PhoneAt(host, address.address)

        yield start


@pytest.fixture(scope="session")
def phone(host: AdbHost) -> Iterator[PhoneAt]:
    """A phone for tests that leave no trace; everyday speed times a hundred."""
    with shelf_in_thread(ShelfPlan(("meizu-16t",), speed=100.0)) as (_, (address,)):
        assert "connected" in host.adb("connect", address.address).out
        yield PhoneAt(host, address.address)
        host.adb("disconnect", address.address)


@pytest.fixture
def witness(journal: Path) -> Witness:
    """What the phone's own journal holds of some kinds of event."""

    def read(*kinds: str) -> list[dict[str, object]]:
        lines = [line for path in journal.glob("*.jsonl") for line in path.read_text().splitlines()]
        return [entry for entry in map(json.loads, lines) if entry["event"] in kinds]

    return read


@pytest.fixture
def still_phone() -> Phone:
    """A phone whose clock moves only when told, without any adb."""
    return Phone(load_profile("meizu-16t"), speed=0.0)
