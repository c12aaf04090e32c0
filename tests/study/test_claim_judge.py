"""The truth table of the judge: published form x what was seen -> one of six outcomes."""

from typing import Any

import pytest

from orchestrator.study.claim_evaluators import ClaimResult
from orchestrator.study.claim_judge import Outcome, judge
from orchestrator.study.evidence import Gap, MissingEvidence
from orchestrator.study.study_catalogue import Claim
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, MEASURED
from workloads.protocol.metrics import Provenance

PHONE, OTHER = "Meizu 16T", "Mi 9"
YES, NO, OPEN = Outcome.AGREES, Outcome.DISAGREES, Outcome.UNDECIDED
CHECK = {"product_of": ["128"], "divided_by": ["5.22"], "stated": "19", "unit": "s"}


def seen(value: Any = None, made: Provenance = MEASURED, **more: Any) -> ClaimResult:
    """Build a result: a number, a pair that is a range, or a label."""
    if isinstance(value, tuple):
        return ClaimResult(3, made, range=value, **more)
    if isinstance(value, str):
        return ClaimResult(3, made, label=value, **more)
    return ClaimResult(3, made, value, **more)


def outcome_of(result: ClaimResult | None, model: str = PHONE, **claim: Any) -> Outcome:
    """Judge one result."""
    fields = {"text": "the claim", "published_on": PHONE, "query": {"kind": "value"}} | claim
    missing = None if result else MissingEvidence(Gap.NOT_RUN, "not run")
    return judge(Claim.model_validate(fields), model, result, missing).outcome


TRUTH: list[tuple[dict[str, Any], ClaimResult, Outcome]] = [
    # an observed value: a factor of 1.25 on both sides
    ({"value": 10}, seen(11.0), YES),
    ({"value": 10}, seen(20.0), NO),
    ({"value": 10}, seen(11.0, half_rel=0.3), OPEN),
    ({"value": 10}, seen(20.0, half_rel=0.3), NO),
    ({"value": 10}, seen(13.0, half_rel=0.3), OPEN),
    ({"value": 10}, seen((9.0, 11.0)), YES),
    ({"value": 10}, seen((9.0, 31.0)), OPEN),
    ({"value": 10}, seen((20.0, 31.0)), NO),
    ({"value": 0.0067}, seen(0.0070, half_abs=0.0002), YES),
    ({"value": 0.0067}, seen(0.0070, half_abs=0.02), OPEN),
    ({"value": 0.0067}, seen(-0.05, half_abs=0.02), NO),
    ({"value": 4}, seen("none of 8, 16"), NO),
    # the highest value that was observed, against the highest one here
    ({"up_to": 0.65}, seen(0.0), NO),
    ({"up_to": 0.65}, seen((0.0, 0.6)), YES),
    ({"up_to": 0.65}, seen((0.0, 0.1)), NO),
    ({"up_to": 4.0}, seen(1.79), NO),
    # a published range, against a value or a range
    ({"range": (2.2, 10.5)}, seen(6.0), YES),
    ({"range": (2.2, 10.5)}, seen(11.0), NO),
    ({"range": (2.2, 10.5)}, seen(10.0, half_rel=0.2), OPEN),
    ({"range": (2.2, 10.5)}, seen((3.0, 5.0)), YES),
    ({"range": (2.2, 10.5)}, seen((1.0, 5.0)), OPEN),
    ({"range": (2.2, 10.5)}, seen((1.0, 2.0)), NO),
    # bounds, against values and against ranges
    ({"at_least": 1.0}, seen((16.2, 60.4)), YES),
    ({"at_least": 1.0}, seen((0.5, 60.4)), OPEN),
    ({"at_least": 1.0}, seen((0.2, 0.9)), NO),
    ({"at_least": 2.0}, seen(2.1), YES),
    ({"at_least": 2.0}, seen(2.1, half_rel=0.2), OPEN),
    ({"at_least": 2.0}, seen(0.7), NO),
    ({"at_most": 16.0}, seen(15.0), YES),
    ({"at_most": 16.0}, seen((2.0, 17.0)), OPEN),
    ({"at_most": 0.0}, seen(-0.4), YES),
    ({"at_most": 0.0}, seen(0.4), NO),
    # names
    ({"answer": "big4 high"}, seen("Big4 high", is_significant=True), YES),
    ({"answer": "big4 high"}, seen("big2 high", is_significant=True), NO),
    ({"answer": "big4 high"}, seen("big2 high", is_significant=False), OPEN),
    ({"answer": "big4 high"}, seen("big4 high", is_significant=False), OPEN),
    ({"answer": "out of memory", "same_as": ["killed"]}, seen("killed"), YES),
    ({"answer": "fits"}, seen("fits (2), killed (1)", is_significant=False), OPEN),
]


@pytest.mark.parametrize(("claim", "result", "outcome"), TRUTH)
def test_a_measured_result_agrees_disagrees_or_is_undecided(
    claim: dict[str, Any], result: ClaimResult, outcome: Outcome
) -> None:
    assert outcome_of(result, **claim) is outcome


FORMS: list[tuple[dict[str, Any], Any]] = [
    *(({"value": 10}, 11.0), ({"up_to": 10}, 11.0), ({"range": (2, 10)}, 6.0)),
    *(({"at_least": 1}, 2.0), ({"at_most": 16}, 2.0), ({"answer": "a"}, "a")),
]


@pytest.mark.parametrize(("claim", "value"), FORMS)
def test_what_precedes_every_comparison(claim: dict[str, Any], value: Any) -> None:
    never = Outcome.NOT_COMPARABLE
    assert outcome_of(seen(value), **claim) is Outcome.AGREES
    assert outcome_of(None, **claim) is Outcome.NO_RESULT
    replayed = claim | {"replays_on": [PHONE]}
    for made in (FITTED, EXTRAPOLATED):
        assert outcome_of(seen(value, made), **replayed) is Outcome.REPLAY, "at any error"
        assert outcome_of(seen(value, made), OTHER, **replayed) is not Outcome.REPLAY
    assert outcome_of(seen(value), **replayed) is Outcome.AGREES, "a measurement replays nothing"
    assert outcome_of(seen(value, EXTRAPOLATED), **claim) is Outcome.UNDECIDED, "error unknown"
    assert outcome_of(seen(value), OTHER, **claim, only_this_phone=True) is never
    assert outcome_of(seen(value, HOST), **claim, only_gpu=True) is never
    assert outcome_of(seen(value), **claim, on_computer=True) is never
    assert outcome_of(seen(value, HOST), **claim, on_computer=True) is Outcome.AGREES
    assert outcome_of(seen(value), **claim, self_check=CHECK) is never
    assert outcome_of(seen(value, stands_for="other phones"), **claim) is never


def test_a_claim_without_a_published_result_is_not_comparable() -> None:
    for claim in ({}, {"ours": True}, {"replays_on": [PHONE]}):
        assert outcome_of(seen(2.0, FITTED), **claim) is Outcome.NOT_COMPARABLE


def test_the_reason_is_part_of_the_text() -> None:
    claim = Claim.model_validate(
        {"text": "t", "published_on": PHONE, "value": 10, "query": {"kind": "value"}}
    )
    assert judge(claim, PHONE, seen(20.0)).text == "disagrees: 2.00 × published"
    wide = judge(claim, PHONE, seen(11.0, half_rel=0.5))
    assert wide.text == "undecided: 1.10 × published, the error is too large"
    unknown = judge(claim, PHONE, seen(11.0, EXTRAPOLATED))
    assert unknown.text == "undecided: 1.10 × published, error unknown"
