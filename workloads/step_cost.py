"""The cost of one step of a case, operation by operation: arithmetic, memory traffic, memory.

A multiply-add counts as two FLOPs. Bytes assume that every operand is read once and every result
is written once, which is the least possible memory traffic.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from workloads.protocol.base import WireModel

Backend = Literal["cpu", "opencl"]  # which processor of the phone computes
FLOAT_BYTES = 4

# Operations of one kind reach about the same share of a core's peak; models of phones are keyed
# by kind.
OpKind = Literal[
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
    "gather",  # rows read by index, and gradients added by index
    "loss",
    "update",  # the optimizer's pass over parameters, gradients and its state
]


class Op(WireModel):
    """One operation of a step; a step lists its operations in the order of execution."""

    name: str
    kind: OpKind
    flops: int
    read_bytes: int
    write_bytes: int
    # parts of the same size, each of which needs the one before: a GPU starts them one by one
    time_steps: int = 1


@dataclass(frozen=True)
class StepCost:
    """What one step of a case costs."""

    ops: tuple[Op, ...]
    training: bool
    samples_per_step: int
    parameter_bytes: int  # parameters, gradients and the optimizer's state
    activation_bytes: int
    parameters: int | None = None  # of the model, including frozen ones; None: there is no model
    macs: int | None = None  # multiply-adds of the forward operations of one step
    batches: int = 1  # in the data set: every sample was seen after this many steps
    tokens_per_step: int = 0  # that the model predicts; 0: it is not a language model

    @property
    def flops(self) -> int:
        """Floating-point operations of one step."""
        return sum(op.flops for op in self.ops)


class Step(ABC):
    """What a workload repeats: its cost, and its identity."""

    @property
    @abstractmethod
    def cost(self) -> StepCost:
        """The cost of one step."""

    @property
    @abstractmethod
    def identity(self) -> Any:
        """What a case's digest covers besides the cost: hyper-parameters, data. None: nothing."""
