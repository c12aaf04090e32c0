"""The body of a plan: tensors and operations, and their text form.

The grammar of the text is in kernels/engine/engine.h. Tensors are numbered in the order of their
creation; a view is a tensor over the bytes of another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from workloads.data_columns import DataColumn, ElementType
from workloads.layers.layer import Shape
from workloads.step_cost import Backend

Arena = Literal["parameter", "gradient", "state", "activation", "input"]
Phase = Literal["load", "forward", "backward", "update", "evaluate"]

ARENAS: tuple[Arena, ...] = ("parameter", "gradient", "state", "activation", "input")
ELEMENT_BYTES: dict[ElementType, int] = {"float": 4, "index": 4, "byte": 1}
ALIGNMENT: dict[Backend, int] = {"cpu": 64, "opencl": 512}  # bytes; 512 satisfies any GPU
SEED = 17  # of initial values, data and dropout; EMDL'21 used it
NO_ENTRY = -1  # the operation belongs to none in the plan's header


@dataclass(frozen=True)
class Initializer:
    """The values of a tensor before the first step."""

    kind: Literal["none", "zero", "constant", "uniform", "normal"] = "none"
    value: float = 0.0

    def __str__(self) -> str:
        return self.kind if self.kind in ("none", "zero") else f"{self.kind} {_real(self.value)}"


@dataclass(eq=False)
class Tensor:
    """Values of one type and shape; a view has a base, whose memory it uses."""

    number: int
    name: str
    shape: Shape
    type: ElementType = "float"
    arena: Arena = "activation"
    init: Initializer = field(default_factory=Initializer)
    base: "Tensor | None" = None
    exclusive: bool = False  # its memory is never shared
    offset: int = 0

    @property
    def root(self) -> "Tensor":
        """The tensor that owns the memory."""
        return self if self.base is None else self.base.root

    @property
    def bytes(self) -> int:
        """The size without padding."""
        return ELEMENT_BYTES[self.type] * prod(self.shape)


@dataclass(frozen=True)
class DataStream:
    """A column of the data set in memory, with the shape of one sample."""

    column: DataColumn
    count: int
    shape: Shape

    @property
    def bytes(self) -> int:
        """The size in memory."""
        return ELEMENT_BYTES[self.column.type] * self.count * prod(self.shape)


@dataclass(frozen=True)
class PlanOp:
    """One operation of the engine."""

    phase: Phase
    entry: int  # number of the header's operation that this is part of
    kind: str
    ins: tuple[Tensor | None, ...]
    outs: tuple[Tensor | None, ...]
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()

    @property
    def operands(self) -> Iterator[Tensor]:
        """Every tensor that it reads or writes."""
        return (tensor for tensor in (*self.ins, *self.outs) if tensor is not None)


@dataclass
class PlanBody:
    """Tensors, and operations in the order of execution."""

    samples: int
    training: bool
    evaluate: int = 0
    backend: Backend = "cpu"
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[PlanOp] = field(default_factory=list)
    streams: list[DataStream] = field(default_factory=list)
    loss: Tensor | None = None
    inputs: list[dict[str, Tensor]] = field(default_factory=list)  # of each pass, by name
    # Header operations without an operation here, because another one computes them as well.
    covered: set[int] = field(default_factory=set)
    arenas: dict[Arena, int] = field(default_factory=dict)

    def add_tensor(
        self,
        name: str,
        shape: Shape,
        type: ElementType = "float",
        arena: Arena = "activation",
        init: Initializer | None = None,
        exclusive: bool = False,
    ) -> Tensor:
        init = init or Initializer()
        tensor = Tensor(len(self.tensors), name, shape, type, arena, init, exclusive=exclusive)
        self.tensors.append(tensor)
        return tensor

    def add_view(self, base: Tensor, shape: Shape) -> Tensor:
        """Add a tensor over the values of another, under another shape."""
        view = Tensor(len(self.tensors), base.name, shape, base.type, base.arena, base=base)
        self.tensors.append(view)
        return view

    def stream_number(self, stream: DataStream) -> int:
        """Return the number of a stream; add it if it is new."""
        if stream not in self.streams:
            self.streams.append(stream)
        return self.streams.index(stream)

    def text(self, case: str, threads: int) -> str:
        """Return the body as the engine reads it."""
        return "\n".join(self._lines(case, threads)) + "\n"

    def _lines(self, case: str, threads: int) -> Iterator[str]:
        yield "farmhand-body 1"
        yield f"case {case}"
        yield f"backend {self.backend}"
        yield f"threads {threads}"
        yield f"training {int(self.training)}"
        yield f"samples {self.samples}"
        yield f"seed {SEED}"
        yield f"evaluate {self.evaluate}"
        for arena in ARENAS:
            yield f"arena {arena} {self.arenas.get(arena, 0)}"
        for number, stream in enumerate(self.streams):
            column = stream.column
            words = ["stream", number, column.type, stream.count, *_shape(stream.shape)]
            words += [column.generator, *column.ints, "|", *map(_real, column.floats)]
            yield _joined(words)
        for tensor in self.tensors:
            words = ["tensor", tensor.number, tensor.type, tensor.arena, tensor.offset]
            yield _joined([*words, *_shape(tensor.shape), tensor.init])
        for op in self.ops:
            words = ["op", op.phase, op.entry, op.kind, *_numbers(op.ins), ":"]
            words += [*_numbers(op.outs), ":", *op.ints, ":", *map(_real, op.floats)]
            yield _joined(words)
        yield f"loss {NO_ENTRY if self.loss is None else self.loss.number}"
        yield "end"


def _joined(words: Sequence[object]) -> str:
    return " ".join(map(str, words))


def _shape(shape: Shape) -> list[object]:
    return [len(shape), *shape]


def _numbers(tensors: Sequence[Tensor | None]) -> list[object]:
    return ["-" if tensor is None else tensor.number for tensor in tensors]


def _real(value: float) -> str:
    return f"{value:.9g}"
