"""Which runs a claim is judged with: valid ones, and for outcomes those that lacked memory."""

from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.planning.states import RunState
from orchestrator.study.claim_judge import Outcome
from orchestrator.study.claim_table import ClaimRow, evaluate_claims
from orchestrator.study.evidence import collect_evidence
from orchestrator.study.study_catalogue import Claim, QueryKind, Study
from tests.analysis.builders import MEASURED, measured
from workloads.protocol.faults import Fault, Killed, NeverStarts, RunnerFailed, TooLarge
from workloads.protocol.memory_outcome import memory_outcome
from workloads.protocol.metrics import Provenances
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Reason, ReasonCode, Validity

SIZES, PHONES = (8, 32), ("a", "b")
SOURCES = Provenances(time=MEASURED, clock=MEASURED, heat=MEASURED, energy=MEASURED)
STEP = {"metric": "step_ms", "where": {"workload": "mlp-4"}}
PAIR = {"first": {"batch_size": 8}, "second": {"batch_size": 32}}
ALONG: dict[str, Any] = STEP | {"axis": "batch_size"}
QUERIES: dict[QueryKind, dict[str, Any]] = {
    QueryKind.VALUE: STEP,
    QueryKind.RATIO: STEP | PAIR,
    QueryKind.RATIO_CHANGE: STEP
    | PAIR
    | {"larger": {"workload": "mlp-4"}, "smaller": {"workload": "mlp-4"}},
    QueryKind.DIFFERENCE: STEP | PAIR,
    QueryKind.BEST_SETTING: ALONG,
    QueryKind.PARETO_FRONT: ALONG | {"second_metric": "peak_rss_mb"},
    QueryKind.LARGEST_BELOW: ALONG | {"limit": 100},
    QueryKind.BREAKDOWN: ALONG,
    QueryKind.OUTCOME: {"where": {"workload": "mlp-4"}},
    QueryKind.PHONE_RATIO: STEP,
    QueryKind.BEST_PHONE: STEP,
    QueryKind.RANK_AGREEMENT: ALONG,
}
PUBLISHED: dict[QueryKind, dict[str, Any]] = {
    kind: {"answer": "something else"}
    for kind in (
        *(QueryKind.BEST_SETTING, QueryKind.PARETO_FRONT, QueryKind.BREAKDOWN),
        *(QueryKind.OUTCOME, QueryKind.BEST_PHONE),
    )
}


@dataclass(frozen=True)
class Ending:
    """How all runs of a study ended, or that they have not."""

    state: RunState
    validity: Validity | None = None
    fault: Fault | None = None
    reasons: tuple[Reason, ...] = ()


KILLED = Killed("out of memory").fault(Stage.RUN)
NOT_JUDGED = {
    "queued": Ending(RunState.QUEUED),
    "queued again after a kill": Ending(RunState.QUEUED, fault=KILLED),
    "queued again after a void attempt": Ending(RunState.QUEUED, Validity.VOID),
    "leased": Ending(RunState.LEASED),
    "suspect": Ending(RunState.DONE, Validity.SUSPECT),
    "void": Ending(RunState.FAILED, Validity.VOID),
    "failed": Ending(RunState.FAILED, fault=RunnerFailed("exit status 1").fault(Stage.RUN)),
    "failed without a report": Ending(RunState.FAILED),
    "skipped": Ending(RunState.SKIPPED),
    "blocked": Ending(RunState.BLOCKED, fault=KILLED),
    "cancelled": Ending(RunState.CANCELLED),
}


def runs_of(validity: Validity, reasons: tuple[Reason, ...] = ()) -> list[MeasuredRun]:
    return [
        measured(
            *(phone, 10.0 * number + size),
            parameters={"batch_size": size},
            peak_rss_mb=100.0 - size,
            validity=validity,
            reasons=reasons,
        )
        for number, phone in enumerate(PHONES, 1)
        for size in SIZES
    ]


