"""What a plan knows of each operation before it runs: what it waits for, and the memory in use."""

from itertools import accumulate
from typing import NamedTuple

from workloads.lowering.memory_planner import live_blocks
from workloads.lowering.plan_body import NO_ENTRY, PlanBody, Tensor


class PlannedOp(NamedTuple):
    """One operation of the plan's header."""

    needs: tuple[int, ...]  # numbers of the operations whose results it reads
    live_bytes: int  # of all tensors in use while it runs


def planned_ops(body: PlanBody, count: int) -> tuple[PlannedOp, ...]:
    """Return the operations of a body by their number in the header, which has `count`."""
    needs: list[set[int]] = [set() for _ in range(count)]
    peaks = [0] * count
    written: dict[Tensor, int] = {}
    for op, live in zip(body.ops, _live_bytes(body), strict=True):
        if op.entry == NO_ENTRY:
            continue
        peaks[op.entry] = max(peaks[op.entry], live)
        sources = {written[t.root] for t in op.ins if t is not None and t.root in written}
        needs[op.entry] |= sources - {op.entry}
        written |= {tensor.root: op.entry for tensor in op.outs if tensor is not None}
    # An operation that another one computes as well has the memory of the one before it.
    for entry in range(1, count):
        peaks[entry] = peaks[entry] or peaks[entry - 1]
    return tuple(PlannedOp(tuple(sorted(of)), live) for of, live in zip(needs, peaks, strict=True))


def _live_bytes(body: PlanBody) -> list[int]:
    """Return the bytes in use during each operation of the body."""
    changes = [0] * (len(body.ops) + 1)
    for block in live_blocks(body):
        changes[block.first] += block.bytes
        if block.last < len(body.ops):
            changes[block.last + 1] -= block.bytes
    return list(accumulate(changes))[: len(body.ops)]
