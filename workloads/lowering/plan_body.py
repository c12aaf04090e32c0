"""The body of a plan while it is made, and as text (grammar: kernels/engine/engine.h).

Tensors are numbered as they are made; views are tensors over the bytes of another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from workloads.data import Column, Type
from workloads.layers.layer import Shape
from workloads.work import Backend

Arena = Literal["parameter", "gradient", "state", "activation", "input"]
Phase = Literal["load", "forward", "backward", "update", "evaluate"]

ARENAS: tuple[Arena, ...] = ("parameter", "gradient", "state", "activation", "input")
BYTES: dict[Type, int] = {"float": 4, "index": 4, "byte": 1}
ALIGNMENT: dict[Backend, int] = {"cpu": 64, "opencl": 512}  # bytes; what any GPU aligns to
SEED = 17  # of initial values, data and dropout: as EMDL'21 had it
NO_ENTRY = -1


@dataclass(frozen=True)
class Init:
    """What a tensor holds before the first step."""

    kind: Literal["none", "zero", "constant", "uniform", "normal"] = "none"
    value: float = 0.0

    def __str__(self) -> str:
        return self.kind if self.kind in ("none", "zero") else f"{self.kind} {_real(self.value)}"


@dataclass(eq=False)
class Tensor:
    """Values of one type and shape; a view has a base, and its memory."""

    number: int
    name: str
    shape: Shape
    type: Type = "float"
    arena: Arena = "activation"
    init: Init = field(default_factory=Init)
    base: "Tensor | None" = None
    kept: bool = False  # its memory is nobody else's, ever
    offset: int = 0

    @property
    def root(self) -> "Tensor":
        """Whose memory it is."""
        return self if self.base is None else self.base.root

    @property
    def bytes(self) -> int:
        """What it takes, without padding."""
        return BYTES[self.type] * prod(self.shape)


@dataclass(frozen=True)
class Stream:
    """A column of the data set, with the shape of one sample."""

    column: Column
    count: int
    shape: Shape

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return BYTES[self.column.type] * self.count * prod(self.shape)


@dataclass(frozen=True)
class BodyOp:
    """One operation of the engine."""

    phase: Phase
    entry: int
    kind: str
    ins: tuple[Tensor | None, ...]
    outs: tuple[Tensor | None, ...]
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()

    @property
    def operands(self) -> Iterator[Tensor]:
        """Every tensor that it touches."""
        return (each for each in (*self.ins, *self.outs) if each is not None)


@dataclass
class Body:
    """Tensors and operations in the order of execution."""

    samples: int
    training: bool
    evaluate: int = 0
    backend: Backend = "cpu"
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[BodyOp] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    loss: Tensor | None = None
    inputs: list[dict[str, Tensor]] = field(default_factory=list)  # of each pass, by name
    # Entries of the header that have no operation of their own, since another does them as well.
    covered: set[int] = field(default_factory=set)
    arenas: dict[Arena, int] = field(default_factory=dict)

    def tensor(
        self,
        name: str,
        shape: Shape,
        type: Type = "float",
        arena: Arena = "activation",
        init: Init | None = None,
        kept: bool = False,
    ) -> Tensor:
        """A new tensor."""
        made = Tensor(len(self.tensors), name, shape, type, arena, init or Init(), kept=kept)
        self.tensors.append(made)
        return made

    def view(self, of: Tensor, shape: Shape) -> Tensor:
        """The same values under another shape."""
        made = Tensor(len(self.tensors), of.name, shape, of.type, of.arena, base=of)
        self.tensors.append(made)
        return made

    def stream(self, stream: Stream) -> int:
        """The number of a stream; what is there already is not made twice."""
        if stream not in self.streams:
            self.streams.append(stream)
        return self.streams.index(stream)

    def text(self, case: str, threads: int) -> str:
        """The body as it is written."""
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