def rows_with(ending: Ending | None, kind: QueryKind, metric: str = "") -> list[ClaimRow]:
    """Evaluate a claim of a kind with runs that all ended in one way; None: no runs."""
    runs = runs_of(ending.validity or Validity.VALID, ending.reasons) if ending else []
    outcomes = [
        RunOutcome(
            *(run.trial, run.repeat, 0, 0, run.phone, run.case, run.condition, ending.state),
            ending.validity,
            memory_outcome(ending.fault, {}) if ending.validity or ending.fault else None,
            *(None, ending.fault, ""),
        )
        for run in runs
        if ending
    ]
    reported = runs if ending and ending.validity else []
    known = {phone: (f"Model {phone}", SOURCES) for phone in PHONES}
    claim = {"text": "the claim", "published_on": "Model a", "query": {"kind": kind}}
    claim |= PUBLISHED.get(kind, {"value": 1.0})
    claim["query"] |= QUERIES[kind] | ({"metric": metric} if metric else {})
    study = Study(
        name="one",
        title="One",
        question="What?",
        citation="a paper",
        place="table 1",
        covers=("E1",),
        caveat="None.",
        claims=(Claim.model_validate(claim),),
    )
    return evaluate_claims(study, collect_evidence(reported, outcomes, (), {}, known))


def test_every_kind_of_query_is_tried() -> None:
    assert {*QUERIES, QueryKind.UNOBSERVABLE} == set(QueryKind)


@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.parametrize("name", ["no runs", *NOT_JUDGED])
def test_a_claim_without_runs_that_count_is_not_judged(name: str, kind: QueryKind) -> None:
    rows = rows_with(NOT_JUDGED.get(name), kind)
    assert rows
    for row in rows:
        assert (row.judgement.outcome, row.result_text) == (Outcome.NO_RESULT, "")
        assert row.cells[4] == "", "no number of runs"
        assert row.missing is not None


@pytest.mark.parametrize("kind", QUERIES)
def test_a_claim_with_valid_runs_is_judged(kind: QueryKind) -> None:
    for row in rows_with(Ending(RunState.DONE, Validity.VALID), kind):
        assert row.missing is None
        assert row.judgement.outcome in (Outcome.AGREES, Outcome.DISAGREES, Outcome.UNDECIDED)


@pytest.mark.parametrize(
    ("fault", "label"),
    [
        (Killed("out of memory"), "killed"),
        (NeverStarts("out of memory"), "never starts"),
        (TooLarge("it needs 9 GB"), "predicted too large"),
    ],
)
def test_a_run_that_lacked_memory_is_an_outcome_and_no_value(fault: Any, label: str) -> None:
    ending = Ending(RunState.FAILED, fault=fault.fault(Stage.RUN))
    assert {row.result_text for row in rows_with(ending, QueryKind.OUTCOME)} == {label}
    rows = rows_with(ending, QueryKind.VALUE)
    assert {row.judgement.outcome for row in rows} == {Outcome.NO_RESULT}


@pytest.mark.parametrize("validity", [Validity.SUSPECT, Validity.VOID])
def test_what_a_disturbed_time_does_not_touch_is_still_judged(validity: Validity) -> None:
    reason = Reason(code=ReasonCode.OWN_CORES_SHARED, validity=validity, values={"busy_pct": 30})
    state = RunState.DONE if validity is Validity.SUSPECT else RunState.FAILED
    ending = Ending(state, validity, reasons=(reason,))
    assert {row.result_text for row in rows_with(ending, QueryKind.OUTCOME)} == {"fits"}
    memory = rows_with(ending, QueryKind.LARGEST_BELOW, "peak_rss_mb")
    assert {row.result_text for row in memory} == {"32 (of 8, 32)"}
    for kind in (QueryKind.VALUE, QueryKind.RATIO):
        times = rows_with(ending, kind)
        assert {row.judgement.outcome for row in times} == {Outcome.NO_RESULT}
        assert all(row.missing and "30" in row.missing.text for row in times)
