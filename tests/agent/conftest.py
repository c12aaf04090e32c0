"""A private adb server, and virtual phones behind it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.phone.adb import AdbServer
from agent.phone.phone import Phone
from tests.agent.virtual_phones import VirtualPhone, open_phone, start_virtual_phone

StartPhone = Callable[..., VirtualPhone]


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """The real adb, on a port of its own."""
    with AdbServer(tmp_path_factory.mktemp("adb")) as server:
        yield server


@pytest.fixture
def start_phone(tmp_path: Path) -> Iterator[StartPhone]:
    """Start virtual phones that end with the test."""
    started: list[VirtualPhone] = []

    def start(profile: str = "meizu_16t", speed: float = 100.0) -> VirtualPhone:
        phone = start_virtual_phone(tmp_path / f"phone{len(started)}", profile, speed)
        started.append(phone)
        return phone

    yield start
    for phone in started:
        phone.process.kill()
        phone.process.wait()


@pytest.fixture
def there(start_phone: StartPhone) -> VirtualPhone:
    """A rooted phone whose clock runs a hundred times as fast."""
    return start_phone()


@pytest.fixture
def phone(adb: AdbServer, there: VirtualPhone) -> Iterator[Phone]:
    """The same phone as the agent sees it, probed."""
    made = open_phone(adb, there.address)
    yield made
    made.close()
    adb.disconnect(there.address)
