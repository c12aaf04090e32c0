"""The clock by the cycles that the processor counted, compared with the clocks that it shows. Pure.

Clock nodes show the clock that a driver requested. Counted cycles show what the cores executed,
also under a limit of the firmware or a driver that reports a false clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from agent.collect.cpu_usage import (
    CYCLES,
    OWN_STAT,
    TICKS_PER_SECOND,
    parse_cycles,
    ticks_together,
)
from agent.collect.readings import Readings
from agent.collect.run_probe import RunProbe
from agent.phone.kernel_nodes import clock_node, used_clusters
from workloads.protocol.phone_facts import Cluster, CoreSet

COUNTED_CHANGE_MAX = 0.02
BLOCKS_MAX, BLOCKS_MIN = 20, 3
OFF_SHARE_MIN = 0.1  # of the blocks
COUNTED_NS_MIN = 20_000_000  # per block
OWN_SHARE_MIN = COUNTED_SHARE_MIN = 0.9  # of the busy time of the run's cores

CountedCycles = tuple[int, int]  # cycles, and the time in which they were counted


@dataclass(frozen=True)
class CycleMismatch:
    """A part of a run whose counted clock was none of those that were shown."""

    khz: float  # the most different one
    shown_khz: int  # what is nearest to it
    share: float  # of the run
    at_ns: int


@dataclass(frozen=True)
class ClockBlock:
    """The counted clock of a part of a run, and the ranges of clocks that the nodes allow."""

    start_ns: int
    khz: float
    ranges: Sequence[tuple[float, float]]

    @property
    def shown_khz(self) -> int:
        """The shown clock that is nearest to the counted one."""
        edges = [edge for limits in self.ranges for edge in limits]
        distances = [abs(edge - self.khz) for edge in edges]
        return round(edges[distances.index(min(distances))])

    @property
    def difference(self) -> float:
        """How far the counted clock is outside of what was shown; 0 within it."""
        inside = any(low <= self.khz <= high for low, high in self.ranges)
        return 0.0 if inside else self.khz / self.shown_khz - 1


def clock_blocks(probe: RunProbe, timed: Readings) -> list[ClockBlock]:
    """Divide a run into blocks; empty where cycles or clocks cannot be read."""
    rows: list[tuple[int, CountedCycles]] = []
    for row, value in enumerate(timed.parsed(CYCLES, parse_cycles)):
        if value is not None and (not rows or value != rows[-1][1]):
            rows.append((row, value))
    clusters = [part for part in used_clusters(probe.facts, probe.cores) if part.has_clock]
    clocks = [timed.numbers(clock_node(part, "scaling_cur_freq")) for part in clusters]
    count = min(BLOCKS_MAX, len(rows) - 1)
    if count < BLOCKS_MIN or not clocks:
        return []
    weights, others = _busy_ticks(timed, clusters, probe.cores)
    counted_ns, busy_ns = rows[-1][1][1] - rows[0][1][1], sum(weights) * 10**9 // TICKS_PER_SECOND
    counts_everywhere = counted_ns >= COUNTED_SHARE_MIN * busy_ns
    edges = [rows[(len(rows) - 1) * index // count] for index in range(count + 1)]
    blocks = []
    for (first, before), (last, after) in pairwise(edges):
        cycles, ns = after[0] - before[0], after[1] - before[1]
        shown = [_shown(column, first, last) for column in clocks]
        if cycles > 0 and ns >= COUNTED_NS_MIN and any(shown):
            ranges = _allowed_ranges(shown, weights, others, counts_everywhere)
            blocks.append(ClockBlock(timed.t_ns[first], cycles * 1e6 / ns, ranges))
    return blocks


def _busy_ticks(
    timed: Readings, clusters: Sequence[Cluster], cores: CoreSet
) -> tuple[list[int], int]:
    """How long the run's cores of each cluster were busy, empty if unknown, and by other work."""
    used = [ticks_together(timed, {*cluster.cpus} & {*cores.cpus})[1] for cluster in clusters]
    own = [ticks for _, ticks in timed.series(OWN_STAT)]
    if not own or not all(len(busy) for busy in used):
        return [], 0
    ticks = [int(busy[-1] - busy[0]) for busy in used]
    # Otherwise it is other work that keeps them busy, as in a run on the GPU.
    own_ticks = int(own[-1] - own[0])
    is_own = 0 < OWN_SHARE_MIN * sum(ticks) <= own_ticks
    return (ticks, max(sum(ticks) - own_ticks, 0)) if is_own else ([], 0)


def _allowed_ranges(
    shown: Sequence[Sequence[int]], weights: Sequence[int], others: int, counts_everywhere: bool
) -> list[tuple[float, float]]:
    """The mean clock, or that of each cluster, if the counter counts on one kind of core only.

    The mean depends on how busy the clusters were; where that is unknown, it may be anything.
    """
    ranges = [(float(min(clocks)), float(max(clocks))) for clocks in shown if clocks]
    lows, highs = zip(*ranges, strict=True)
    if len(ranges) == 1:
        return ranges
    if len(ranges) != len(weights):
        return [(min(lows), max(highs))]
    mean = _own_mean(lows, weights, others, -1), _own_mean(highs, weights, others, 1)
    return [*(() if counts_everywhere else ranges), mean]


def _own_mean(clocks: Sequence[float], weights: Sequence[int], others: int, sign: int) -> float:
    """The lowest (-1) or highest (1) mean clock of the run, wherever the other work ran."""
    own = list(weights)
    for index in sorted(range(len(own)), key=lambda index: sign * clocks[index]):
        taken = min(own[index], others)
        own[index], others = own[index] - taken, others - taken
    return float(np.average(clocks, weights=own)) if any(own) else float(clocks[0])


def cycle_mismatch(blocks: Sequence[ClockBlock]) -> CycleMismatch | None:
    """What the counted cycles contradict; None if they agree with the shown clocks."""
    off = [block for block in blocks if abs(block.difference) > COUNTED_CHANGE_MAX]
    if len(off) < max(2, OFF_SHARE_MIN * len(blocks)):
        return None
    worst = max(off, key=lambda block: abs(block.difference))
    return CycleMismatch(worst.khz, worst.shown_khz, len(off) / len(blocks), off[0].start_ns)


def lost_share(blocks: Sequence[ClockBlock]) -> float:
    """By how much the counted clock stayed below what was shown, over the whole run."""
    return max(0.0, -fmean(block.difference for block in blocks)) if blocks else 0.0


def _shown(clocks: Sequence[int | None], first: int, last: int) -> list[int]:
    """All clocks shown in some rows, and right before and after them."""
    return [khz for khz in clocks[max(first - 1, 0) : last + 2] if khz]
