"""Witnesses: built once, switched on per test, behind the real adb server."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent.deadline import Deadline
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.probe import probe
from kernels.runner_builds import runner_for
from tests.witness.android_root import PartMissing, build_root, find_emulator, link_applets
from tests.witness.phone_layout import write_layout
from tests.witness.witness_phone import WitnessPhone

StartWitness = Callable[..., WitnessPhone]


class AndroidParts(NamedTuple):
    """AOSP's parts for one processor, and how much slower they are than on a phone."""

    root: Path
    abi: str
    emulator: Path | None = None
    slowness: float = 1.0


@pytest.fixture(scope="session", params=["amd64", "arm64"])
def android(request: pytest.FixtureRequest) -> AndroidParts:
    """The parts for this computer, and emulated for arm64; a skip names what is missing."""
    try:
        emulator = find_emulator() if request.param == "arm64" else None
        root = build_root(request.param)
    except PartMissing as missing:
        pytest.skip(str(missing))
    link_applets(root, emulator)
    if emulator is None:
        return AndroidParts(root, "x86_64")
    return AndroidParts(root, "arm64-v8a", emulator, slowness=6.0)


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """The real adb server, on its own port."""
    with AdbServer(tmp_path_factory.mktemp("adb")) as server:
        yield server


@pytest.fixture
def start_witness(android: AndroidParts, tmp_path: Path) -> Iterator[StartWitness]:
    """Switch phones on; they are switched off after the test."""
    phones: list[WitnessPhone] = []

    def start(uid: int = 2000, **layout: Any) -> WitnessPhone:
        serial = f"WITNESS{len(phones)}"
        folder = write_layout(tmp_path / serial, serial, abi=android.abi, **layout)
        emulator = str(android.emulator or "")
        phones.append(WitnessPhone(android.root, folder, uid=uid, emulator=emulator))
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
    deadline = Deadline.after(60)
    while adb.connect(witness.address, Deadline.after(5)) != "device":
        assert not deadline.expired
        time.sleep(0.1)
    phone = Phone(adb.open(witness.address))
    probe(phone, runner_for)
    return phone
