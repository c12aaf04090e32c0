"""Whether the steps of a run took the same time throughout, at equal clocks. Pure.

Work that repeats takes the same time at the same clocks. Where it does not, something else took
part: other work, a hidden limit, a core that went away. Windows are compared only with windows at
the same clocks, because a governor or a thermal cap, which the clocks show, is not a disturbance.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from agent.collect.runner_output import StepWindow

CHANGE_MIN = 0.03  # smaller changes of the step time are not told from noise
NOISE_FACTOR = 5.0  # standard errors of a block's median
BLOCKS_MAX, BLOCK_WINDOWS_MIN = 20, 5
OFF_SHARE_MIN = 0.05  # of the time at these clocks
MODE_SHARE_MIN, MODE_GAP_FACTOR = 0.2, 4.0
CLOCK_STEP = 0.01  # clocks that differ by less are the same
Clocks = Sequence[tuple[int, int]]  # moments in ns and kHz of one policy


@dataclass(frozen=True)
class StepChange:
    """A stretch of a run in which steps took longer or shorter than in the rest."""

    change: float  # relative to the median at the same clocks
    share: float  # of the time at these clocks
    start_ns: int  # since the first window
    returned: bool  # whether later windows are as before


def step_changes(groups: Sequence[Sequence[StepWindow]], start_ns: int) -> Iterator[StepChange]:
    """Find stretches with other step times, in each group of windows with the same clocks."""
    for group in groups:
        if change := _stretch(group, start_ns):
            yield change


def two_modes(groups: Sequence[Sequence[StepWindow]]) -> float | None:
    """The relative distance of two step times that a run alternated between; None: there is one."""
    distances = [_mode_distance(group) for group in groups]
    return max((distance for distance in distances if distance is not None), default=None)


def group_by_clocks(
    windows: Sequence[StepWindow], clocks: Sequence[Clocks]
) -> list[list[StepWindow]]:
    """Group windows by their clocks; those in which a clock changed belong to no group."""
    changing = [series for series in clocks if not _is_same(khz for _, khz in series)]
    if not changing:
        return [list(windows)]
    groups: dict[tuple[int, ...], list[StepWindow]] = {}
    times = [[t_ns for t_ns, _ in series] for series in changing]
    for window in windows:
        key = []
        for moments, series in zip(times, changing, strict=True):
            first = max(bisect_right(moments, window.t_ns) - 1, 0)
            last = min(bisect_left(moments, window.t_ns + window.ns), len(series) - 1)
            around = [khz for _, khz in series[first : last + 1]]
            if not around or not _is_same(around):
                break
            key.append(around[0])
        else:
            groups.setdefault(tuple(key), []).append(window)
    return list(groups.values())


def _is_same(clocks: Iterable[int]) -> bool:
    values = set(clocks)
    return max(values) - min(values) <= CLOCK_STEP * max(values)


def _stretch(windows: Sequence[StepWindow], start_ns: int) -> StepChange | None:
    count = min(BLOCKS_MAX, len(windows) // BLOCK_WINDOWS_MIN)
    if count < 3:
        return None
    edges = [len(windows) * index // count for index in range(count + 1)]
    blocks = [[w.step_ms for w in windows[i:j]] for i, j in pairwise(edges)]
    medians = [median(block) for block in blocks]
    usual = median(medians)
    scatter = median(
        abs(step_ms - middle)
        for block, middle in zip(blocks, medians, strict=True)
        for step_ms in block
    )
    size = len(windows) / count
    limit = max(CHANGE_MIN, NOISE_FACTOR * 1.4826 * 1.25 * scatter / usual / size**0.5)
    off = [index for index, middle in enumerate(medians) if abs(middle / usual - 1) > limit]
    if len(off) < max(1, OFF_SHARE_MIN * count):
        return None
    worst = max(off, key=lambda index: abs(medians[index] / usual - 1))
    return StepChange(
        medians[worst] / usual - 1,
        len(off) / count,
        windows[edges[off[0]]].t_ns - start_ns,
        returned=off[-1] < count - 1,
    )


def _mode_distance(windows: Sequence[StepWindow]) -> float | None:
    values = sorted(window.step_ms for window in windows)
    if len(values) < 20:
        return None
    # The split with the smallest scatter within both parts.
    total, squares = sum(values), sum(value * value for value in values)
    best, cut, head, head_squares = float("inf"), 0, 0.0, 0.0
    for index, value in enumerate(values[:-1], start=1):
        head, head_squares = head + value, head_squares + value * value
        rest = len(values) - index
        within = (
            head_squares - head**2 / index + squares - head_squares - (total - head) ** 2 / rest
        )
        if within < best:
            best, cut = within, index
    if not MODE_SHARE_MIN <= cut / len(values) <= 1 - MODE_SHARE_MIN:
        return None
    low, high = median(values[:cut]), median(values[cut:])
    deviation = (max(best, 0.0) / len(values)) ** 0.5
    if high / low - 1 < CHANGE_MIN or high - low < MODE_GAP_FACTOR * deviation:
        return None
    return high / low - 1
