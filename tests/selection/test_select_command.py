"""`farm select` and its verbs, as somebody in a terminal or a script meets them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import farm
from orchestrator.commands.exit_codes import exit_code
from orchestrator.planning.trials import Trial
from orchestrator.store import leases, submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from tests.analysis.builders import FITTED, HOST, measured, phone
from tests.builders import a_report, an_announcement, planned_runs
from tests.selection.fleets import both_ways
from tests.stored_runs import store_runs
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.faults import FarmError
from workloads.protocol.verdict import Reason, ReasonCode, Validity

FAST = ("--seeds", "2", "--clients", "12", "--rounds", "4", "-k", "3")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with sweeps of all kinds, good and useless."""
    folder = tmp_path_factory.mktemp("lab")
    store = Database(f"sqlite:///{folder / 'farm.db'}")
    store.migrate()
    four = [
        *both_ways("sprinter", 10.0, 20.0),
        *both_ways("steady", 12.0, 12.0),
        *both_ways("slow", 40.0, 40.0),
        *both_ways("tiny", 11.0, 11.0, facts=phone("tiny", ram_mb=150)),
    ]
    store_runs(store, four, "good")
    store_runs(store, [*both_ways("a", 10, 20, provenance=FITTED)], "twins")
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


def done(folder: Path, *words: str) -> Result:
    """A command that has to succeed."""
    found = select(folder, *words)
    assert found.exception is None, found.exception
    return found


def test_a_cohort_is_told_with_reasons_and_what_to_know_beside(lab: Path) -> None:
    found = done(lab, "good", "-k", "2", "--samples", "1000")
    assert [line.split("\t")[0] for line in found.stdout.splitlines()[1:]] == ["sprinter", "steady"]
    assert "Not tiny: it needs 100 MB, more than 50% of its 150 MB." in found.stderr
    assert "is expected to take" in found.stderr
    assert "is expected to cost" in found.stderr
    assert "simulated" not in found.stderr
    said = json.loads(done(lab, "good", "-k", "2", "--json").stdout)
    assert said["round_s"]["low"] < said["round_s"]["value"] < said["round_s"]["high"]
    assert [(item["phone"], item["code"]) for item in said["excluded"]] == [
        ("tiny", "too_little_memory")
    ]


def test_what_the_reports_do_not_tell_is_named(lab: Path) -> None:
    found = done(lab, "cold-only", "-k", "1")
    assert "Missing: no endurance run for a, b; add 'protocol: [cold, endurance]'" in found.stderr
    assert "no energy per sample" in found.stderr
    assert "'repeat: 3' or more" in found.stderr
    assert "Measure a next: it has no hot run, so its slowdown is unknown." in found.stderr
    assert "cost" not in found.stderr.replace("costs", ""), "no energy is made up"


@pytest.mark.parametrize("policy", ["random", "fastest", "fedcs", "tifl", "oort", "frugal"])
def test_one_phone_is_enough_for_every_policy(lab: Path, policy: str) -> None:
    found = done(lab, "twins", "-k", "3", "--policy", policy)
    assert found.stdout.splitlines()[1].split("\t")[0] == "a"
    assert "Only 1 of 3 phones could be chosen." in found.stderr
    assert "All of this is simulated" in found.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("nowhere",), 2, "there is no sweep 'nowhere'"),
        (("simulate", "nowhere"), 2, "there is no sweep 'nowhere'"),
        (("export", "nowhere", "--to", "table"), 2, "there is no sweep 'nowhere'"),
        (("doubtful",), 2, "a: none of its 1 runs is valid"),
        (("simulate", "doubtful"), 2, "no phone can be chosen"),
        (("hot-only",), 2, "it has no cold run"),
        (("mixed",), 7, "sources differ (host, phone)"),
        (("two-cases",), 2, "the sweep has several workloads"),
        (("good", "--workload", "lenet"), 2, "no run has this workload and batch"),
        (("good", "--live"), 4, "is not up"),
        (("export", "good", "--to", "fedscale"), 2, "--link-kbps"),
        (("export", "good", "--to", "fedscale", "--link-kbps", "quick"), 2, "is no speed"),
        (("export", "good", "--to", "fedscale", "--link-kbps", "inf"), 2, "is no speed"),
        (("export", "good", "--to", "oort", "--link-kbps", "1/0"), 2, "is no speed"),
        (("export", "twins", "--to", "table"), 2, "--allow-simulated"),
        (("verify", "nowhere"), 2, "has no manifest"),
    ],
)
def test_a_question_without_an_answer_is_refused_in_a_sentence(
    lab: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    found = select(lab, *words)
    assert isinstance(found.exception, FarmError), found.exception
    assert sentence in str(found.exception)
    assert exit_code(found.exception) == code


@pytest.mark.parametrize("sweep", ["good", "twins", "hosts", "cold-only"])
def test_policies_are_tried_with_whatever_is_known(lab: Path, sweep: str) -> None:
    found = done(lab, "simulate", sweep, *FAST)
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    assert rows[-1][0] == "frugal, 20% wrong"
    assert len(rows) - 1 == 8
    known = {"good", "twins"}
    assert (rows[1][4] == "not known") == (sweep not in known), "an energy without a meter"
    assert "too few to call a policy better" in found.stderr
    heat = "Kendall's tau = 0.33" if sweep == "good" else "What heat does to the ranking is not"
    assert heat in found.stderr
    assert ("those of simulated phones" in found.stderr) == (sweep == "twins")


def test_a_simulation_is_told_to_programs_too(lab: Path) -> None:
    said = json.loads(done(lab, "simulate", "good", *FAST, "--policy", "frugal", "--json").stdout)
    assert list(said["against_random"]) == ["random", "frugal", "frugal, 20% wrong"]
    assert said["against_random"]["random"]["time_s"]["value"] == pytest.approx(1.0)
    assert len(said["outcomes"]) == 6


def test_an_export_says_who_is_left_out_and_reads_itself_back(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = done(lab, "export", "good", "--to", "oort", "--link-kbps", "20000/5000")
    assert "good-oort/client_profiles.pickle" in found.stdout
    assert "Without tiny: it lacks the memory." in found.stderr
    assert "Oort will believe what was measured, to 0.00%." in found.stderr
    told = json.loads(done(lab, "verify", "good-oort", "--json").stdout)
    assert [row["phone"] for row in told["batch_ms"]] == ["slow", "sprinter", "steady"]
    found = done(lab, "export", "twins", "--to", "table", "--allow-simulated", "-o", "here")
    assert all("simulated" in line for line in found.stdout.splitlines())


def test_a_phone_that_never_reported_is_named_with_what_became_of_its_runs(
    store: Database, tmp_path: Path
) -> None:
    facts = [phone(serial) for serial in ("quick", "mute")]
    store_parcels(store, "bench-1", [an_announcement(each, "bench-1") for each in facts])
    case = bind("mlp-4", {"batch_size": 32})
    trials = [
        Trial(f"tr-{number:016}", case, Condition(), each.serial)
        for number, each in enumerate(facts)
    ]
    row = {"id": "sw-00000001", "name": "half", "source": "farm: 1\nname: half\n", "seed": 7}
    submission.submit(store, row, trials, planned_runs(trials))
    found = select(tmp_path, "half")
    assert "this sweep has no report yet" in str(found.exception)
    for _, job in leases.lease_next(store, {"quick": "bench-1"}, lease_timeout_s=30, now=2e9):
        store_parcels(store, "bench-1", [a_report(job, "bench-1")])
    assert "Not mute: its runs are queued." in done(tmp_path, "half", "-k", "1").stderr
