"""Claims evaluated with small data whose results can be computed by hand."""

import math
from typing import Any

import pytest

from orchestrator.analysis.measurements import RunOutcome
from orchestrator.planning.states import RunState
from orchestrator.study.claim_judge import Outcome
from orchestrator.study.claim_table import ClaimRow, evaluate_claims, table_notes
from orchestrator.study.evidence import (
    Gap,
    MissingEvidence,
    Observation,
    ObservedOutcome,
    StudyEvidence,
    collect_evidence,
)
from orchestrator.study.study_catalogue import Claim, ClaimForm, Study
from orchestrator.study.topic_table import count_outcomes
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, MEASURED, measured, phone
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.faults import TooLarge
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.metrics import Provenance
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Reason, ReasonCode, Validity

MEIZU, S8 = "Meizu 16T", "samsung Galaxy S8+"


def observe(
    model: str, metric: str, *values: float, made: Provenance = MEASURED, **at: Any
) -> Observation:
    """Build an observation of a phone whose serial is its model."""
    return Observation(model, at, metric, values, made)


def evidence(
    *observations: Observation, outcomes: tuple[ObservedOutcome, ...] = ()
) -> StudyEvidence:
    """Build evidence from observations and outcomes, with their phones."""
    phones = {each.phone: each.phone for each in (*observations, *outcomes)}
    return StudyEvidence(phones, observations, outcomes)


def rows_for(found: StudyEvidence, **claim: Any) -> list[ClaimRow]:
    """Evaluate one claim."""
    fields = {"text": "the claim", "published_on": MEIZU, "query": {"kind": "value"}} | claim
    return evaluate_claims(a_study(Claim.model_validate(fields)), found)


def a_study(*claims: Claim) -> Study:
    """Build a study with these claims."""
    return Study(
        name="one",
        title="One",
        question="What?",
        citation="a paper, somewhere",
        place="table 1",
        covers=("E1",),
        claims=claims,
        caveat="Mind the gap.",
    )


def step(batch: int, ms: float, model: str = MEIZU, **more: Any) -> Observation:
    return observe(model, "step_ms", ms, batch_size=batch, **more)


def test_a_value_is_compared_with_the_published_one() -> None:
    found = evidence(observe(MEIZU, "step_ms", 19.0, 20.0, 21.0))
    (row,) = rows_for(found, value=10.0, unit="ms", query={"kind": "value", "metric": "step_ms"})
    assert row.judgement.text == "disagrees: 2.00 × published"
    assert row.result_text.startswith("20 ms ±")
    assert (row.result and row.result.n, row.source) == (3, "phone")


def test_a_twin_that_was_fitted_to_a_claim_replays_it() -> None:
    query = {"kind": "value", "metric": "step_ms"}
    claim = {"value": 10.0, "unit": "ms", "replays_on": [MEIZU], "query": query}
    for made, model, replayed in (
        (FITTED, MEIZU, True),
        (EXTRAPOLATED, MEIZU, True),  # fitted, at any error
        (MEASURED, MEIZU, False),
        (HOST, MEIZU, False),
        (FITTED, S8, False),
    ):
        found = evidence(observe(model, "step_ms", 10.0, made=made))
        (row,) = rows_for(found, **claim)
        assert row.is_replay == replayed, (made, model)
        assert row.judgement.text.startswith("calibration replay: ") == replayed
        assert any("Calibration replay" in note for note in notes_of(row)) == replayed


def notes_of(row: ClaimRow) -> list[str]:
    """Return the notes below a table of one row."""
    return table_notes(a_study(row.claim), [row])


def test_a_claim_about_one_phone_is_evaluated_on_that_phone_alone_if_there_is_one() -> None:
    query = {"kind": "value", "metric": "step_ms"}
    both = evidence(observe(S8, "step_ms", 30.0), observe(MEIZU, "step_ms", 10.0))
    assert [row.model for row in rows_for(both, value=10.0, only_this_phone=True, query=query)] == [
        MEIZU
    ]
    (row,) = rows_for(
        evidence(observe(S8, "step_ms", 30.0)), value=10.0, only_this_phone=True, query=query
    )
    assert row.judgement.text == "not comparable: another phone, 3.00 × published"


