"""The joint judgement is stored beside the reports, and every reader uses it."""

import json
from collections.abc import Sequence

import pytest
from sqlalchemy import select, update

from orchestrator.analysis.joint_rules import RULES
from orchestrator.analysis.verdict_counts import judgement_text
from orchestrator.planning.trials import Trial
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.joint_judgements import judge_outdated
from orchestrator.store.metric_rows import metric_values
from orchestrator.store.results import measured_runs, run_outcomes
from orchestrator.store.sweep_queries import sweep_summaries
from orchestrator.store.tables import report
from orchestrator.store.trial_queries import trial_reports, trial_summaries
from orchestrator.store.verdict_totals import with_left_out
from tests.builders import SIMULATED, a_phone, a_report, a_trial, an_announcement, planned_runs
from tests.leasing import lease_next
from workloads.protocol.metrics import Metric
from workloads.protocol.verdict import ReasonCode, Validity

SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
FIRST = a_trial(0)
GOOD = (10.0, 10.1, 9.95, 10.02)


@pytest.fixture
def lab(store: Database) -> Database:
    """A store that knows one phone."""
    store_parcels(store, "host-a", [an_announcement(a_phone())])
    return store


def submit(store: Database, repeat: int, trial: Trial = FIRST, sweep: str = "sw-00000001") -> None:
    """Submit one trial with this many runs."""
    values = SWEEP | {"id": sweep, "name": sweep}
    submission.submit(store, values, [trial], planned_runs([trial], repeat))


def measure(store: Database, steps_ms: Sequence[float]) -> None:
    """Let the phone report runs with these step times."""
    for value in steps_ms:
        ((_, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=2e9)
        metric = Metric(name="step_ms", value=value, unit="ms", provenance=SIMULATED)
        store_parcels(store, "host-a", [a_report(job, metrics=(metric,))])


def states(store: Database, sweep: str = "sw-00000001") -> str:
    """One letter per run: v for valid, s for suspect."""
    return "".join(run.verdict.validity.value[0] for run in measured_runs(store, sweep))


def test_an_odd_run_is_found_when_its_trial_is_complete(lab: Database) -> None:
    submit(lab, 5)
    measure(lab, (16.5, *GOOD[:3]))
    assert states(lab) == "vvvv"
    measure(lab, GOOD[3:])
    assert states(lab) == "svvvv"
    odd, *others = measured_runs(lab, "sw-00000001")
    assert odd.verdict.reasons[0].code is ReasonCode.WORK_RATE_CHANGED
    assert {run.judged_runs for run in (odd, *others)} == {5}
    assert "judged with 5 runs" in judgement_text([odd, *others])


def test_the_report_stays_as_sent(lab: Database) -> None:
    submit(lab, 5)
    measure(lab, (16.5, *GOOD))
    with lab.read() as connection:
        first = connection.execute(select(report).order_by(report.c.id)).first()
    assert first is not None
    assert first.validity == Validity.VALID
    assert first.judged == Validity.SUSPECT
    assert first.judged_rules == RULES
    assert json.loads(first.payload)["verdict"] == {
        "validity": "valid",
        "reasons": [],
        "deterministic": False,
    }


def test_every_reader_uses_it(lab: Database) -> None:
    submit(lab, 5)
    measure(lab, (16.5, *GOOD))
    trial = a_trial(0).id
    outcomes = [outcome.validity for outcome in run_outcomes(lab, "sw-00000001")]
    assert outcomes.count(Validity.SUSPECT) == 1
    assert [item.value for item in metric_values(lab) if item.validity is Validity.SUSPECT] == [
        16.5
    ]
    listed = trial_summaries(lab, "sw-00000001", 9, verdict=Validity.SUSPECT)
    assert [item.id for item in listed] == [trial]
    (summary,) = with_left_out(lab, sweep_summaries(lab))
    assert summary.left_out.reason is ReasonCode.WORK_RATE_CHANGED
    _, (first, *_) = trial_reports(lab, trial)
    assert first.verdict is not None
    assert first.verdict.validity is Validity.SUSPECT
    with lab.read() as connection:
        counted = connection.exec_driver_sql("SELECT value, judged_runs FROM figures").all()
    assert sorted(counted) == [(value, 5) for value in sorted(GOOD)]


def test_runs_of_another_sweep_let_earlier_ones_be_judged_again(lab: Database) -> None:
    submit(lab, 1)
    measure(lab, [16.5])
    assert states(lab) == "v"
    assert "cannot be known" in judgement_text(measured_runs(lab, "sw-00000001"))
    submit(lab, 4, a_trial(1), "sw-00000002")  # of the same case and condition
    measure(lab, GOOD)
    assert states(lab) == "s"
    assert states(lab, "sw-00000002") == "vvvv"


def test_other_rules_judge_again(lab: Database) -> None:
    submit(lab, 5)
    measure(lab, (16.5, *GOOD))
    with lab.write() as connection:
        connection.execute(update(report).values(judged="valid", judged_rules=0, judged_reasons=[]))
    assert states(lab) == "vvvvv"
    assert judge_outdated(lab) == 1
    assert states(lab) == "svvvv"
    assert judge_outdated(lab) == 0


@pytest.mark.parametrize(
    ("step_ms", "models", "state"),
    [
        (10.3, ("Twin", "Twin"), "v"),
        (16.5, ("Twin", "Twin"), "s"),
        (6.0, ("Twin", "Twin"), "s"),
        (16.5, ("Twin", "Other"), "v"),  # one other phone may be the odd one
    ],
)
def test_a_first_run_is_compared_with_other_phones_of_its_product(
    store: Database, step_ms: float, models: tuple[str, str], state: str
) -> None:
    trials = [a_trial(0, serial) for serial in ("PH2", "PH3", "PH1")]
    names = dict(zip(("PH2", "PH3", "PH1"), (*models, "Twin"), strict=True))
    announced = [an_announcement(a_phone(serial, model=name)) for serial, name in names.items()]
    store_parcels(store, "host-a", announced)
    submission.submit(store, SWEEP, trials, planned_runs(trials, 1))
    for serial, value in (("PH2", 10.0), ("PH3", 10.2), ("PH1", step_ms)):
        ((_, job),) = lease_next(store, {serial: "host-a"}, lease_timeout_s=30, now=2e9)
        metric = Metric(name="step_ms", value=value, unit="ms", provenance=SIMULATED)
        store_parcels(store, "host-a", [a_report(job, metrics=(metric,))])
    (run,) = (run for run in measured_runs(store, "sw-00000001") if run.phone == "PH1")
    assert run.verdict.validity.value[0] == state
    codes = {reason.code for reason in run.verdict.reasons}
    assert (ReasonCode.OUTSIDE_EXPECTED in codes) == (state == "s")
