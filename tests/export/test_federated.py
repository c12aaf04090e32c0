"""Files for federated-learning simulators, each read back with the formula of its consumer."""

import csv
import importlib.util
import io
import json
import pickle
from pathlib import Path

import pytest

from orchestrator.export.federated import CONSUMERS, write_consumer_files
from orchestrator.export.federated.consumer_files import NetworkLink, verify_export
from tests.analysis.builders import FITTED
from tests.selection.fleets import a_client_table
from workloads.protocol.faults import InvalidRequest

LINK = NetworkLink(20_000.0, 5_000.0)


@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumer_computes_the_measured_times(name: str, tmp_path: Path) -> None:
    written = write_consumer_files(
        CONSUMERS[name], a_client_table(), tmp_path, LINK, allow_simulated=False
    )
    assert all(path.stat().st_size > 0 for path in written.files)
    title, estimates = verify_export(tmp_path)
    assert title == CONSUMERS[name].title
    expected = ["slow", "sprinter", "steady"]
    assert [estimate.phone for estimate in estimates] == expected + ["tiny"] * (name == "table")
    assert written.left_out == (() if name == "table" else ("tiny",)), "it has too little memory"
    assert all(estimate.relative_error < 1e-9 for estimate in estimates)
    assert estimates[1].measured_ms == pytest.approx(20.08), "the sustained time, not the cold one"


def test_fedscale_multiplies_by_three_and_counts_clients_from_one(tmp_path: Path) -> None:
    write_consumer_files(
        CONSUMERS["fedscale"], a_client_table(), tmp_path, LINK, allow_simulated=False
    )
    capacity = pickle.loads((tmp_path / "device_capacity.pickle").read_bytes())
    assert list(capacity) == [0, 1, 2]
    assert capacity[1]["computation"] == pytest.approx(40.16 / 32 / 3), "ids start at 1"
    kbit = 1000.0
    assert 2 * kbit / capacity[1]["communication"] == pytest.approx(kbit / 20_000 + kbit / 5_000)
    available = pickle.loads((tmp_path / "device_availability.pickle").read_bytes())
    assert all(len(each["active"]) == len(each["inactive"]) for each in available.values())


def test_oort_divides_three_times_the_work_and_never_uses_client_zero(tmp_path: Path) -> None:
    write_consumer_files(CONSUMERS["oort"], a_client_table(), tmp_path, LINK, allow_simulated=False)
    profiles = pickle.loads((tmp_path / "client_profiles.pickle").read_bytes())
    assert list(profiles) == [0, 1, 2, 3]
    phones = json.loads((tmp_path / "client_durations.json").read_text())
    for client, batch_ms in ((1, 40.16), (2, 20.08), (3, 12.048), (5, 40.16)):
        speed, bandwidth = profiles[max(1, client % len(profiles))]
        assert 3.0 * 32 / speed == pytest.approx(batch_ms / 1000)
        assert 1 / bandwidth == pytest.approx(1 / 20_000 + 1 / 5_000)
    assert phones["1"]["phone"] == "slow"
    assert phones["1"]["duration_s_per_sample"] == pytest.approx(40.16 / 32 / 1000)


def test_the_flash_export_has_the_interface_of_its_devices(tmp_path: Path) -> None:
    write_consumer_files(
        CONSUMERS["flash"], a_client_table(), tmp_path, LINK, allow_simulated=False
    )
    spec = importlib.util.spec_from_file_location("flash", tmp_path / "measured_phones.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    devices = module.MeasuredPhones()
    assert "sprinter" == devices.transfer("sprinter") == devices.transfer("Model sprinter")
    assert devices.transfer("never heard of") in {"slow", "sprinter", "steady"}
    times = [devices.get_train_time("sprinter", 100, 32, 2) for _ in range(400)]
    assert sum(times) / len(times) == pytest.approx(2 * 4 * 20.08 / 1000, rel=0.02)
    assert len(set(times)) > 1, "times must be random"
    with pytest.raises(ValueError, match="batch size 32"):
        devices.get_train_time("sprinter", 100, 10, 2)
    speeds = json.loads((tmp_path / "speed_distri.json").read_text())
    assert (speeds["slow"]["down_u"], speeds["slow"]["up_u"]) == (2500.0, 625.0), "kB/s"


def test_a_table_has_units_in_its_columns_and_is_safe_to_open(tmp_path: Path) -> None:
    write_consumer_files(
        CONSUMERS["table"], a_client_table(), tmp_path, None, allow_simulated=False
    )
    rows = list(csv.DictReader(io.StringIO((tmp_path / "clients.csv").read_text())))
    assert {"cold_ms_per_sample", "energy_mj_per_sample", "heating_s", "peak_rss_mb"} <= set(
        rows[0]
    )
    assert rows[0]["heating_s"] == "", "unknown values must be empty"


def test_a_simulated_fleet_needs_allow_simulated_and_is_named_simulated(tmp_path: Path) -> None:
    table = a_client_table(provenance=FITTED)
    with pytest.raises(InvalidRequest, match="--allow-simulated"):
        write_consumer_files(CONSUMERS["flower"], table, tmp_path, LINK, allow_simulated=False)
    written = write_consumer_files(CONSUMERS["flower"], table, tmp_path, LINK, allow_simulated=True)
    names = {path.name for path in written.files}
    assert {"fleet.simulated.json", "manifest.simulated.json"} <= names
    assert "fleet_strategy.py" in names, "a program contains no figures"


def test_the_network_speed_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--link-kbps"):
        write_consumer_files(
            CONSUMERS["fedscale"], a_client_table(), tmp_path, None, allow_simulated=False
        )


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    write_consumer_files(CONSUMERS["oort"], a_client_table(), tmp_path, LINK, allow_simulated=False)
    (tmp_path / "client_durations.json").write_text("{}")
    with pytest.raises(InvalidRequest, match="export it again"):
        verify_export(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(InvalidRequest, match="not a valid manifest"):
        verify_export(tmp_path)
    with pytest.raises(InvalidRequest, match="no manifest"):
        verify_export(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "change",
    [
        {"for": "unknown"},
        {"files": {"../manifest.json": "0"}},
        {"files": "all"},
        {"files": {}},
        {"clients": [{}]},
        {"clients": 7},
        {"batch": "many"},
        {"batch": [1]},
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write_consumer_files(
        CONSUMERS["table"], a_client_table(), tmp_path, None, allow_simulated=False
    )
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(InvalidRequest, match="again"):
        verify_export(tmp_path)


def test_a_folder_with_another_export_is_refused(tmp_path: Path) -> None:
    write_consumer_files(
        CONSUMERS["table"], a_client_table(), tmp_path, None, allow_simulated=False
    )
    with pytest.raises(InvalidRequest, match="contains another export"):
        write_consumer_files(
            CONSUMERS["table"],
            a_client_table(provenance=FITTED),
            tmp_path,
            None,
            allow_simulated=True,
        )


def test_a_pickle_that_would_run_code_is_refused() -> None:
    from orchestrator.export.federated import plain_pickle

    with pytest.raises(InvalidRequest, match="would run"):
        plain_pickle.load(pickle.dumps(Path("x")))
    with pytest.raises(InvalidRequest, match="not a pickle"):
        plain_pickle.load(b"")
