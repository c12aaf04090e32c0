"""A private adb server, and virtual phones behind it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.desk import Desk
from agent.phone.adb import AdbServer
from agent.phone.phone import HOME, Phone
from tests.agent.virtual_phones import VirtualPhone, open_phone, reaching, start_virtual_phone

StartPhone = Callable[..., VirtualPhone]


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """The real adb, on a port of its own."""
    with AdbServer(tmp_path_factory.mktemp("adb")) as server:
        yield server


@pytest.fixture(scope="session")
def shared_phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualPhone]:
    """A rooted phone, its clock a hundred times as fast, for all tests that leave it whole."""
    made = start_virtual_phone(tmp_path_factory.mktemp("phone"), "meizu-16t", 100)
    yield made
    made.kill()


@pytest.fixture
def start_phone(tmp_path: Path) -> Iterator[StartPhone]:
    """Start virtual phones that end with the test."""
    started: list[VirtualPhone] = []

    def start(profile: str = "meizu-16t", speed: float = 100.0) -> VirtualPhone:
        phone = start_virtual_phone(tmp_path / f"phone{len(started)}", profile, speed)
        started.append(phone)
        return phone

    yield start
    for phone in started:
        phone.kill()


@pytest.fixture
def there(shared_phone: VirtualPhone) -> VirtualPhone:
    """The phone itself, for a test that leaves it whole."""
    return shared_phone


@pytest.fixture
def phone(adb: AdbServer, there: VirtualPhone) -> Iterator[Phone]:
    """The same phone as the agent sees it, probed, with no lane ever made on it."""
    made = open_phone(adb, there.address)
    made.must(["rm", "-rf", f"{HOME}/fence", f"{HOME}/lane"])
    there.forget()
    yield made
    made.close()


@pytest.fixture
def doomed(start_phone: StartPhone) -> VirtualPhone:
    """A phone that does not outlive its test."""
    return start_phone()


@pytest.fixture
def doomed_phone(adb: AdbServer, doomed: VirtualPhone) -> Iterator[Phone]:
    """The same as the agent sees it."""
    made = open_phone(adb, doomed.address)
    with reaching(adb, doomed.address):
        yield made
    made.close()
    adb.disconnect(doomed.address)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """The desk of a host; without the canary, whose runs would be counted as runs."""
    return Desk(host="host-a", state_dir=tmp_path / "state", canary=False)
