"""Decides when a trial has enough runs: its median is known precisely enough. Pure.

The same values always give the same decision: each look of the grid uses only the first runs, so a
report that arrives late or twice changes nothing.

The interval is the one that tables and reports show. A trial whose runs drift does not stop because
it is narrow: its median depends on when the runs were made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.decisions.median_interval import Instability, Interval, median_interval
from orchestrator.sweepfile.policy import StopRule


class StopCause(StrEnum):
    """Which rule ended the repeats of a trial."""

    WIDTH = "width"  # the interval is narrow enough
    N_MAX = "n_max"  # the maximum number of runs is reached
    BUDGET = "budget"  # the sweep has exceeded its budget


@dataclass(frozen=True)
class StopDecision:
    """Whether a trial stops, and the interval of its median so far."""

    cause: StopCause | None  # None: continue
    interval: Interval | None = None  # of the latest look; None before the first


def decide_stop(values: Sequence[float], rule: StopRule) -> StopDecision:
    """Judge a trial by its values, one per accepted run, in the order of its repeats."""
    latest: Interval | None = None
    for look in rule.grid:
        if look > len(values):
            return StopDecision(None, latest)
        latest = median_interval(values[:look], rule.confidence)
        is_narrow = latest.half_width_rel <= rule.half_width_rel
        if is_narrow and latest.unclear is not Instability.DRIFT:
            return StopDecision(StopCause.WIDTH, latest)
    return StopDecision(StopCause.N_MAX, latest)
