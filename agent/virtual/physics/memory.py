"""Memory under pressure: what fits, what is swapped, and what the kernel kills.

Swap is compressed memory: what is pushed out comes back several times a step, so a little too much
costs several times the speed, not a little of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from agent.virtual.engines import Engine
from agent.virtual.physics.roofline import Op
from agent.virtual.profiles import MemoryProfile

Outcome = Literal["fits", "swaps", "killed", "never starts"]

# Of what is at rest, this share can be pushed out to make room before anybody is killed; a
# compressed page takes about a third of its room. Both as zram phones behave; invented.
_RECLAIM_SHARE = 0.5
_COMPRESSED = 0.36
_ZRAM_GBS = 0.7  # out and in again, one core compressing
_TOUCHES = 2.0  # forward writes what backward reads


@dataclass(frozen=True, slots=True)
class Pressure:
    """What becomes of a process that wants so much."""

    outcome: Outcome
    swapped_kb: int = 0
    extra_s: float = 0.0  # of each step, spent moving pages


def needs_kb(engine: Engine, ops: Iterable[Op], parameter_bytes: int, activation_bytes: int) -> int:
    """Peak resident memory of a process that trains."""
    held = engine.parameter_copies * parameter_bytes + engine.activation_copies * activation_bytes
    for op in ops if engine.written_copies else ():
        if op.kind not in engine.in_place_kinds:
            held += engine.written_copies * op.write_bytes
        if op.kind == "conv":
            held += engine.columns_mb_per_gflop * op.flops / 1e9 * 1024**2
    return round(engine.memory_base_mb * 1024 + held / 1024)


def pressure(
    memory: MemoryProfile, free_kb: int, needed_kb: int, takes_all_first: bool = False
) -> Pressure:
    """Fit, swap, or be killed: by the allocator at once, or by the kernel in the middle."""
    if needed_kb <= free_kb:
        return Pressure("fits")
    swapped = needed_kb - free_kb
    room = min(memory.swap_kb, int(_RECLAIM_SHARE * free_kb / _COMPRESSED))
    if swapped > room:
        hopeless = takes_all_first or needed_kb > memory.total_kb + memory.swap_kb
        return Pressure("never starts" if hopeless else "killed", swapped)
    return Pressure("swaps", swapped, _TOUCHES * swapped / 1024**2 / _ZRAM_GBS)
