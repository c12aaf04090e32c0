"""The planner: who lives when, and therefore who may have whose bytes.

Two tensors share memory only if no operation touches one while the other is still needed; or if one
is made from the other in place, which an operation has to allow.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.lowering.body import ALIGNMENT, ARENAS, Body, BodyOp, Tensor

# Which output of an operation may be the memory of which input (the "=" of cpu/ops.h).
_SLOPES = ("relu", "relu6", "tanh", "sigmoid", "leaky", "gelu", "dropout", "softmax")
_NORMS = ("", "_relu", "_relu6")  # with the function behind them
IN_PLACE: dict[str, tuple[int, int]] = {  # kind: (input, output)
    **{f"{name}_forward": (0, 0) for name in _SLOPES if name != "gelu"},
    **{f"{name}_gradient": (1, 0) for name in _SLOPES},
    **{f"batch_norm{name}_inference": (0, 0) for name in _NORMS},
    **{f"batch_norm{name}_gradient": (1, 2) for name in _NORMS},
    "layer_norm_input_gradient": (1, 0),
    "softmax_cross_entropy_gradient": (0, 0),
    "add": (0, 0),
    "copy_scaled": (0, 0),
    "position_add": (0, 0),
    "channel_bias": (0, 0),
    "td_target": (0, 0),
}


@dataclass(frozen=True)
class Memory:
    """Bytes that a plan takes, by kind; the engine adds its workspace."""

    parameter: int
    gradient: int
    state: int
    activation: int
    input: int
    dataset: int

    @property
    def planned(self) -> int:
        """All of it."""
        parts = (self.parameter, self.gradient, self.state, self.activation, self.input)
        return sum(parts) + self.dataset


@dataclass
class Block:
    """Bytes that are needed from one operation to another, both included."""

    bytes: int
    first: int
    last: int
    offset: int = 0


def plan_memory(body: Body, reuse: bool = True) -> None:
    """Give every tensor its offset, and every arena its size."""
    blocks = _blocks(body, reuse)
    for arena in ARENAS:
        own = {id(block): block for tensor, block in blocks.items() if tensor.arena == arena}
        body.arenas[arena] = pack(list(own.values()), ALIGNMENT[body.backend])
    for tensor in body.tensors:
        tensor.offset = blocks[tensor.root].offset


def memory_of_body(body: Body) -> Memory:
    """What a planned body takes."""
    return Memory(
        **{arena: body.arenas[arena] for arena in ARENAS},
        dataset=sum(_aligned(stream.bytes, ALIGNMENT["cpu"]) for stream in body.streams),
    )


def pack(blocks: Sequence[Block], alignment: int = ALIGNMENT["cpu"]) -> int:
    """Set offsets so that blocks that live at the same time do not overlap; answer the size.

    Largest first, each into the tightest gap between those that are there while it lives.
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted
    size = 0
    for block in sorted(blocks, key=lambda each: (-each.bytes, each.first, each.last)):
        need, first, last = _aligned(block.bytes, alignment), block.first, block.last
        best, tightest, end = -1, 0, 0
        for offset, its_end, its_first, its_last in placed:
            if its_last < first or last < its_first:
                continue
            gap = offset - end
            if gap >= need and (best < 0 or gap < tightest):
                best, tightest = end, gap
            end = max(end, its_end)
        block.offset = end if best < 0 else best
        insort(placed, (block.offset, block.offset + need, first, last))
        size = max(size, block.offset + need)
    return size


def _blocks(body: Body, reuse: bool) -> dict[Tensor, Block]:
    """The memory of every tensor that is no view; those made in place have that of their input."""
    end = len(body.ops)
    uses: dict[Tensor, list[int]] = {tensor.root: [] for tensor in body.tensors}
    for at, op in enumerate(body.ops):
        for tensor in op.operands:
            uses[tensor.root].append(at)
    blocks: dict[Tensor, Block] = {}
    for tensor, times in uses.items():
        shared = reuse and times and tensor.arena in ("activation", "gradient") and not tensor.kept
        first, last = (times[0], times[-1]) if shared else (0, end)
        blocks[tensor] = Block(tensor.bytes, first, last)
    if reuse:
        for at, op in enumerate(body.ops):
            _join_in_place(blocks, at, op)
    return blocks


def _join_in_place(blocks: dict[Tensor, Block], at: int, op: BodyOp) -> None:
    if op.kind not in IN_PLACE:
        return
    source, result = op.ins[IN_PLACE[op.kind][0]], op.outs[IN_PLACE[op.kind][1]]
    if source is None or result is None or source.root is result.root:
        return
    before, after = blocks[source.root], blocks[result.root]
    fits = before.bytes == after.bytes and source.root.arena == result.root.arena == "activation"
    if fits and before.last == at == after.first and not source.root.kept:
        before.last = after.last
        blocks[result.root] = before


def _aligned(count: int, alignment: int) -> int:
    return -(-count // alignment) * alignment
