"""Estimates the end of a sweep as a distribution, by Monte Carlo. Pure.

The runs that each phone has left are drawn together, with the durations that plan and scheduler
expect, too. The run under way is drawn on the condition that it has not ended yet. Runs of other
sweeps that a phone executes first, or in turns, count as work of this sweep. The end of the sweep
is that of its last phone. While phones with remaining runs get no runs, the end is unknown, and the
reason is given.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from orchestrator.planning.run_durations import (
    NO_WORK,
    Cell,
    Durations,
    ExpectedRun,
    RunTiming,
    Work,
    drawn_count,
)

DRAWS, DRAWS_MIN, PHONES_DRAWN = 200, 50, 20_000  # fewer draws for many phones
SHARE_SPREAD = 0.5  # the time that runs of another owner take, as standard deviation of its share
RETRY_PRIOR = (0.05, 8.0)  # share of attempts that are repeated, and its weight in attempts


class CompetingWork(NamedTuple):
    """What another sweep has left on the same phones, and its runs per own run."""

    left: Mapping[str, Mapping[Cell, int]]
    weight: float  # infinite: all of its runs come first


@dataclass(frozen=True)
class SweepRest:
    """What is left of a sweep, and what is known about how long it takes."""

    now_s: float
    left: Mapping[str, Mapping[Cell, int]]  # runs by phone and cell
    ended: Sequence[RunTiming]  # attempts of all sweeps, as far as they are remembered
    runs_done: int = 0  # that are not repeated
    attempts_lost: int = 0  # void or failed, and repeated
    absent: Mapping[str, str] = field(default_factory=dict)  # phones without runs now, and why
    others: Sequence[CompetingWork] = ()  # sweeps whose runs delay those of this one
    needed: tuple[float, float] = (1.0, 1.0)  # share of the runs left that a stop rule may leave
    since_s: float = -math.inf  # when the sweep was submitted
    running: Mapping[str, Cell] = field(default_factory=dict)  # by phone: what it does now
    models: Mapping[str, str] = field(default_factory=dict)  # by phone


@dataclass(frozen=True)
class RemainingTime:
    """Seconds until the end: the median, and its 80 % interval, unless it is unknown."""

    likely_s: float
    early_s: float
    late_s: float
    phone: str  # expected to finish last
    finished: int  # ended attempts that the estimate is based on
    untimed: int = 0  # remaining runs of a cell of which none has ended yet
    unknown: str = ""  # why the end is unknown; the times are then those of the other phones

    def after(self, seconds: float) -> "RemainingTime":
        """Return the same estimate some seconds later."""
        early, likely, late = (
            max(0.0, value - seconds) for value in (self.early_s, self.likely_s, self.late_s)
        )
        return replace(self, early_s=early, likely_s=likely, late_s=late)


class _PhoneRest(NamedTuple):
    """What a phone has left: the run under way, and its work after that."""

    current: Sequence[ExpectedRun]  # one of these is under way
    elapsed_s: float
    own: Work
    taken: Work  # by other sweeps, until the last own run has ended


def estimate_remaining(rest: SweepRest) -> RemainingTime | None:
    """Estimate the remaining time; None until an attempt has ended."""
    left = {phone: cells for phone, cells in rest.left.items() if any(cells.values())}
    unknown = _why_unknown(rest.absent, left)
    if not rest.ended:
        return RemainingTime(0.0, 0.0, 0.0, "", 0, 0, unknown) if unknown else None
    durations = Durations(rest.ended, rest.models)
    present = {phone: cells for phone, cells in left.items() if phone not in rest.absent}
    if not present:
        return RemainingTime(0.0, 0.0, 0.0, "", durations.count, 0, unknown)
    rests = {phone: _phone_rest(durations, phone, cells, rest) for phone, cells in present.items()}
    likely, early, late, last = _draw_ends(rest, durations, rests)
    untimed = sum(
        runs
        for cells in present.values()
        for cell, runs in cells.items()
        if not durations.has_run(cell)
    )
    return RemainingTime(likely, early, late, last, durations.count, untimed, unknown)


def _phone_rest(
    durations: Durations, phone: str, cells: Mapping[Cell, int], rest: SweepRest
) -> _PhoneRest:
    """Return what a phone has left to do, for this sweep and for others."""

    running = rest.running.get(phone)
    lefts = [cells, *(other.left.get(phone, {}) for other in rest.others)]
    place = next((at for at, left in enumerate(lefts) if running and left.get(running)), None)
    if running is not None and place is not None:
        lefts[place] = {**lefts[place], running: lefts[place][running] - 1}
    runs = [
        [(durations.expected(phone, cell), count) for cell, count in left.items() if count]
        for left in lefts
    ]
    if running is not None and place is not None:
        current = [durations.expected(phone, running)]
    else:
        current = [run for left in runs for run, _ in left]
    own, taken = durations.work(runs[0]), NO_WORK
    for other, left in zip(rest.others, runs[1:], strict=True):
        work = durations.work(left)
        if math.isinf(other.weight):
            taken = taken.plus(work)
        elif work.runs:  # sweeps of two owners take turns, depending on what both used before
            share = min(1.0, other.weight * own.mean_s / work.mean_s)
            taken = taken.plus(work.scaled(share, SHARE_SPREAD))
    if place is None:  # which run is under way is not known
        after = max(0.0, 1.0 - 1.0 / (own.runs + taken.runs))
        own, taken = own.scaled(after), taken.scaled(after)
    since_s = max(durations.last_end_s.get(phone, -math.inf), rest.since_s)
    elapsed_s = max(0.0, rest.now_s - since_s) if math.isfinite(since_s) else 0.0
    return _PhoneRest(current, elapsed_s, own, taken)


def _draw_ends(
    rest: SweepRest, durations: Durations, rests: Mapping[str, _PhoneRest]
) -> tuple[float, float, float, str]:
    """Draw the end of all phones together; return median, 10 %, 90 % and the last phone."""
    rng = random.Random(0)  # the same data give the same estimate
    share, weight = RETRY_PRIOR
    lost = (rest.attempts_lost + share * weight, rest.runs_done + (1 - share) * weight)
    ends, lasts = [], Counter[str]()
    for _ in range(max(DRAWS_MIN, min(DRAWS, PHONES_DRAWN // len(rests)))):
        pace, needed = durations.draw_pace(rng), rng.uniform(*rest.needed)
        repeated = min(0.8, rng.betavariate(*lost))
        phone_ends = []
        for phone, left in rests.items():
            work = left.own.scaled(needed).plus(left.taken)
            run = rng.choice(left.current)
            end_s = durations.draw_s(work, pace, rng)
            end_s += durations.draw_rest_s(run, left.elapsed_s, pace, rng)
            again = drawn_count(repeated / (1.0 - repeated) * (work.runs + 1.0), rng)
            again_s = (work.mean_s + run.seconds) / (work.runs + 1.0) * math.exp(pace.level)
            phone_ends.append((end_s + again * again_s, phone))
        end_s, last = max(phone_ends)
        ends.append(end_s)
        lasts[last] += 1
    ends.sort()
    early, likely, late = (ends[round(share * (len(ends) - 1))] for share in (0.1, 0.5, 0.9))
    return likely, early, late, lasts.most_common(1)[0][0]


def needed_share(stop: tuple[int, int] | None, done: int, skipped: int) -> tuple[float, float]:
    """Return which share of the runs left a stop rule will need: the least and the most."""
    if stop is None:
        return 1.0, 1.0
    if not skipped:
        return stop[0] / stop[1], 1.0
    share = done / (done + skipped)
    return max(stop[0] / stop[1], share - 0.2), min(1.0, share + 0.2)


def _why_unknown(absent: Mapping[str, str], left: Mapping[str, object]) -> str:
    """Return how many phones with remaining runs get none now, by reason."""
    reasons = Counter(why for phone, why in absent.items() if phone in left)
    return ", ".join(
        f"{count} phone{'s' * (count != 1)} {why}" for why, count in sorted(reasons.items())
    )
