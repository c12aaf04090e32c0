"""Memory pressure: whether a process fits, is swapped, or is killed by the kernel.

Swap is compressed memory (zram): swapped pages come back several times per step, so a little too
much memory costs a multiple of the step time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from agent.virtual.engines import EngineModel
from agent.virtual.physics.step_timing import SimulatedOp
from agent.virtual.profiles import MemoryProfile


class PressureOutcome(StrEnum):
    """The outcome for a process that needs a given amount of memory."""

    FITS = "fits"
    SWAPS = "swaps"
    KILLED = "killed"  # by the kernel, in mid-run
    NEVER_STARTS = "never starts"  # the allocation fails


# Share of the memory in use that can be swapped out before a process is killed, and the size of a
# compressed page relative to its original. Typical of phones with zram; both are invented.
_RECLAIM_SHARE = 0.5
_COMPRESSED_SHARE = 0.36
_ZRAM_GBS = 0.7  # out and in again, with one core compressing
_SWAP_PASSES_PER_STEP = 2.0  # the forward pass writes what the backward pass reads


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """The outcome, and its cost if the process swaps."""

    outcome: PressureOutcome
    swapped_kb: int = 0
    extra_s: float = 0.0  # per step, spent moving pages


def peak_memory_kb(
    engine: EngineModel, ops: Iterable[SimulatedOp], parameter_bytes: int, activation_bytes: int
) -> int:
    """Return the peak resident memory of a process that trains."""
    needed_bytes = (
        engine.parameter_copies * parameter_bytes + engine.activation_copies * activation_bytes
    )
    for op in ops if engine.output_copies else ():
        if op.kind not in engine.in_place_kinds:
            needed_bytes += engine.output_copies * op.write_bytes
        if op.kind == "conv":
            needed_bytes += engine.im2col_mb_per_gflop * op.flops / 1e9 * 1024**2
    return round(engine.memory_base_mb * 1024 + needed_bytes / 1024)


def assess_memory(
    memory: MemoryProfile, available_kb: int, needed_kb: int, allocates_upfront: bool = False
) -> MemoryPressure:
    """Decide what happens to a process that needs some memory."""
    if needed_kb <= available_kb:
        return MemoryPressure(PressureOutcome.FITS)
    swapped_kb = needed_kb - available_kb
    swap_room_kb = min(memory.swap_kb, int(_RECLAIM_SHARE * available_kb / _COMPRESSED_SHARE))
    if swapped_kb > swap_room_kb:
        can_never_start = allocates_upfront or needed_kb > memory.total_kb + memory.swap_kb
        outcome = PressureOutcome.NEVER_STARTS if can_never_start else PressureOutcome.KILLED
        return MemoryPressure(outcome, swapped_kb)
    return MemoryPressure(
        PressureOutcome.SWAPS, swapped_kb, _SWAP_PASSES_PER_STEP * swapped_kb / 1024**2 / _ZRAM_GBS
    )
