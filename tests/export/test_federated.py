"""Files for federated-learning simulators: each read back by its consumer's own formula."""

import csv
import io
import json
import pickle
from pathlib import Path

import pytest

from orchestrator.export.federated import CONSUMERS, write_for
from orchestrator.export.federated.consumer import Link, verify
from tests.analysis.builders import FITTED
from tests.selection.fleets import a_census
from workloads.fault import Refused

LINK = Link(20_000.0, 5_000.0)


@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumer_believes_what_was_measured(name: str, tmp_path: Path) -> None:
    written = write_for(CONSUMERS[name], a_census(), tmp_path, LINK, allow_simulated=False)
    assert all(path.stat().st_size > 0 for path in written.files)
    title, beliefs = verify(tmp_path)
    assert CONSUMERS[name].title == title
    assert ["slow", "sprinter", "steady", "tiny"] == [belief.phone for belief in beliefs]
    assert all(belief.off < 1e-9 for belief in beliefs)
    assert pytest.approx(20.08) == beliefs[1].measured_ms, "the sustained time, not the cold one"


def test_fedscale_multiplies_by_three_and_looks_one_further(tmp_path: Path) -> None:
    write_for(CONSUMERS["fedscale"], a_census(), tmp_path, LINK, allow_simulated=False)
    capacity = pickle.loads((tmp_path / "device_capacity.pickle").read_bytes())
    assert [0, 1, 2, 3] == list(capacity)
    assert pytest.approx(40.16 / 32 / 3) == capacity[1]["computation"], "id 1 is the first client"
    assert 5_000.0 == capacity[1]["communication"]
    available = pickle.loads((tmp_path / "device_availability.pickle").read_bytes())
    assert all(len(each["active"]) == len(each["inactive"]) for each in available.values())


def test_oorts_speed_is_the_inverse_of_fedscales(tmp_path: Path) -> None:
    write_for(CONSUMERS["oort"], a_census(), tmp_path, LINK, allow_simulated=False)
    rows = json.loads((tmp_path / "oort_clients.json").read_text())
    assert pytest.approx(1.0) == rows["0"]["compute_speed"] * rows["0"]["duration_s_per_sample"]


def test_a_table_has_units_in_its_columns_and_is_safe_to_open(tmp_path: Path) -> None:
    write_for(CONSUMERS["table"], a_census(), tmp_path, None, allow_simulated=False)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "clients.csv").read_text())))
    assert {"cold_ms_per_sample", "energy_mj_per_sample", "heating_s", "peak_rss_mb"} <= set(
        rows[0]
    )
    assert "" == rows[0]["heating_s"], "what is not known is empty"


def test_a_simulated_fleet_needs_leave_and_says_so_in_every_name(tmp_path: Path) -> None:
    census = a_census(provenance=FITTED)
    with pytest.raises(Refused, match="--allow-simulated"):
        write_for(CONSUMERS["flower"], census, tmp_path, LINK, allow_simulated=False)
    written = write_for(CONSUMERS["flower"], census, tmp_path, LINK, allow_simulated=True)
    named = {path.name for path in written.files}
    assert {"fleet.simulated.json", "manifest.simulated.json"} <= named
    assert "fleet_strategy.py" in named, "a program holds no figures"


def test_a_network_that_nobody_measured_must_be_said(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="--link-kbps"):
        write_for(CONSUMERS["fedscale"], a_census(), tmp_path, None, allow_simulated=False)


def test_a_file_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    write_for(CONSUMERS["oort"], a_census(), tmp_path, LINK, allow_simulated=False)
    (tmp_path / "oort_clients.json").write_text("{}")
    with pytest.raises(Refused, match="export it again"):
        verify(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(Refused, match="not a manifest"):
        verify(tmp_path)
    with pytest.raises(Refused, match="no manifest"):
        verify(tmp_path / "nowhere")


def test_a_pickle_that_wants_to_run_something_is_refused() -> None:
    from orchestrator.export.federated import plain_pickle

    with pytest.raises(Refused, match="was not written by the farm"):
        plain_pickle.load(pickle.dumps(Path("x")))
    with pytest.raises(Refused, match="no pickle"):
        plain_pickle.load(b"")
