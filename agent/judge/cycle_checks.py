"""The clock by the cycles that the processor counted, compared with the clocks that it shows. Pure.

Clock nodes show the clock that a driver requested. Counted cycles show what the cores executed,
also under a limit of the firmware or a driver that reports a false clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.collect.cpu_usage import CYCLES, parse_cycles
from agent.collect.readings import Readings
from agent.collect.run_probe import RunProbe

COUNTED_CHANGE_MAX = 0.02
BLOCKS_MAX, BLOCKS_MIN = 20, 3
OFF_SHARE_MIN = 0.1  # of the blocks
COUNTED_NS_MIN = 20_000_000  # per block

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
    """The counted clock of a part of a run, and the lowest and the highest that was shown."""

    start_ns: int
    khz: float
    low_khz: int
    high_khz: int

    @property
    def shown_khz(self) -> int:
        """The shown clock that is nearest to the counted one."""
        return self.low_khz if self.khz < self.low_khz else self.high_khz

    @property
    def difference(self) -> float:
        """How far the counted clock is outside of what was shown; 0 within it."""
        inside = self.low_khz <= self.khz <= self.high_khz
        return 0.0 if inside else self.khz / self.shown_khz - 1


def clock_blocks(probe: RunProbe, timed: Readings) -> list[ClockBlock]:
    """Divide a run into blocks; empty where cycles or clocks cannot be read."""
    rows: list[tuple[int, CountedCycles]] = []
    for row, value in enumerate(timed.parsed(CYCLES, parse_cycles)):
        if value is not None and (not rows or value != rows[-1][1]):
            rows.append((row, value))
    clocks = [timed.numbers(node) for node in probe.clock_nodes]
    count = min(BLOCKS_MAX, len(rows) - 1)
    if count < BLOCKS_MIN or not clocks:
        return []
    edges = [rows[(len(rows) - 1) * index // count] for index in range(count + 1)]
    blocks = []
    for (first, before), (last, after) in pairwise(edges):
        cycles, ns = after[0] - before[0], after[1] - before[1]
        shown = _shown(clocks, first, last)
        if cycles > 0 and ns >= COUNTED_NS_MIN and shown:
            khz = cycles * 1e6 / ns
            blocks.append(ClockBlock(timed.t_ns[first], khz, min(shown), max(shown)))
    return blocks


def cycle_mismatch(blocks: Sequence[ClockBlock]) -> CycleMismatch | None:
    """What the counted cycles contradict; None if they agree with the shown clocks."""
    off = [block for block in blocks if abs(block.difference) > COUNTED_CHANGE_MAX]
    if len(off) < max(2, OFF_SHARE_MIN * len(blocks)):
        return None
    worst = max(off, key=lambda block: abs(block.difference))
    return CycleMismatch(worst.khz, worst.shown_khz, len(off) / len(blocks), off[0].start_ns)


def _shown(clocks: Sequence[Sequence[int | None]], first: int, last: int) -> list[int]:
    """All clocks shown in some rows, and right before and after them."""
    rows = slice(max(first - 1, 0), last + 2)
    return [khz for column in clocks for khz in column[rows] if khz]
