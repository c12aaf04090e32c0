"""Whether the steps of a run took the same time throughout, at equal clocks. Pure.

Work that repeats takes the same time at the same clocks. Where it does not, something else took
part: other work, a hidden limit, a core that went away. Windows are compared only with windows at
the same clocks, because a governor or a thermal cap, which the clocks show, is not a disturbance.

Disturbances slow work down. A short slow stretch hardly changes the median of a run, but a short
fast stretch shows that the rest of the run was slow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.collect.runner_output import StepWindow

CHANGE_MIN = 0.025  # smaller changes of the step time cannot be distinguished from noise
NOISE_FACTOR = 5.0  # standard errors of the mean of a stretch
OUTLIER_MIN, OUTLIER_FACTOR = 0.06, 6.0  # single windows count at most as much
WINDOWS_MIN, STRETCH_MIN, STRETCH_GROWTH = 15, 4, 1.6
SLOW_SHARE_MIN = 0.05  # of the windows at these clocks
STALLED_SHARE_MIN = 0.03  # of the time: on phones, mean and median differ by less than 0.5 %
STALLED_STEP = 2.0  # times as long as the other steps of a window: not noise
FAST_MODE_SHARE_MIN, SLOW_MODE_SHARE_MIN, MODE_GAP_FACTOR = 0.08, 0.2, 4.0
HARMLESS = 0.01  # of the run's step time
MEDIAN_ERROR = 1.25  # standard error of a median, relative to the error of a mean
# What a phone does by itself is learned from its own runs, up to a limit.
RUNS_LEARNED, UNREST_FACTOR, CHANGE_MAX = 6, 1.25, 0.06
CLOCKS_HIDDEN_CHANGE = 0.05  # until that is known, where no clock is shown that would explain it
CLOCK_STEP = 0.01  # clocks that differ by less are the same
Clocks = Sequence[tuple[int, int]]  # moments in ns and kHz of one policy
Array = NDArray[np.float64]


class StepSeries(NamedTuple):
    """Windows as columns: begin, end, mean step time, longest step, and mean of its other steps."""

    t_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    step_ms: Array
    longest_ms: Array
    others_ms: Array

    @classmethod
    def of(cls, windows: Sequence[StepWindow]) -> "StepSeries":
        """The columns of some windows."""
        rows = np.array([(w.t_ns, w.ns, w.n, w.ns_max) for w in windows], dtype=np.int64)
        t_ns, ns, n, longest_ns = rows.T
        others_ns = np.where(n > 1, (ns - longest_ns) / np.maximum(n - 1, 1), ns)
        return cls(t_ns, t_ns + ns, ns / n / 1e6, longest_ns / 1e6, others_ns / 1e6)

    def at(self, rows: NDArray[Any]) -> "StepSeries":
        """Some of the windows."""
        return StepSeries(*(column[rows] for column in self))


@dataclass(frozen=True)
class StepChange:
    """A stretch of a run in which steps took longer or shorter than in the rest."""

    change: float  # relative to the median at the same clocks
    share: float  # of the windows at these clocks
    start_ns: int  # since the first window
    end_ns: int
    # How much it changed the median of these windows, and two standard errors of that.
    effect: float = inf
    effect_error: float = 0.0

    @property
    def is_harmless(self) -> bool:
        """Whether it certainly changed the step time of the run by less than one percent."""
        return abs(self.effect) + self.effect_error < HARMLESS


def step_changes(
    groups: Sequence[StepSeries], start_ns: int, least: float = CHANGE_MIN
) -> Iterator[StepChange]:
    """Find stretches with other step times, in each group of windows with the same clocks."""
    for group in groups:
        changes = list(_stretches(group, start_ns, least))
        if all(change.is_harmless for change in changes) and (stall := _stall(group, start_ns)):
            changes = [stall]
        yield from changes


def two_modes(groups: Sequence[StepSeries], least: float = CHANGE_MIN) -> float | None:
    """The relative distance of two step times that a run alternated between; None: there is one."""
    distances = [_mode_distance(group.step_ms, least) for group in groups]
    return max((distance for distance in distances if distance is not None), default=None)


def unrest(groups: Sequence[StepSeries]) -> float:
    """The largest change within a run, beyond the noise of its windows, that is not harmless."""
    changes = [each for group in groups for each in _stretches(group, 0, 0.0)]
    sizes = [abs(each.change) for each in changes if not each.is_harmless]
    return max((*sizes, two_modes(groups, 0.0) or 0.0), default=0.0)


def change_limit(earlier: Sequence[float], unknown: float = CHANGE_MIN) -> float:
    """The least change that counts on a phone whose earlier runs had these largest changes.

    One of them may have been disturbed, so the second largest decides.
    """
    if len(earlier) < RUNS_LEARNED:
        return unknown
    usual = UNREST_FACTOR * sorted(earlier)[-2]
    return min(max(CHANGE_MIN, usual), max(CHANGE_MAX, unknown))


def group_by_clocks(series: StepSeries, clocks: Sequence[Clocks]) -> list[StepSeries]:
    """Group windows by their clocks; those in which a clock changed belong to no group."""
    keys = []
    is_steady = np.ones(len(series.t_ns), dtype=bool)
    for moments in clocks:
        t_ns, khz = np.array(moments, dtype=np.int64).T
        if np.ptp(khz) <= CLOCK_STEP * khz.max():
            continue
        first = np.maximum(np.searchsorted(t_ns, series.t_ns, "right") - 1, 0)
        last = np.minimum(np.searchsorted(t_ns, series.end_ns, "left"), len(khz) - 1)
        last = np.maximum(last, first)
        edges = np.column_stack((first, last + 1)).ravel()
        padded = np.append(khz, khz[-1])
        low = np.minimum.reduceat(padded, edges)[::2]
        high = np.maximum.reduceat(padded, edges)[::2]
        is_steady &= high - low <= CLOCK_STEP * high
        keys.append(khz[first])
    if not keys:
        return [series]
    steady = series.at(is_steady)
    _, index = np.unique(np.array(keys)[:, is_steady], axis=1, return_inverse=True)
    index = index.ravel()
    return [steady.at(index == key) for key in range(int(index.max(initial=-1)) + 1)]


def _stretches(series: StepSeries, start_ns: int, least: float) -> Iterator[StepChange]:
    """The slow and the fast stretch that differ most from the median, among those of any length."""
    total = len(series.step_ms)
    if total < WINDOWS_MIN:
        return
    levels = np.log(series.step_ms)
    off = levels - np.median(levels)
    noise = 1.4826 * float(np.median(np.abs(np.diff(levels)))) / 2**0.5
    bound = max(OUTLIER_MIN, OUTLIER_FACTOR * noise)
    sums = np.concatenate(([0.0], np.cumsum(np.clip(off, -bound, bound))))
    for sign in (1.0, -1.0):
        best, found = 0.0, (0, 0)
        length = STRETCH_MIN
        while length <= total // 2:
            means = sign * (sums[length:] - sums[:-length]) / length
            limit = max(least, NOISE_FACTOR * noise / length**0.5)
            highest = int(means.argmax())
            is_long = sign < 0 or length >= SLOW_SHARE_MIN * total
            if is_long and means[highest] - limit > best:
                best, found = float(means[highest]) - limit, (highest, highest + length)
            length = max(length + 1, int(STRETCH_GROWTH * length))
        if not best:
            continue
        first, end = found
        differing = np.abs(off - np.median(off[first:end])) < np.abs(off)
        undisturbed = off[~differing if sign > 0 else differing]
        yield StepChange(
            float(np.exp((sums[end] - sums[first]) / (end - first))) - 1,
            float(differing.mean()),
            int(series.t_ns[first]) - start_ns,
            int(series.end_ns[end - 1]) - start_ns,
            -float(np.median(undisturbed)),
            2 * MEDIAN_ERROR * noise / len(undisturbed) ** 0.5,
        )


def _stall(series: StepSeries, start_ns: int) -> StepChange | None:
    """The longest of some stalls that together took too much of the time.

    Some windows take so long that their mean is no longer near the median. Or many windows have a
    step that takes a multiple of the others: a process that is stopped for a moment, repeatedly.
    """
    if len(series.step_ms) < WINDOWS_MIN:
        return None
    ns = (series.end_ns - series.t_ns).astype(float)
    middle, others = float(np.median(series.step_ms)), float(np.median(series.others_ms))
    between_ns = float((ns * (1 - middle / series.step_ms)).sum())
    within_ns = 1e6 * float(np.maximum(series.longest_ms - STALLED_STEP * others, 0.0).sum())
    lost = max(between_ns, within_ns) / float(ns.sum())
    if lost <= STALLED_SHARE_MIN:
        return None
    times, usual = series.step_ms, middle
    if within_ns > between_ns:
        times, usual = series.longest_ms, others
    longest = int(times.argmax())
    first, end = (int(column[longest]) - start_ns for column in (series.t_ns, series.end_ns))
    return StepChange(float(times[longest]) / max(usual, 1e-9) - 1, lost, first, end)


def _mode_distance(step_ms: Array, least: float) -> float | None:
    if len(step_ms) < 20:
        return None
    # The split with the smallest scatter within both parts.
    values = np.sort(step_ms)
    counts = np.arange(1, len(values))
    heads, squares = np.cumsum(values)[:-1], np.cumsum(values**2)[:-1]
    total, total_squares = values.sum(), (values**2).sum()
    rest = len(values) - counts
    within = squares - heads**2 / counts + total_squares - squares - (total - heads) ** 2 / rest
    cut = int(within.argmin()) + 1
    share = cut / len(values)
    if not FAST_MODE_SHARE_MIN <= share <= 1 - SLOW_MODE_SHARE_MIN:
        return None
    low, high = float(np.median(values[:cut])), float(np.median(values[cut:]))
    deviation = (max(float(within.min()), 0.0) / len(values)) ** 0.5
    if high / low - 1 < least or high - low < MODE_GAP_FACTOR * deviation:
        return None
    return high / low - 1
