"""A private adb server, virtual phones behind it, and the context of a lane."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from agent.timeouts import Timeouts
from tests.agent.lane_harness import (
    PATIENT_TIMEOUTS,
    SHORT_TIMEOUTS,
    LaneHarness,
    open_lane_harness,
)
from tests.agent.virtual_phones import (
    VirtualPhone,
    keep_connected,
    open_phone,
    start_virtual_phone,
)
from workloads.cli_options import EVENT_TIME

StartPhone = Callable[..., VirtualPhone]


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """The real adb, on its own port."""
    with AdbServer(tmp_path_factory.mktemp("adb")) as server:
        yield server


@pytest.fixture(scope="session")
def shared_phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualPhone]:
    """A rooted phone for all tests that leave it intact."""
    virtual_phone = start_virtual_phone(tmp_path_factory.mktemp("phone"), "meizu-16t", EVENT_TIME)
    yield virtual_phone
    virtual_phone.kill()


@pytest.fixture
def start_phone(tmp_path: Path) -> Iterator[StartPhone]:
    """Start virtual phones that end with the test."""
    started: list[VirtualPhone] = []

    def start(profile: str = "meizu-16t", speed: float = EVENT_TIME) -> VirtualPhone:
        phone = start_virtual_phone(tmp_path / f"phone{len(started)}", profile, speed)
        started.append(phone)
        return phone

    yield start
    for phone in started:
        phone.kill()


@pytest.fixture
def virtual_phone(shared_phone: VirtualPhone) -> VirtualPhone:
    """The shared phone itself, for a test that leaves it intact."""
    return shared_phone


@pytest.fixture
def phone(adb: AdbServer, virtual_phone: VirtualPhone) -> Iterator[Phone]:
    """The shared phone as the agent sees it: probed, and without traces of earlier lanes."""
    phone = open_phone(adb, virtual_phone.address)
    phone.shell_checked(["rm", "-rf", f"{HOME}/fence", f"{HOME}/lane"])
    phone.shell(["sleep", "300"])  # a thermal cap of an earlier test ends by itself
    virtual_phone.forget()
    yield phone
    phone.close()


@pytest.fixture
def disposable_phone(start_phone: StartPhone) -> VirtualPhone:
    """A phone that the test may break or kill; its runs take seconds of the host."""
    return start_phone(speed=100.0)


@pytest.fixture
def opened_phone(adb: AdbServer, disposable_phone: VirtualPhone) -> Iterator[Phone]:
    """The disposable phone as the agent sees it."""
    phone = open_phone(adb, disposable_phone.address)
    with keep_connected(adb, disposable_phone.address):
        yield phone
    phone.close()
    adb.disconnect(disposable_phone.address)


@pytest.fixture
def context(tmp_path: Path) -> LaneContext:
    """The context of a lane; without the canary, whose runs would be counted as runs."""
    return LaneContext(
        host="host-a", state_dir=tmp_path / "state", canary=False, timeouts=PATIENT_TIMEOUTS
    )


@pytest.fixture
def short_timeouts(context: LaneContext) -> Timeouts:
    """Shorten the timeouts of the lane."""
    context.timeouts = SHORT_TIMEOUTS
    return SHORT_TIMEOUTS


@pytest.fixture
def lane_harness(adb: AdbServer, context: LaneContext, tmp_path: Path) -> Iterator[LaneHarness]:
    with open_lane_harness(adb, context, tmp_path) as harness:
        yield harness
