"""Decides what a fleet ranking may claim about a phone, and renders it as a short text.

"Fastest" and "slower" need four runs on both sides, medians that differ by more than both intervals
allow together, and values whose error is known. The interval of a simulated value already contains
its model's error, so the noise that a simulation adds does not strengthen a claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from orchestrator.analysis.stats import Instability, Interval
from workloads.protocol.metrics import METRICS, Provenance, Source

CLAIM_RUNS_MIN = 4


class RankClaim(StrEnum):
    """What may be claimed about a phone's rank."""

    LEADS = "leads"
    BEHIND = "behind"
    ONLY_PHONE = "only_phone"
    TOO_FEW_RUNS = "too_few_runs"
    NOT_DISTINGUISHABLE = "not_distinguishable"
    UNSTABLE = "unstable"
    RIVAL_UNKNOWN = "rival_unknown"
    ERROR_UNKNOWN = "error_unknown"


@dataclass(frozen=True)
class RankStatement:
    """A claim about a phone's rank, with what its text needs."""

    claim: RankClaim
    provenance: Provenance
    runs: int
    is_time: bool  # times have a fastest phone, other metrics a best one
    unstable: Instability | None = None  # of the claim UNSTABLE: why

    @property
    def text(self) -> str:
        """The claim, after the origin of the numbers if no phone has measured them."""
        if self.claim is RankClaim.ERROR_UNKNOWN:
            return self.short_text
        return f"{provenance_prefix(self.provenance)}{self.short_text}"

    @property
    def short_text(self) -> str:
        """The claim alone."""
        match self.claim:
            case RankClaim.LEADS:
                return "fastest" if self.is_time else "best"
            case RankClaim.BEHIND:
                return "slower" if self.is_time else "behind"
            case RankClaim.TOO_FEW_RUNS:
                return f"too few runs (n = {self.runs})"
            case RankClaim.UNSTABLE:
                return f"unclear: {self.unstable.text if self.unstable else 'unknown'}"
            case _:
                return _TEXTS[self.claim]


_TEXTS = {
    RankClaim.ONLY_PHONE: "the only phone",
    RankClaim.NOT_DISTINGUISHABLE: "no clear difference",
    RankClaim.RIVAL_UNKNOWN: "too little data on the other",
    RankClaim.ERROR_UNKNOWN: "simulated, error unknown",
}


class RankedPhone(Protocol):
    """The fields of a phone that decide its rank."""

    @property
    def phone(self) -> str: ...
    @property
    def interval(self) -> Interval: ...
    @property
    def provenance(self) -> Provenance: ...


def rank_statement(row: RankedPhone, ordered: Sequence[RankedPhone], metric: str) -> RankStatement:
    """Judge the rank of a row among all rows, which are sorted best first."""
    leads = row.phone == ordered[0].phone
    rivals = [other for other in ordered if other.phone != row.phone] if leads else ordered[:1]
    claim = _claim(row, rivals, RankClaim.LEADS if leads else RankClaim.BEHIND)
    is_time = METRICS[metric].family == "time"
    unstable = None
    if claim is RankClaim.NOT_DISTINGUISHABLE:
        unstable = instability(row, rivals)
    return RankStatement(
        RankClaim.UNSTABLE if unstable else claim,
        *(row.provenance, row.interval.n, is_time, unstable),
    )


def provenance_prefix(provenance: Provenance) -> str:
    """Return the prefix of a number that no phone has measured."""
    if provenance.source is Source.HOST:
        return "on a computer: "
    if provenance.error_rel is not None:
        return f"simulated ±{provenance.error_rel:.0%}: "
    return "" if provenance.source is Source.PHONE else "simulated, error unknown: "


def are_distinguishable(one: RankedPhone, other: RankedPhone) -> bool:
    """Return whether the order of two phones is more than chance and model error."""
    return is_judgeable(one) and is_judgeable(other) and one.interval.differs_from(other.interval)


def instability(row: RankedPhone, rivals: Sequence[RankedPhone]) -> Instability | None:
    """Return why the interval of a phone, or of one close to it, is not reliable."""
    close = [row, *(rival for rival in rivals if not are_distinguishable(row, rival))]
    return next((one.interval.unclear for one in close if one.interval.unclear), None)


def is_judgeable(row: RankedPhone) -> bool:
    """Return whether a value may support a claim at all."""
    enough = row.interval.n >= CLAIM_RUNS_MIN
    return enough and not row.provenance.error_unknown


def _claim(row: RankedPhone, rivals: Sequence[RankedPhone], proven: RankClaim) -> RankClaim:
    if row.provenance.error_unknown:
        return RankClaim.ERROR_UNKNOWN
    if row.interval.n < CLAIM_RUNS_MIN:
        return RankClaim.TOO_FEW_RUNS
    if not rivals:
        return RankClaim.ONLY_PHONE
    if all(are_distinguishable(row, rival) for rival in rivals):
        return proven
    if all(is_judgeable(rival) for rival in rivals):
        return RankClaim.NOT_DISTINGUISHABLE
    return RankClaim.RIVAL_UNKNOWN
