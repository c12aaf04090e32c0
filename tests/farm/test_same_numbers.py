"""Virtual phones in event time give the same results on every computer, at any load."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import ShellCommand
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.export_results import ExportRequest, read_results_digest, write_export
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.submit_sweep import submit_sweep
from orchestrator.supervisor.virtual_phones import PROFILES
from tests.farm.conftest import ROOT, Farm, start_farm_with, wait_for
from workloads.cli_options import EVENT_TIME
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmError

SHORT = """
farm: 1
name: short
workload: mlp-4
phones: all
matrix: {batch_size: [32, 256], freq: [mid, free]}
repeat: 2
"""
FAULTED = """
farm: 1
name: faulted
workload: mlp-4
phones: all
matrix: {batch_size: [32, 256], protocol: [cold, endurance], cores: [big2, all8]}
repeat: 2
"""
LOOK = (
    "cat /proc/uptime /proc/stat /sys/class/thermal/thermal_zone*/temp "
    "/sys/class/power_supply/*/*_now; ls -l /data/local/tmp; dumpsys battery; ps -A"
)
# Durations are the phone's. The triggers are not what another adb client does.
TWENTY_FAULTS = [
    {"kind": "unplug", "at": "run@40%", "for": 20},
    {"kind": "unplug", "at": "push", "for": 3},
    {"kind": "flap", "at": "run@20%", "off_s": 1, "period_s": 4, "count": 3, "for": 60},
    {"kind": "hang", "at": "run@60%", "for": 12},
    {"kind": "partition", "at": "run@30%", "for": 8},
    {"kind": "adbd_restarts", "at": "run@50%", "for": 2},
    {"kind": "reboot", "at": "run@50%"},
    {"kind": "clock_reset", "at": "run@10%"},
    {"kind": "hotplug", "at": "run@30%", "for": 5},
    {"kind": "migrate", "at": "run_start"},
    {"kind": "other_work", "at": "run@20%", "for": 30},
    {"kind": "hidden_limit", "at": "run@10%", "for": 60},
    {"kind": "memory_contention", "at": "run@25%", "for": 40},
    {"kind": "foreground", "at": "run@30%", "for": 40},
    {"kind": "screen", "at": "run@35%", "for": 40},
    {"kind": "power_draw", "at": "run@15%", "for": 60},
    {"kind": "throttle", "at": "run@45%", "for": 20},
    {"kind": "sensor", "at": "run@55%", "for": 30, "value": "frozen"},
    {"kind": "sleep", "at": "run@65%", "for": 5},
    {"kind": "disk_full", "at": "run@70%", "for": 10},
]


@contextmanager
def finished_sweep(
    lab: Lab,
    text: str,
    profiles: tuple[str, ...],
    is_watched: bool = False,
    mischief: Path | None = None,
    hosts: int = 1,
) -> Iterator[tuple[LabConnection, str]]:
    """Run a sweep in an empty lab to its end."""
    lab_of_phones = start_farm_with(lab, profiles, EVENT_TIME, mischief, hosts)
    with lab_of_phones as farm, ExitStack() as stack:
        if is_watched:
            stack.enter_context(second_adb_client(farm, lab.root / "client"))
        sweep = submit_sweep(farm.connection, text).sweep.id
        wait_for(lambda: find_sweep(farm.connection, sweep).finished, "the sweep", 1200)
        yield farm.connection, sweep


def digest(lab: Lab, text: str, profiles: tuple[str, ...], **options: Any) -> str:
    """Run a sweep, and return the digest of its results."""
    with finished_sweep(lab, text, profiles, **options) as (connection, sweep):
        found, count = read_results_digest(connection, sweep)
        assert count >= find_sweep(connection, sweep).total
        return found


def results(lab: Lab, text: str, profiles: tuple[str, ...]) -> list[object]:
    """Run a sweep, and return what its digest is of."""
    with finished_sweep(lab, text, profiles) as (connection, sweep):
        stream = BytesIO()
        write_export(connection, sweep, ExportRequest("results", "figures"), stream)
        return [json.loads(line) for line in stream.getvalue().splitlines()]


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep this computer busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def second_adb_client(farm: Farm, folder: Path) -> Iterator[None]:
    """Read from all phones the whole time, through another adb server."""
    done = threading.Event()
    addresses = [phone.status.address for phone in farm.phones()]

    def look(adb: AdbServer, address: str) -> None:
        phone = Phone(adb.open(address))
        while not done.is_set():
            try:
                adb.connect(address, Deadline.after(120))
                phone.shell_batch([ShellCommand(["sh", "-c", LOOK])])
            except FarmError:
                time.sleep(0.05)
        phone.close()

    with AdbServer(folder) as adb:
        readers = [threading.Thread(target=look, args=(adb, each)) for each in addresses]
        for reader in readers:
            reader.start()
        try:
            yield
        finally:
            done.set()
            for reader in readers:
                reader.join()


def write_mischief(file: Path) -> Path:
    """Write twenty faults, in turns for three phones; a fault that ends a run is followed by others
    in the next one.
    """
    serials = ("VM16T0001", "VRN9P0001", "VS8P0001")
    tables = []
    for number, fault in enumerate(TWENTY_FAULTS):
        entry = {**fault, "phones": [serials[number % 3]]}
        rows = "".join(f"{key} = {value!r}\n" for key, value in entry.items())
        tables.append(f"[[mischief]]\n{rows}")
    file.write_text("seed = 5\n" + "\n".join(tables))
    return file


def test_a_sweep_has_one_digest_at_any_load_and_on_any_hosts(tmp_path: Path) -> None:
    profiles = PROFILES[:2]
    quiet = digest(Lab.read(tmp_path / "a" / "lab", {}), SHORT, profiles)
    with busy_loops(2):
        watched = {"hosts": 2, "is_watched": True}
        busy = digest(Lab.read(tmp_path / "b" / "lab", {}), SHORT, profiles, **watched)
    assert busy == quiet


@pytest.mark.slow
def test_another_processor_changes_only_last_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy without its vector code stands in for another processor."""
    lines = []
    for name, features in (("a", ""), ("b", "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX")):
        monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", features)
        lines.append(results(Lab.read(tmp_path / name / "lab", {}), SHORT, PROFILES[:2]))
    ours, others = lines
    assert len(ours) == len(others)
    for mine, other in zip(ours, others, strict=True):
        assert_close(mine, other)


def assert_close(one: object, other: object) -> None:
    """Compare JSON: numbers to nine digits, everything else exactly."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_close(left, right)
    elif isinstance(one, float) and isinstance(other, float | int):
        assert one == pytest.approx(other, rel=1e-9)
    else:
        assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("text", ["demo", "faults"])
def test_demo_and_faults_have_one_digest(tmp_path: Path, text: str) -> None:
    if text == "demo":
        profiles, sweep = PROFILES, (ROOT / "examples" / "demo.yaml").read_text()
        mischief = None
    else:
        profiles, sweep = ("meizu-16t", "redmi-note-9-pro", "samsung-s8-plus"), FAULTED
        mischief = write_mischief(tmp_path / "mischief.toml")
    quiet = digest(Lab.read(tmp_path / "a" / "lab", {}), sweep, profiles, mischief=mischief)
    with busy_loops(4):
        lab = Lab.read(tmp_path / "b" / "lab", {})
        assert digest(lab, sweep, profiles, mischief=mischief, hosts=3) == quiet
    lab = Lab.read(tmp_path / "c" / "lab", {})
    assert digest(lab, sweep, profiles, mischief=mischief, is_watched=True) == quiet