def test_a_claim_that_contradicts_itself_is_shown_as_such_and_not_judged() -> None:
    check = {"product_of": ["128"], "divided_by": ["5.22"], "stated": "19", "unit": "s"}
    query = {"kind": "value", "metric": "step_ms"}
    found = evidence(observe(MEIZU, "step_ms", 19.0))
    (row,) = rows_for(found, value=19.0, self_check=check, query=query)
    text = "the source contradicts itself: 128 / 5.22 = 24.5 s, stated 19 s"
    assert row.judgement.text == f"not comparable: {text}"
    assert count_outcomes([row])[Outcome.NOT_COMPARABLE] == 1
    assert row.as_json(a_study(row.claim))["contradicts_itself"] is True
    missing = {"kind": "unobservable", "reason": "no meter"}
    (row,) = rows_for(found, value=19.0, self_check=check, query=missing)
    assert row.cells[-1] == "no result: no meter"


def test_a_ratio_has_the_errors_of_both_cells() -> None:
    found = evidence(
        observe(MEIZU, "step_ms", 40.0, made=FITTED, batch_size=64),
        observe(MEIZU, "step_ms", 10.0, made=FITTED, batch_size=4),
    )
    query = {"kind": "ratio", "metric": "step_ms", "first": {"batch_size": 64}}
    (row,) = rows_for(found, value=2.0, query=query | {"second": {"batch_size": 4}})
    assert row.result is not None
    assert row.result.value == 4.0
    assert row.result.half_rel == pytest.approx(math.expm1(0.395), abs=1e-3), "0.28 on both sides"


def test_ratios_along_an_axis_are_a_range() -> None:
    found = evidence(
        *(step(64, 64 * each, workload=name) for name, each in (("a", 2), ("b", 3))),
        *(step(4, 32, workload=name) for name in ("a", "b", "c")),
    )
    query = {"kind": "ratio", "metric": "step_ms", "axis": "workload"}
    query |= {"first": {"batch_size": 64}, "second": {"batch_size": 4}}
    (row,) = rows_for(found, range=(2.2, 10.5), unit="times", query=query)
    assert row.result_text == "4 to 6 times (a to b, n = 2)"
    assert row.judgement.text == "agrees: within"
    (row,) = rows_for(found, range=(2.2, 10.5), query=query | {"among": ["b", "c"]})
    assert row.result_text == "6 (b, n = 1)"


def test_values_along_an_axis_are_a_range() -> None:
    found = evidence(step(4, 10.0), step(64, 40.0))
    query = {"kind": "value", "metric": "step_ms", "axis": "batch_size"}
    (row,) = rows_for(found, up_to=40.0, unit="ms", query=query)
    assert (row.result_text, row.claim.published) == ("10 to 40 ms (4 to 64, n = 2)", "up to 40 ms")
    assert row.judgement.text == "agrees: 1.00 × published"


def test_a_ratio_of_ratios_shows_how_a_ratio_changes() -> None:
    found = evidence(
        *(step(4, ms, workload="small", backend=on) for on, ms in (("cpu", 1.0), ("gpu", 60.0))),
        *(step(4, ms, workload="large", backend=on) for on, ms in (("cpu", 10.0), ("gpu", 150.0))),
    )
    query: dict[str, Any] = {"kind": "ratio_change", "metric": "step_ms"}
    query |= {"first": {"backend": "gpu"}, "second": {"backend": "cpu"}}
    query |= {"larger": {"workload": "large"}, "smaller": {"workload": "small"}}
    (row,) = rows_for(found, at_most=1.0, query=query)
    assert row.result_text == "0.25 (15 over 60)"
    assert row.judgement.outcome is Outcome.AGREES


def test_a_mean_is_marked_and_its_place_is_known() -> None:
    query = {"kind": "value", "metric": "step_ms"}
    found = evidence(observe(MEIZU, "step_ms", 20.0))
    (row,) = rows_for(found, value=10.0, unit="ms", average=True, query=query)
    assert row.claim.published == "10 ms on average"
    assert any("'on average'" in note for note in notes_of(row))
    document = row.as_json(a_study(row.claim))
    assert (document["form"], document["place"]) == (ClaimForm.AVERAGE, "table 1")


