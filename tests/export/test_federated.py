"""Files for federated-learning simulators, each read back with the formula of its consumer."""

import csv
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.export.federated import CONSUMERS, WrittenExport, write_consumer_files
from orchestrator.export.federated.consumer_files import verify_export
from orchestrator.selection.population import LinkDistribution, PopulationPlan
from orchestrator.selection.recommend import LocalWork, recommend_clients
from orchestrator.selection.round_state import RoundRequest
from tests.analysis.builders import FITTED
from tests.selection.fleets import a_client_table
from workloads.protocol.faults import InvalidRequest

LINK = LinkDistribution(20_000.0, 5_000.0)
WORK = LocalWork(samples=32_000.0, rest_s=60.0)  # a thousand batches, a minute of rest


def write(folder: Path, consumer: str, n: int | None = None, **changes: Any) -> WrittenExport:
    """Write four phones, or a population drawn from them, for a consumer."""
    plan = PopulationPlan(n, 7, links=LINK, rhythm=n is not None, **changes)
    return write_consumer_files(
        CONSUMERS[consumer], a_client_table(), folder, plan, WORK, allow_simulated=False
    )


def predicted_s() -> dict[str, float]:
    """Return what `farm select` predicts for the same rounds."""
    advice = recommend_clients(a_client_table(), "fastest", RoundRequest(k=4), WORK)
    return {chosen.client.phone: chosen.seconds for chosen in advice.chosen}


@pytest.mark.parametrize("n", [None, 1, 6, 7, 1000])
@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumer_computes_the_rounds_of_select(name: str, n: int | None, tmp_path: Path) -> None:
    written = write(tmp_path, name, n)
    assert all(path.stat().st_size > 0 for path in written.files)
    check = verify_export(tmp_path)
    assert check == written.check
    assert check.agrees
    assert check.link_error is not None
    assert check.link_error < 1e-6
    everyone = ["slow", "sprinter", "steady", *["tiny"] * (name == "csv")]
    assert {each.phone for each in check.rounds} <= set(everyone)
    counts = [each.clients for each in check.rounds]
    assert sum(counts) == check.clients == (n or len(everyone))
    assert max(counts) - min(counts) <= 1
    assert written.left_out == (() if name == "csv" else ("tiny",)), "it has too little memory"
    expected = predicted_s()
    for each in check.rounds:
        if each.phone != "tiny":
            assert each.consumer_s == pytest.approx(expected[each.phone], rel=1e-9)


def test_the_duty_cycle_decides_the_time(tmp_path: Path) -> None:
    seconds = []
    for number, work in enumerate((LocalWork(1e5), LocalWork(1e5, rest_s=0.0))):
        plan = PopulationPlan(links=LINK)
        folder = tmp_path / str(number)
        write_consumer_files(CONSUMERS["csv"], a_client_table(), folder, plan, work, False)
        seconds.append({each.phone: each.consumer_s for each in verify_export(folder).rounds})
    assert seconds[1]["sprinter"] == pytest.approx(1e5 * 20.08 / 32 / 1000, rel=1e-3), "sustained"
    assert seconds[0]["sprinter"] < 0.7 * seconds[1]["sprinter"], "cool"
    assert seconds[0]["steady"] == pytest.approx(seconds[1]["steady"]), "it does not throttle"


def test_a_population_has_the_same_bytes_for_the_same_seed(tmp_path: Path) -> None:
    for name in ("appfl", "fedscale", "csv"):
        folders = [tmp_path / f"{name}{number}" for number in range(2)]
        files = [write(folder, name, 50).files for folder in folders]
        assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_fedscale_multiplies_by_three_and_counts_clients_from_one(tmp_path: Path) -> None:
    write(tmp_path, "fedscale", 9)
    capacity = pickle.loads((tmp_path / "device_capacity.pickle").read_bytes())
    available = pickle.loads((tmp_path / "device_availability.pickle").read_bytes())
    assert list(capacity) == list(available) == list(range(9))
    names = {"Model slow": "slow", "Model sprinter": "sprinter", "Model steady": "steady"}
    expected = predicted_s()
    for client in range(1, 10):  # FedScale numbers its clients from 1 and looks up both files
        seconds = 3.0 * 32_000 * capacity[client % 9]["computation"] / 1000
        windows = available[list(available)[client % 9]]
        assert seconds == pytest.approx(expected[names[windows["model"]]]), "the same client"
        assert len(windows["active"]) == len(windows["inactive"])
        assert all(a < b for a, b in zip(windows["active"], windows["inactive"], strict=True))
    kibit = 1e6 * 8 / 1024
    assert 2 * kibit / capacity[1]["communication"] == pytest.approx(8000 / 20_000 + 8000 / 5_000)


