"""Compares how often attempts fail on two sides: a build that crashes more often is a regression.

Fisher's exact test: how likely equal sides divide this many failures at least this unevenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from orchestrator.analysis.measurements import MeasuredTrial
from orchestrator.analysis.side_filter import SideFilter, pair_key
from orchestrator.analysis.stats import LEVEL
from workloads.text import TextEnum


class FailureVerdict(TextEnum):
    """Whether the candidate fails more often than the baseline."""

    MORE = "more", "B fails more often"
    LESS = "less", "B fails less often"
    UNCLEAR = "unclear", "no difference shown"


@dataclass(frozen=True)
class TrialOutcomes:
    """The attempts at a trial that ended, and how many a fault of program or phone ended."""

    trial: MeasuredTrial
    failed: int
    attempts: int


@dataclass(frozen=True)
class FailureComparison:
    """Failed attempts and all attempts of both sides; the baseline is the first one."""

    failed: tuple[int, int]
    attempts: tuple[int, int]
    p: float
    verdict: FailureVerdict


def compare_failures(
    base: Sequence[TrialOutcomes],
    candidate: Sequence[TrialOutcomes],
    sides: tuple[SideFilter, SideFilter],
) -> FailureComparison | None:
    """Compare the trials that both sides have; None without any attempt on one of them."""
    side_keys = frozenset(sides[0].patterns) | frozenset(sides[1].patterns)
    keyed = [
        {pair_key(item.trial, side_keys): item for item in outcomes if side.matches(item.trial)}
        for outcomes, side in zip((base, candidate), sides, strict=True)
    ]
    shared = keyed[0].keys() & keyed[1].keys()
    failed = tuple(sum(side[key].failed for key in shared) for side in keyed)
    attempts = tuple(sum(side[key].attempts for key in shared) for side in keyed)
    if not all(attempts):
        return None
    p = fisher_p(failed[0], attempts[0], failed[1], attempts[1])
    verdict = FailureVerdict.UNCLEAR
    if p <= 1 - LEVEL:
        worse = failed[1] / attempts[1] > failed[0] / attempts[0]
        verdict = FailureVerdict.MORE if worse else FailureVerdict.LESS
    return FailureComparison((failed[0], failed[1]), (attempts[0], attempts[1]), p, verdict)


def fisher_p(failed: int, attempts: int, other_failed: int, other_attempts: int) -> float:
    """Return the two-sided p-value of Fisher's exact test, from whole numbers."""
    all_failed = failed + other_failed
    first = max(0, all_failed - other_attempts)
    ways = [
        comb(attempts, count) * comb(other_attempts, all_failed - count)
        for count in range(first, min(all_failed, attempts) + 1)
    ]
    observed = ways[failed - first]
    return sum(way for way in ways if way <= observed) / sum(ways)
