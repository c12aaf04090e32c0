"""Work: what one step of a case asks of a phone, operation by operation.

FLOPs count a multiply-add as two. Bytes are what has to move if every operand is read once and
every result is written once: the least that the memory can be asked for.
"""

from dataclasses import dataclass
from typing import Literal

from workloads.noun import Noun

FLOAT_BYTES = 4

# Operations of one kind reach about the same share of a core's peak; a phone's model keys on them.
Kind = Literal[
    "conv",  # a window of more than one pixel, over all channels of its group
    "pointwise",  # a window of one pixel: a matrix product on an image
    "depthwise",  # one channel in, one channel out: little arithmetic per byte
    "matmul",
    "reduce",  # sums over the batch, such as a bias gradient
    "elementwise",
    "pool",
    "norm",
    "softmax",
    "copy",  # concatenation and its reverse: no arithmetic at all
    "gather",  # rows picked by index, and added back by index
    "loss",
    "update",  # the optimizer's pass over parameters, gradients and its own state
]


class Op(Noun):
    """One operation of one step, in the order of execution."""

    name: str
    kind: Kind
    flops: int
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True)
class Work:
    """What one step of a case asks of a phone."""

    ops: tuple[Op, ...]
    training: bool
    samples_per_step: int
    parameter_bytes: int
    activation_bytes: int

    @property
    def flops(self) -> int:
        """Arithmetic of one step."""
        return sum(op.flops for op in self.ops)

    @property
    def bytes(self) -> int:
        """Least memory traffic of one step."""
        return sum(op.read_bytes + op.write_bytes for op in self.ops)
