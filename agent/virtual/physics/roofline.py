"""How long one step of work takes: per operation the slower of arithmetic and memory.

Times come from the plan's own counts and the pace of the cores; nothing is executed.
"""

from dataclasses import dataclass

# Share of the matrix-product rate that other kinds of work reach on these cores. Invented.
_KIND_RATE = {"matmul": 1.0, "conv": 0.82, "conv2d": 0.82, "depthwise": 0.35, "elementwise": 0.25}
_OTHER_RATE = 0.4
# A core that waits for memory still draws this share of its switching power. Invented.
_STALL_POWER = 0.55


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a step, as the plan lists it."""

    name: str
    kind: str
    flops: float
    read_bytes: float
    write_bytes: float


@dataclass(frozen=True, slots=True)
class Pace:
    """What a piece of work may use just now."""

    gflops: float
    bandwidth_gbs: float
    cache_kb: float
    cache_gbs: float
    overhead_s: float


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step: how long, how hard the cores work, how much memory moves."""

    seconds: float
    activity: float
    gbs: float


def step_cost(ops: tuple[Op, ...], pace: Pace) -> StepCost:
    """Add up the operations of one step."""
    total = 0.0
    active = 0.0
    moved_gb = 0.0
    for op in ops:
        size = op.read_bytes + op.write_bytes
        fits = size <= pace.cache_kb * 1024
        arithmetic = op.flops / (pace.gflops * 1e9 * _KIND_RATE.get(op.kind, _OTHER_RATE))
        memory = size / ((pace.cache_gbs if fits else pace.bandwidth_gbs) * 1e9)
        slower = max(arithmetic, memory)
        total += slower + pace.overhead_s
        active += min(arithmetic, slower) + _STALL_POWER * (slower - arithmetic)
        moved_gb += 0.0 if fits else size / 1e9
    total = max(total, 1e-9)
    return StepCost(total, min(1.0, active / total), moved_gb / total)
