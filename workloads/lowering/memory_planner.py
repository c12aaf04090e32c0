"""The memory planner: offsets in the arenas, from the lifetimes of tensors.

Two tensors share memory only if their lifetimes do not overlap, or if an operation computes one
from the other in place and supports that.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.lowering.plan_body import ALIGNMENT, ARENAS, PlanBody, PlanOp, Tensor

# Which output may use the memory of which input (the "=" of signatures, kernels/engine/cpu/ops.h).
_ACTIVATIONS = ("relu", "relu6", "tanh", "sigmoid", "leaky", "gelu", "dropout", "softmax")
_FUSED = ("", "_relu", "_relu6")  # the activation that a normalization computes as well
IN_PLACE: dict[str, tuple[int, int]] = {  # kind: (input, output)
    **{f"{name}_forward": (0, 0) for name in _ACTIVATIONS if name != "gelu"},
    **{f"{name}_gradient": (1, 0) for name in _ACTIVATIONS},
    **{f"batch_norm{name}_inference": (0, 0) for name in _FUSED},
    **{f"batch_norm{name}_gradient": (1, 2) for name in _FUSED},
    "layer_norm_input_gradient": (1, 0),
    "softmax_cross_entropy_gradient": (0, 0),
    "add": (0, 0),
    "copy_scaled": (0, 0),
    "position_add": (0, 0),
    "channel_bias": (0, 0),
    "td_target": (0, 0),
}


@dataclass(frozen=True)
class MemoryBreakdown:
    """The bytes of a plan by kind; the engine adds its workspace."""

    parameter: int
    gradient: int
    state: int
    activation: int
    input: int
    dataset: int

    @property
    def planned(self) -> int:
        """The sum of all kinds."""
        parts = (self.parameter, self.gradient, self.state, self.activation, self.input)
        return sum(parts) + self.dataset


@dataclass
class MemoryBlock:
    """Bytes that are in use from the operation `first` to the operation `last`, inclusive."""

    bytes: int
    first: int
    last: int
    offset: int = 0


def plan_memory(body: PlanBody, reuse: bool = True) -> None:
    """Set the offset of every tensor and the size of every arena."""
    blocks = _blocks(body, reuse)
    for arena in ARENAS:
        distinct = {id(block): block for tensor, block in blocks.items() if tensor.arena == arena}
        body.arenas[arena] = pack(list(distinct.values()), ALIGNMENT[body.backend])
    for tensor in body.tensors:
        tensor.offset = blocks[tensor.root].offset


def body_memory(body: PlanBody) -> MemoryBreakdown:
    """Return the memory of a planned body."""
    return MemoryBreakdown(
        **{arena: body.arenas[arena] for arena in ARENAS},
        dataset=sum(_aligned(stream.bytes, ALIGNMENT["cpu"]) for stream in body.streams),
    )


def live_blocks(body: PlanBody) -> list[MemoryBlock]:
    """Return the blocks of all tensors, with the operations during which they are in use."""
    return list({id(block): block for block in _blocks(body, reuse=True).values()}.values())


def pack(blocks: Sequence[MemoryBlock], alignment: int = ALIGNMENT["cpu"]) -> int:
    """Set offsets so that blocks in use at the same time do not overlap; return the total size.

    Largest block first, each into the tightest gap between the blocks in use at the same time.
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted
    size = 0
    for block in sorted(blocks, key=lambda block: (-block.bytes, block.first, block.last)):
        need, first, last = _aligned(block.bytes, alignment), block.first, block.last
        best, tightest, end = -1, 0, 0
        for other_offset, other_end, other_first, other_last in placed:
            if other_last < first or last < other_first:
                continue
            gap = other_offset - end
            if gap >= need and (best < 0 or gap < tightest):
                best, tightest = end, gap
            end = max(end, other_end)
        block.offset = end if best < 0 else best
        insort(placed, (block.offset, block.offset + need, first, last))
        size = max(size, block.offset + need)
    return size


def _blocks(body: PlanBody, reuse: bool) -> dict[Tensor, MemoryBlock]:
    """Return the block of every tensor that is not a view; in-place results share their input's."""
    uses: dict[Tensor, list[int]] = {tensor.root: [] for tensor in body.tensors}
    for index, op in enumerate(body.ops):
        for tensor in op.operands:
            uses[tensor.root].append(index)
    blocks: dict[Tensor, MemoryBlock] = {}
    for tensor, times in uses.items():
        can_share = tensor.arena in ("activation", "gradient") and not tensor.exclusive
        limited = reuse and times and can_share
        first, last = (times[0], times[-1]) if limited else (0, len(body.ops))
        blocks[tensor] = MemoryBlock(tensor.bytes, first, last)
    if reuse:
        for index, op in enumerate(body.ops):
            _join_in_place(blocks, index, op)
    return blocks


def _join_in_place(blocks: dict[Tensor, MemoryBlock], index: int, op: PlanOp) -> None:
    if op.kind not in IN_PLACE:
        return
    source, result = op.ins[IN_PLACE[op.kind][0]], op.outs[IN_PLACE[op.kind][1]]
    if source is None or result is None or source.root is result.root:
        return
    before, after = blocks[source.root], blocks[result.root]
    fits = before.bytes == after.bytes and source.root.arena == result.root.arena == "activation"
    if fits and before.last == index == after.first and not source.root.exclusive:
        before.last = after.last
        blocks[result.root] = before


def _aligned(count: int, alignment: int) -> int:
    return -(-count // alignment) * alignment