def test_a_table_has_units_in_its_columns_and_is_safe_to_open(tmp_path: Path) -> None:
    write(tmp_path, "csv", 6)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "clients.csv").read_text())))
    assert {"cold_ms_per_sample", "energy_mj_per_sample", "round_s", "link_up_kbps"} <= set(rows[0])
    (slow, *_) = (row for row in rows if row["phone"] == "slow")
    assert slow["heating_s"] == "", "unknown values must be empty"
    windows = list(csv.DictReader(io.StringIO((tmp_path / "availability.csv").read_text())))
    assert {row["client"] for row in windows} == set(map(str, range(6)))


def test_a_simulated_fleet_needs_allow_simulated_and_is_named_simulated(tmp_path: Path) -> None:
    table, plan = a_client_table(provenance=FITTED), PopulationPlan(links=LINK)
    with pytest.raises(InvalidRequest, match="--allow-simulated"):
        write_consumer_files(CONSUMERS["flower"], table, tmp_path, plan, WORK, False)
    written = write_consumer_files(CONSUMERS["flower"], table, tmp_path, plan, WORK, True)
    names = {str(path.relative_to(tmp_path)) for path in written.files}
    assert {"fleet.simulated.json", "manifest.simulated.json"} <= names
    assert {"fleet_app/fleet_strategy.py", "fleet_app/round_clock.py", "pyproject.toml"} <= names


def test_the_network_speed_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--link-kbps"):
        write_consumer_files(
            CONSUMERS["fedscale"], a_client_table(), tmp_path, PopulationPlan(), WORK, False
        )
    assert not list(tmp_path.iterdir())


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "appfl")
    (tmp_path / "profiles.json").write_text("{}")
    with pytest.raises(InvalidRequest, match="export it again"):
        verify_export(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(InvalidRequest, match="not a valid manifest"):
        verify_export(tmp_path)
    with pytest.raises(InvalidRequest, match="no manifest"):
        verify_export(tmp_path / "nowhere")


def test_a_wrong_figure_is_noticed(tmp_path: Path) -> None:
    """The comparison is with the clock, not with the number that was written."""
    write(tmp_path, "csv")
    manifest = tmp_path / "manifest.json"
    content = json.loads(manifest.read_text())
    content["phones"][0]["cold_ms_per_sample"] *= 1.01
    manifest.write_text(json.dumps(content))
    assert not verify_export(tmp_path).agrees


@pytest.mark.parametrize(
    "change",
    [
        {"for": "unknown"},
        {"files": {"../manifest.json": "0"}},
        {"files": "all"},
        {"files": {}},
        {"phones": [{}]},
        {"phone_of": [9]},
        {"phone_of": 7},
        {"duty": {"samples": "many"}},
        {"batch": "many"},
        {"batch": [1]},
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write(tmp_path, "csv")
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(InvalidRequest, match="again"):
        verify_export(tmp_path)


def test_a_folder_with_another_export_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "csv")
    table = a_client_table(provenance=FITTED)
    with pytest.raises(InvalidRequest, match="contains another export"):
        write_consumer_files(CONSUMERS["csv"], table, tmp_path, PopulationPlan(), WORK, True)


def test_a_pickle_that_would_run_code_is_refused() -> None:
    from orchestrator.export.federated.fedscale import load_plain

    with pytest.raises(InvalidRequest, match="would run"):
        load_plain(pickle.dumps(Path("x")))
    with pytest.raises(InvalidRequest, match="not a pickle"):
        load_plain(b"")


LARGE = """
import resource, sys, tempfile, time
from pathlib import Path
from orchestrator.export.federated import CONSUMERS, write_consumer_files
from orchestrator.selection.population import LINKS, PopulationPlan
from orchestrator.selection.recommend import LocalWork
from tests.selection.fleets import a_client_table

plan = PopulationPlan(100_000, 1, links=LINKS["flash-wifi"], rhythm=True)
table, started = a_client_table(), time.process_time()
with tempfile.TemporaryDirectory() as folder:
    write_consumer_files(
        CONSUMERS[sys.argv[1]], table, Path(folder), plan, LocalWork(rest_s=60.0), False
    )
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSUMERS)
def test_a_hundred_thousand_clients_take_ten_seconds_and_500_mb(name: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", LARGE, name], capture_output=True, text=True, check=True
    )
    seconds, megabytes = map(float, result.stdout.split())
    assert seconds < 10
    assert megabytes < 500
