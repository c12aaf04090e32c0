"""Work: what one step of a case asks of a phone, operation by operation.

FLOPs count a multiply-add as two. Bytes are what has to move if every operand is read once and
every result is written once: the least that the memory can be asked for.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal

from workloads.noun import Noun

Backend = Literal["cpu", "opencl"]  # who computes
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
    parameters: int | None = None  # of the model, the frozen ones included; None: no model
    macs: int | None = None  # multiply-adds of the forward operations of one step
    batches: int = 1  # in the data set: after so many steps every sample was seen

    @property
    def flops(self) -> int:
        """Arithmetic of one step."""
        return sum(op.flops for op in self.ops)

    @property
    def bytes(self) -> int:
        """Least memory traffic of one step."""
        return sum(op.read_bytes + op.write_bytes for op in self.ops)


class Step(ABC):
    """What is done over and over: its price, and what tells it from any other."""

    @property
    @abstractmethod
    def work(self) -> Work:
        """What one step asks of a phone."""

    @property
    @abstractmethod
    def meaning(self) -> Any:
        """What a digest has to cover besides the prices: hyper-parameters, data; None: nothing."""


def meaning_of(value: Any) -> Any:
    """A definition as JSON-like content; what stands at its default is left out.

    So a new field with a default changes no digest of what was there before it.
    """
    if is_dataclass(value):
        found = {each.name: getattr(value, each.name) for each in fields(value)}
        unsaid = {each.name: each.default for each in fields(value) if each.default is not MISSING}
        said = {
            key: meaning_of(item)
            for key, item in found.items()
            if key not in unsaid or item != unsaid[key]
        }
        return [type(value).__name__, said]
    if isinstance(value, Mapping):
        return {str(key): meaning_of(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [meaning_of(item) for item in value]
    return value