def test_the_best_setting_on_two_axes_is_named() -> None:
    cells = [("big4", "high", 2.0, 7.0), ("big1", "low", 10.0, 6.9), ("little1", "low", 57.0, 3.0)]
    cells += [("big4", "low", 8.0, 8.0)]
    found = evidence(
        *(observe(MEIZU, "step_ms", ms, cores=cores, freq=freq) for cores, freq, ms, _ in cells),
        *(observe(MEIZU, "energy_j", j, cores=cores, freq=freq) for cores, freq, _, j in cells),
    )
    query = {"kind": "best_setting", "metric": "step_ms", "axis": "cores freq"}
    (row,) = rows_for(found, answer="big4 high", query=query)
    assert row.result_text == "big4 high (4.00 times ahead of big4 low, not significant)", "one run"
    assert row.judgement.text == "undecided: the same, too close"
    both = query | {"kind": "pareto_front", "second_metric": "energy_j"}
    (row,) = rows_for(found, query=both)
    assert row.result_text == "big4 high, big1 low, little1 low", "big4 low is beaten in both"


def test_a_lead_is_significant_if_runs_and_model_allow_it() -> None:
    query = {"kind": "best_setting", "metric": "step_ms", "axis": "cores"}
    for made, second, significant in (
        (MEASURED, 12.0, True),
        (MEASURED, 10.01, False),
        (FITTED, 11.0, False),
        (EXTRAPOLATED, 90.0, False),
    ):
        found = evidence(
            observe(MEIZU, "step_ms", *[10.0, 10.01, 9.99, 10.0], made=made, cores="big4"),
            observe(MEIZU, "step_ms", *[second] * 4, made=made, cores="big2"),
        )
        (row,) = rows_for(found, answer="big4", query=query)
        assert row.result is not None
        assert row.result.is_significant is significant
        assert ("not significant" in row.result_text) != significant


def test_the_largest_batch_below_a_limit() -> None:
    found = evidence(*(observe(MEIZU, "peak_rss_mb", 250.0 * n, batch_size=n) for n in (1, 4, 8)))
    query = {"kind": "largest_below", "metric": "peak_rss_mb", "axis": "batch_size", "limit": 1024}
    (row,) = rows_for(found, value=4, query=query)
    assert (row.result_text, row.judgement.text) == ("4 (of 1, 4, 8)", "agrees: 1.00 × published")
    (row,) = rows_for(found, value=4, query=query | {"limit": 100})
    assert row.result_text == "none of 1, 4, 8"


def test_phones_are_compared_with_each_other() -> None:
    found = evidence(
        step(4, 40, S8, workload="a"),
        step(4, 10, MEIZU, workload="a"),
        step(4, 20, S8, workload="b"),
        step(4, 30, MEIZU, workload="b"),
    )
    at: dict[str, Any] = {"metric": "step_ms", "where": {"workload": "a"}}
    (row,) = rows_for(found, value=4.0, query={"kind": "phone_ratio", "models": [S8, MEIZU]} | at)
    assert (row.model, row.judgement.text) == ("2 phones", "agrees: 1.00 × published")
    assert "samsung Galaxy S8+ / Meizu 16T" in row.result_text
    (row,) = rows_for(found, value=4.0, query={"kind": "phone_ratio", "models": [S8, "Mi 9"]} | at)
    assert row.judgement.text == "not comparable: the two named phones are not both here"
    (row,) = rows_for(found, answer=MEIZU, query={"kind": "best_phone"} | at)
    assert row.judgement.text == "undecided: the same, too close", "one run"
    (row,) = rows_for(
        found, query={"kind": "rank_agreement", "metric": "step_ms", "axis": "workload"}
    )
    assert row.result is not None
    assert row.result.value == -1.0, "the two phones have opposite orders"


