"""The consumers' own code, installed from the package registry, computes the rounds of select."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from orchestrator.export.federated import CONSUMERS, write_consumer_files
from orchestrator.selection.population import LINKS, PopulationPlan
from orchestrator.selection.recommend import LocalWork
from tests.selection.fleets import a_client_table

ROOT = Path(__file__).resolve().parents[2]
WORK = LocalWork(samples=32_000.0, rest_s=60.0)

# FedScale's client manager registers the clients as its aggregator does: ids from 1, and the
# profile of id (number + 1) modulo the length of the file.
FEDSCALE = """
import json, pickle, sys
from types import SimpleNamespace
from fedscale.cloud.client_manager import ClientManager

folder, batch, steps = sys.argv[1], 32, 1000
profiles = pickle.load(open(f"{folder}/device_capacity.pickle", "rb"))
args = SimpleNamespace(
    filter_less=0, filter_more=1e9, device_avail_file=f"{folder}/device_availability.pickle"
)
manager = ClientManager("random", args)
kibit = 1e6 * 8 / 1024
rows = []
for number in range(len(profiles)):
    manager.register_client(1, number + 1, 100, profiles[(number + 1) % len(profiles)])
    cost = manager.get_completion_time(number + 1, batch, steps, kibit, kibit)
    active = [manager.isClientActive(number + 1, hour * 3600 + 1.0) for hour in range(24)]
    rows.append([cost["computation"], cost["communication"], active])
print(json.dumps(rows))
"""
APPFL = """
import json, sys
sys.path.insert(0, sys.argv[1])
from measured_profiles import read_profiles

rows = []
for profile in read_profiles(f"{sys.argv[1]}/profiles.json").values():
    available = [profile.next_available(hour * 3600 + 1.0) for hour in range(24)]
    rows.append([profile.compute_time(9.0, 1000), profile.comm_time(1e6), available])
print(json.dumps(rows))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of FedScale and APPFL, unpacked without what they depend on."""
    folder = tmp_path_factory.mktemp("packages")
    for wheel in ("fedscale==1.0", "appfl==1.12.0"):
        result = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, wheel],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            pytest.skip(f"{wheel} cannot be downloaded: {result.stderr.strip().splitlines()[-1]}")
    for path in folder.glob("*.whl"):
        zipfile.ZipFile(path).extractall(folder)
    # The package's __init__ imports its drivers, and those torch; the profile needs neither.
    (folder / "appfl" / "vsim" / "__init__.py").write_text("")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 6, 7, 1000])
@pytest.mark.parametrize(("name", "program"), [("fedscale", FEDSCALE), ("appfl", APPFL)])
def test_a_package_computes_the_rounds_of_select(
    packages: Path, tmp_path: Path, name: str, program: str, n: int
) -> None:
    plan = PopulationPlan(n, 7, links=LINKS["flash-wifi"], rhythm=True)
    write_consumer_files(CONSUMERS[name], a_client_table(), tmp_path / name, plan, WORK, False)
    write_consumer_files(
        CONSUMERS["flower"], a_client_table(), tmp_path / "ours", plan, WORK, False
    )
    result = subprocess.run(
        [sys.executable, "-c", program, tmp_path / name],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(packages)},
    )
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout.splitlines()[-1])
    assert len(rows) == n
    from orchestrator.export.federated.flower import read_rounds

    fleet = (tmp_path / "ours" / "fleet.json").read_bytes()
    expected = read_rounds({"fleet.json": fleet}, 32_000.0, 32)
    windows = json.loads(fleet)["windows"]
    assert expected.link_s is not None
    for number, (seconds, link_s, available) in enumerate(rows):
        assert seconds == pytest.approx(expected.round_s[number], rel=0.005)
        assert link_s == pytest.approx(expected.link_s[number], rel=0.03)
        for hour, answer in enumerate(available):
            now = hour * 3600 + 1.0
            inside = any(start <= now < end for start, end in windows[number])
            is_available = answer if isinstance(answer, bool) else answer == now
            assert is_available == inside, f"client {number} at {hour} h"
