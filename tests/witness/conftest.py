"""Witnesses: built once, switched on per test, behind the real adb server."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.deadline import Deadline
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.probe import probe
from kernels.runner_builds import runner_for
from tests.witness.android_root import PartMissing, build_root, link_applets
from tests.witness.phone_layout import write_layout
from tests.witness.witness_phone import WitnessPhone

StartWitness = Callable[..., WitnessPhone]


@pytest.fixture(scope="session")
def android_root() -> Path:
    """AOSP's parts for this computer's processor, or a skip that names what is missing."""
    try:
        root = build_root()
    except PartMissing as missing:
        pytest.skip(str(missing))
    link_applets(root)
    return root


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """The real adb server, on its own port."""
    with AdbServer(tmp_path_factory.mktemp("adb")) as server:
        yield server


@pytest.fixture
def start_witness(android_root: Path, tmp_path: Path) -> Iterator[StartWitness]:
    """Switch phones on; they are switched off after the test."""
    phones: list[WitnessPhone] = []

    def start(uid: int = 2000, **layout: Any) -> WitnessPhone:
        serial = f"WITNESS{len(phones)}"
        folder = write_layout(tmp_path / serial, serial, **layout)
        phones.append(WitnessPhone(android_root, folder, uid=uid))
        return phones[-1]

    yield start
    for phone in phones:
        phone.close()


@pytest.fixture
def context(tmp_path: Path) -> LaneContext:
    """The context of a lane, without the canary."""
    return LaneContext(host="host-a", state_dir=tmp_path / "state", canary=False)


def connect(adb: AdbServer, witness: WitnessPhone) -> Phone:
    """Connect a witness and probe it; adbd needs a moment to listen."""
    deadline = Deadline.after(20)
    while adb.connect(witness.address, Deadline.after(5)) != "device":
        assert not deadline.expired
        time.sleep(0.1)
    phone = Phone(adb.open(witness.address))
    probe(phone, runner_for)
    return phone