def test_a_missing_observation_has_a_reason() -> None:
    at = {"workload": "resnet50", "batch_size": 64}
    killed = ObservedOutcome(
        *(MEIZU, at, "killed", False, "out of memory", EXTRAPOLATED), is_conclusive=True
    )
    done = ObservedOutcome(S8, at, "fits", True, is_conclusive=True)
    found = evidence(outcomes=(killed, done))
    query = {"kind": "value", "metric": "power_w", "where": at}
    missing = [row.missing for row in rows_for(found, value=1.0, query=query)]
    assert missing[0] == MissingEvidence(Gap.NO_VALID_RUN, "killed: out of memory")
    assert missing[1] is not None
    assert missing[1].gap is Gap.NOT_OFFERED
    (row, _) = rows_for(found, answer="killed", query={"kind": "outcome", "where": at})
    assert (row.result_text, row.judgement.outcome) == ("killed", Outcome.UNDECIDED)
    assert row.source == "simulated (extrapolated, error unknown)"
    both = evidence(outcomes=(killed, ObservedOutcome(S8, at, "killed", False, "out of memory")))
    (row,) = rows_for(both, value=1.0, query=query)
    assert row.model == f"{MEIZU}, {S8}", "phones with the same reason share one row"
    (row,) = rows_for(
        found, value=1.0, query={"kind": "unobservable", "reason": "there is no such meter"}
    )
    assert row.judgement.text == "no result: there is no such meter"
    query = {"kind": "value", "metric": "step_ms", "where": {"engine": "external"}}
    hint = query | {"if_not_run": "pass --external"}
    assert {x.judgement.text for x in rows_for(found, value=1.0, query=hint)} == {
        "no result: pass --external"
    }


def test_runs_become_observations_and_void_ones_reasons() -> None:
    facts = phone("a", model=MEIZU)
    warm = Reason.void(ReasonCode.START_TEMP_UNKNOWN)
    runs = [
        measured("a", 10.0, facts=facts, energy_net_j=5.0, energy_j=10.0, energy_per_step_mj=8.0),
        measured("a", 12.0, facts=facts, repeat=1),
        measured("b", 99.0, validity=Validity.VOID, reasons=(warm,)),
    ]
    outcomes = [
        RunOutcome(
            *(run.trial, run.repeat, 0, 0, run.phone, run.case, run.condition, RunState.DONE),
            *(run.verdict.validity, MemoryOutcome.FITS, None, None, ""),
        )
        for run in runs
    ]
    found = collect_evidence(runs, outcomes)
    at = {"workload": "mlp-4", "cores": "big4", "batch_size": 32}
    (steps,) = found.find("a", "step_ms", at)
    assert steps.values == (10.0, 12.0)
    assert found.find("a", "energy_net_per_step_mj", at)[0].values == (4.0,)
    assert not found.find("b", "step_ms", at)
    missing = found.why_not("b", "step_ms", at).missing
    assert missing == MissingEvidence(Gap.NO_VALID_RUN, f"void: {warm.text}")
    assert found.why_not("a", "pinned_clock_share", at).missing.gap is Gap.NOT_OFFERED


def test_a_rejected_energy_is_not_an_observation() -> None:
    run = measured("a", None, grade="rejected", energy_j=5.0)
    assert not collect_evidence([run], []).observations
    case, condition = bind("mlp-4", {}), Condition()
    refused = RunOutcome(
        *("t", 0, 0, 0, "a", case, condition, RunState.FAILED, None, MemoryOutcome.TOO_LARGE),
        *(None, TooLarge("it needs 9 GB").fault(Stage.PREPARE), ""),
    )
    missing = collect_evidence([], [refused]).why_not("a", "", {}).missing
    assert missing == MissingEvidence(Gap.NO_VALID_RUN, "predicted too large: it needs 9 GB")


def test_there_is_no_best_of_one() -> None:
    query = {"kind": "best_setting", "metric": "step_ms", "axis": "batch_size"}
    (row,) = rows_for(evidence(step(4, 10.0)), answer="8", query=query)
    assert row.missing == MissingEvidence(
        Gap.TOO_FEW_SETTINGS, "needs at least two settings with this value"
    )
    same_model = StudyEvidence({"a": MEIZU, "b": MEIZU}, (step(4, 10.0, "a"), step(4, 12.0, "b")))
    (row,) = rows_for(same_model, answer=S8, query={"kind": "best_phone", "metric": "step_ms"})
    assert row.missing == MissingEvidence(
        Gap.TOO_FEW_PHONES, "needs at least two models of phones with this value"
    )
