"""The one judge of claims: a published result, and what was seen here, become one of six outcomes.

Every published number is a band: a stated bound is open on one side, a range is its own band, and
an observed value allows a factor of CLOSE on both sides. What was seen is an interval: the range
over settings or the value, widened by its error. Inside the band it agrees, outside it disagrees,
and where they overlap nothing is decided.
"""

import math
from dataclasses import dataclass

from orchestrator.study.claim_evaluators import ClaimResult, is_same_model
from orchestrator.study.evidence import MissingEvidence
from orchestrator.study.study_catalogue import Claim, format_number
from workloads.protocol.metrics import Source
from workloads.text import TextEnum

CLOSE = 1.25  # an observed value agrees if the other differs by less than this factor

_Band = tuple[float, float]


class Outcome(TextEnum):
    """What may be said about a claim. There are no others."""

    AGREES = "agrees", "agrees"
    DISAGREES = "disagrees", "disagrees"
    UNDECIDED = "undecided", "undecided"
    NOT_COMPARABLE = "not_comparable", "not comparable"
    REPLAY = "calibration_replay", "calibration replay"
    NO_RESULT = "no_result", "no result"


@dataclass(frozen=True)
class Judgement:
    """An outcome, and what it follows from."""

    outcome: Outcome
    why: str = ""

    @property
    def text(self) -> str:
        """Both, for a table."""
        return f"{self.outcome.text}: {self.why}" if self.why else self.outcome.text


def judge(
    claim: Claim, model: str, result: ClaimResult | None, missing: MissingEvidence | None = None
) -> Judgement:
    """Judge what was seen on a phone of this model, or on all phones together."""
    if result is None:
        return Judgement(Outcome.NO_RESULT, missing.text if missing else "")
    if why := _why_not_comparable(claim, model, result):
        return Judgement(Outcome.NOT_COMPARABLE, why)
    if is_replay(claim, model, result):
        return Judgement(Outcome.REPLAY, _distance(claim, result))
    if result.provenance.error_unknown:
        return Judgement(Outcome.UNDECIDED, f"{_distance(claim, result)}, error unknown")
    return _judge_label(claim, result) if claim.answer else _judge_number(claim, result)


def is_replay(claim: Claim, model: str, result: ClaimResult | None) -> bool:
    """Return whether the result comes from a model that was chosen or fitted with this claim."""
    return (
        result is not None
        and claim.states_result
        and result.provenance.source is Source.SIMULATED
        and any(is_same_model(replayed, model) for replayed in claim.replays_on)
    )


def _why_not_comparable(claim: Claim, model: str, result: ClaimResult) -> str:
    is_computer = result.provenance.source is Source.HOST
    if not claim.states_result:
        return "not in the study" if claim.ours else "the study gives no number"
    if claim.self_check is not None and not claim.self_check.agrees:
        return f"the source contradicts itself: {claim.self_check.result}"
    if claim.on_computer and not is_computer:
        return "a claim about servers; this is a phone"
    if claim.only_gpu and is_computer:
        return "a claim about phones' GPUs; this device is not one"
    if claim.only_this_phone and not is_same_model(claim.own_model, model):
        what = "a computer" if is_computer else "another phone"
        return ", ".join(filter(None, (what, _distance(claim, result))))
    return result.stands_for


def _judge_label(claim: Claim, result: ClaimResult) -> Judgement:
    if result.is_significant is False:
        return Judgement(Outcome.UNDECIDED, f"{_distance(claim, result)}, too close")
    return Judgement(Outcome.AGREES if _is_same(claim, result) else Outcome.DISAGREES)


def _is_same(claim: Claim, result: ClaimResult) -> bool:
    return result.label.casefold() in {name.casefold() for name in (claim.answer, *claim.same_as)}


def _judge_number(claim: Claim, result: ClaimResult) -> Judgement:
    if result.value is None and result.range is None:
        return Judgement(Outcome.DISAGREES, _distance(claim, result))
    (low, high), band = _seen(claim, result), _band(claim)
    why = _distance(claim, result)
    if band[0] <= low and high <= band[1]:
        return Judgement(Outcome.AGREES, why)
    if high < band[0] or low > band[1]:
        return Judgement(Outcome.DISAGREES, why)
    ends = _ends(claim, result)
    overlaps = ends[0] < band[0] <= ends[1] or ends[0] <= band[1] < ends[1]
    return Judgement(Outcome.UNDECIDED, why if overlaps else f"{why}, the error is too large")


def _band(claim: Claim) -> _Band:
    """Return the values that agree with the published one."""
    if claim.range is not None:
        return claim.range
    if claim.at_least is not None:
        return claim.at_least, math.inf
    if claim.at_most is not None:
        return -math.inf, claim.at_most
    observed = claim.value if claim.value is not None else claim.up_to or 0.0
    low, high = sorted((observed / CLOSE, observed * CLOSE))
    return low, high


def _ends(claim: Claim, result: ClaimResult) -> _Band:
    """Return the lowest and the highest value seen; of 'up to' the highest alone counts."""
    value = result.value or 0.0
    low, high = result.range or (value, value)
    return (high, high) if claim.up_to is not None else (low, high)


def _seen(claim: Claim, result: ClaimResult) -> _Band:
    return result.widen(*_ends(claim, result))


def _distance(claim: Claim, result: ClaimResult) -> str:
    """Say how what was seen lies to what was published."""
    if claim.answer:
        return "the same" if _is_same(claim, result) else "not the same"
    if result.value is None and result.range is None:
        return "no such number"
    (low, high), band = _ends(claim, result), _band(claim)
    published = claim.value if claim.value is not None else claim.up_to
    if published is None or low != high:
        inside = band[0] <= low and high <= band[1]
        outside = high < band[0] or low > band[1]
        return "within" if inside else "outside" if outside else "partly within"
    if published > 0 and high > 0:
        times = high / published
        return f"{f'{times:.2f}' if times >= 0.1 else format_number(times)} × published"
    more = high - published
    return f"{format_number(abs(more))} {'more' if more > 0 else 'less'} than published"
