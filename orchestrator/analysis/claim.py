"""What may be said about a phone in a ranking, in a few words.

Words of victory need four runs on either side, intervals that do not touch, and numbers whose
error is known. Why four: of two equal phones, three runs each lie apart by luck once in ten times,
four runs each once in thirty-five. The interval of a simulated number already contains its model's
error, so the noise that a simulation adds earns nothing by itself.
"""

from collections.abc import Sequence
from typing import Protocol

from orchestrator.analysis.stats import Interval
from workloads.measure import METRICS, Model, Provenance, Source

RUNS_FOR_A_CLAIM = 4


class Ranked(Protocol):
    """What has to be known of a phone to judge its place."""

    @property
    def phone(self) -> str: ...
    @property
    def interval(self) -> Interval: ...
    @property
    def provenance(self) -> Provenance: ...


def claim_of(row: Ranked, ordered: Sequence[Ranked], metric: str) -> str:
    """Say what the row's place among the others, best first, is worth."""
    if row.provenance.model is Model.EXTRAPOLATED:
        return "simulated, error unknown"
    first, behind = (
        ("fastest", "slower") if METRICS[metric].family == "time" else ("best", "behind")
    )
    leads = row.phone == ordered[0].phone
    rivals = [other for other in ordered if other.phone != row.phone] if leads else ordered[:1]
    return f"{origin(row.provenance)}{_verdict(row, rivals, first if leads else behind)}"


def origin(provenance: Provenance) -> str:
    """What has to be said before a number that no phone has measured."""
    if provenance.source is Source.HOST:
        return "on a computer: "
    if provenance.error_rel is not None:
        return f"simulated ±{provenance.error_rel:.0%}: "
    return "" if provenance.source is Source.PHONE else "simulated, error unknown: "


def told_apart(one: Ranked, other: Ranked) -> bool:
    """Whether the order of two phones is more than chance and model error."""
    return judgeable(one) and judgeable(other) and not one.interval.overlaps(other.interval)


def judgeable(row: Ranked) -> bool:
    """Whether a number may carry a claim at all."""
    enough = row.interval.n >= RUNS_FOR_A_CLAIM
    return enough and row.provenance.model is not Model.EXTRAPOLATED


def _verdict(row: Ranked, rivals: Sequence[Ranked], word: str) -> str:
    if row.interval.n < RUNS_FOR_A_CLAIM:
        return f"too few runs (n = {row.interval.n})"
    if not rivals:
        return "the only phone"
    if all(told_apart(row, rival) for rival in rivals):
        return word
    if all(judgeable(rival) for rival in rivals):
        return "not told apart"
    return "no claim: too little is known of the other"
