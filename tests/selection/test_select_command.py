"""`farm select` and its subcommands: tables, JSON, exit codes and errors."""

import json
from pathlib import Path

import pytest
from click import BadParameter
from click.testing import CliRunner, Result

from orchestrator.cli import farm
from orchestrator.commands.exit_codes import exit_code
from orchestrator.commands.select_options import POLICY_NAMES
from orchestrator.planning.trials import Trial
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from tests.analysis.builders import FITTED, HOST, measured, phone
from tests.builders import a_report, an_announcement, planned_runs
from tests.leasing import lease_next
from tests.selection.fleets import phone_runs
from tests.stored_runs import store_runs
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.faults import FarmError
from workloads.protocol.verdict import Reason, ReasonCode, Validity

FAST = ("--seeds", "2", "--clients", "12", "--rounds", "4", "-k", "3")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with sweeps that can be used for selection and sweeps that cannot."""
    folder = tmp_path_factory.mktemp("lab")
    store = Database(f"sqlite:///{folder / 'farm.db'}")
    store.migrate()
    four = [
        *phone_runs("sprinter", 10.0, 20.0),
        *phone_runs("steady", 12.0, 12.0),
        *phone_runs("slow", 40.0, 40.0),
        *phone_runs("tiny", 11.0, 11.0, facts=phone("tiny", ram_mb=150)),
    ]
    store_runs(store, four, "good")
    store_runs(store, [*phone_runs("a", 10, 20, provenance=FITTED)], "twins")
    store_runs(store, [measured("a"), measured("b", 12.0)], "cold-only")
    store_runs(
        store, [measured("a", provenance=HOST), measured("b", 12.0, provenance=HOST)], "hosts"
    )
    store_runs(store, [measured("a"), measured("b", provenance=HOST)], "mixed")
    store_runs(
        store,
        [
            measured(
                "a", validity=Validity.SUSPECT, reasons=(Reason.suspect(ReasonCode.NOT_STEADY),)
            )
        ],
        "doubtful",
    )
    store_runs(store, [measured("a", condition={"protocol": "soaked"})], "hot-only")
    store_runs(store, [measured(parameters={"batch_size": size}) for size in (32, 64)], "two-cases")
    store.close()
    return folder


def select(folder: Path, *words: str) -> Result:
    """Run the command in this process."""
    lab = [] if words[0] == "verify" else ["--lab", str(folder)]
    return CliRunner().invoke(farm, ["select", *words, *lab], standalone_mode=False)


def succeed(folder: Path, *words: str) -> Result:
    """Run a command that must succeed."""
    result = select(folder, *words)
    assert result.exception is None, result.exception
    return result


def test_a_cohort_is_printed_with_reasons_and_notes(lab: Path) -> None:
    result = succeed(lab, "good", "-k", "2", "--samples", "1000")
    phones = [line.split("\t")[0] for line in result.stdout.splitlines()[1:]]
    assert phones == ["sprinter", "steady"]
    expected_notes = (
        "Not chosen: tiny: it needs 100 MB, more than 50% of its 150 MB.",
        "Expected time of a round of 1000 samples per phone: ",
        "Expected energy of all phones: ",
    )
    assert all(note in result.stderr for note in expected_notes)
    assert "simulated" not in result.stderr
    document = json.loads(succeed(lab, "good", "-k", "2", "--json").stdout)
    assert document["round_s"]["low"] < document["round_s"]["value"] < document["round_s"]["high"]
    assert document["energy_j"]["value"] > 0
    assert [(item["phone"], item["code"]) for item in document["excluded"]] == [
        ("tiny", "too_little_memory")
    ]


def test_missing_measurements_are_listed(lab: Path) -> None:
    result = succeed(lab, "cold-only", "-k", "1")
    assert "Missing: no endurance run for a, b; add 'protocol: [cold, endurance]'" in result.stderr
    assert "no energy per sample" in result.stderr
    assert "'repeat: 3' or more" in result.stderr
    assert "Measure a next: it has no hot run, so its slowdown is unknown." in result.stderr
    assert "Expected energy" not in result.stderr
    document = json.loads(succeed(lab, "cold-only", "-k", "1", "--json").stdout)
    assert document["energy_j"] is None


CSV_OF_3 = ("--to", "csv", "--clients", "3")


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_one_phone_is_enough_for_every_policy(lab: Path, policy: str) -> None:
    result = succeed(lab, "twins", "-k", "3", "--policy", policy)
    assert result.stdout.splitlines()[1].split("\t")[0] == "a"
    assert "Only 1 of 3 phones could be chosen." in result.stderr
    assert "All figures are simulated" in result.stderr
    document = json.loads(succeed(lab, "twins", "-k", "3", "--policy", policy, "--json").stdout)
    assert (len(document["chosen"]), document["simulated"]) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("nowhere",), 2, "there is no sweep 'nowhere'"),
        (("simulate", "nowhere"), 2, "there is no sweep 'nowhere'"),
        (("export", "nowhere", "--to", "csv"), 2, "there is no sweep 'nowhere'"),
        (("doubtful",), 2, "a: none of its 1 runs is valid"),
        (("simulate", "doubtful"), 2, "no phone can be chosen"),
        (("hot-only",), 2, "it has no cold run"),
        (("mixed",), 7, "sources differ (host, phone)"),
        (("two-cases",), 2, "the sweep has several workloads"),
        (("good", "--workload", "lenet"), 2, "no run has this workload and batch"),
        (("good", "--live"), 4, "is not up"),
        (("export", "good", "--to", "fedscale"), 2, "--link-kbps"),
        (("export", "good", "--to", "fedscale", "--link-kbps", "quick"), 2, "is not a speed"),
        (("export", "good", "--to", "fedscale", "--link-kbps", "inf"), 2, "is not a speed"),
        (("export", "good", "--to", "appfl", "--link-kbps", "1/0"), 2, "is not a speed"),
        (("export", "twins", "--to", "csv"), 2, "--allow-simulated"),
        (("export", "good", *CSV_OF_3, "--model-share", "x"), 2, "is not a list"),
        (("export", "good", *CSV_OF_3, "--model-share", "x=0.5,x=0.5"), 2, "names a model twice"),
        (("export", "good", "--to", "csv", "--model-share", "x=1"), 2, "pass --clients N"),
        (("export", "good", "--to", "csv", "--link-kbps", "1", "--links", "flash-wifi"), 2, "one"),
        (("export", "good", "--to", "csv", "--availability", "nowhere.csv"), 2, "as a trace"),
        (("verify", "nowhere"), 2, "has no manifest"),
    ],
)
def test_an_impossible_request_is_refused(
    lab: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    result = select(lab, *words)
    assert isinstance(result.exception, FarmError), result.exception
    assert text in str(result.exception)
    assert exit_code(result.exception) == code


@pytest.mark.parametrize("option", ["--round", "--rest", "--unit-spread"])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e300"])
def test_a_number_is_finite_and_bounded(option: str, number: str) -> None:
    words = ["select", "export", "good", *CSV_OF_3, option, number]
    with pytest.raises(BadParameter, match="is not a (finite number|duration)|is not in the range"):
        farm(words, standalone_mode=False)


@pytest.mark.parametrize("sweep", ["good", "twins", "hosts", "cold-only"])
def test_policies_are_simulated_with_incomplete_measurements(lab: Path, sweep: str) -> None:
    result = succeed(lab, "simulate", sweep, *FAST)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows[1:]] == list(POLICY_NAMES)
    has_energy = sweep in {"good", "twins"}
    assert (rows[1][4] != "unknown") == has_energy
    assert "too few to call a policy better" in result.stderr
    assert ("Kendall's tau = 0.33" in result.stderr) == (sweep == "good")
    assert ("effect of heat on the ranking is unknown" in result.stderr) == (sweep != "good")
    assert ("those of simulated phones" in result.stderr) == (sweep == "twins")


def test_a_simulation_is_available_as_json(lab: Path) -> None:
    result = succeed(lab, "simulate", "good", *FAST, "--policy", "frugal", "--json")
    document = json.loads(result.stdout)
    assert list(document["against_random"]) == ["random", "frugal"]
    assert document["against_random"]["random"]["time_s"]["value"] == pytest.approx(1.0)
    assert len(document["outcomes"]) == 4
    assert document["rankings"]["tau"] == pytest.approx(1 / 3)
    assert any("too few to call a policy better" in note for note in document["notes"])


def test_a_clock_without_training_is_simulated(lab: Path) -> None:
    words = ("--clock-only", "--seeds", "1", "--clients", "2000", "--rounds", "3")
    result = succeed(lab, "simulate", "good", *words, "--policy", "oort")
    assert "Nothing was trained" in result.stderr
    assert len(result.stdout.splitlines()) == 3


def test_an_export_names_the_phones_left_out_and_is_verified(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = succeed(lab, "export", "good", "--to", "appfl", "--link-kbps", "20000/5000")
    assert "good-appfl/profiles.json" in result.stdout
    assert "Left out: tiny: not enough memory." in result.stderr
    assert "The times hold for rounds of " in result.stderr
    assert "with batch size 32, after which a phone rests until cool" in result.stderr
    assert "APPFL computes rounds of 3 clients to within 0.00%, links to within" in result.stderr
    document = json.loads(succeed(lab, "verify", "good-appfl", "--json").stdout)
    assert document["consumer"] == "APPFL"
    assert [row["phone"] for row in document["rounds"]] == ["slow", "sprinter", "steady"]
    chosen = json.loads(succeed(lab, "good", "-k", "3", "--policy", "fastest", "--json").stdout)
    predicted = {row["phone"]: row["round_s"] for row in chosen["chosen"]}
    for row in document["rounds"]:
        if row["phone"] in predicted:
            assert row["consumer_s"] == pytest.approx(predicted[row["phone"]], rel=1e-9)
    result = succeed(lab, "export", "twins", "--to", "csv", "--allow-simulated", "-o", "here")
    assert all("simulated" in line for line in result.stdout.splitlines())


def test_a_population_is_exported_with_shares_links_and_a_trace(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text("client,start_s,end_s\na,0,3600\n")
    shares = "Model slow=0.25,Model steady=0.75"
    words = ("--clients", "8", "--seed", "3", "--model-share", shares, "--links", "flash-wifi")
    result = succeed(
        lab, "export", "good", "--to", "fedscale", *words, "--availability", "trace.csv"
    )
    assert "No model was measured on two phones" in result.stderr
    document = json.loads(succeed(lab, "verify", "good-fedscale", "--json").stdout)
    counts = {row["phone"]: row["clients"] for row in document["rounds"]}
    assert counts == {"slow": 2, "steady": 6}


def test_a_phone_without_reports_is_listed_with_the_state_of_its_runs(
    store: Database, tmp_path: Path
) -> None:
    facts = [phone(serial) for serial in ("quick", "absent")]
    store_parcels(store, "bench-1", [an_announcement(each, "bench-1") for each in facts])
    case = bind("mlp-4", {"batch_size": 32})
    trials = [
        Trial(f"tr-{number:016}", case, Condition(), each.serial)
        for number, each in enumerate(facts)
    ]
    row = {"id": "sw-00000001", "name": "half", "source": "farm: 1\nname: half\n", "seed": 7}
    submission.submit(store, row, trials, planned_runs(trials))
    result = select(tmp_path, "half")
    assert "this sweep has no report yet" in str(result.exception)
    for _, job in lease_next(store, {"quick": "bench-1"}, lease_timeout_s=30, now=2e9):
        store_parcels(store, "bench-1", [a_report(job, "bench-1")])
    assert "Not chosen: absent: its runs are queued." in succeed(tmp_path, "half", "-k", "1").stderr
