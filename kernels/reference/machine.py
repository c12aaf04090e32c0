"""Executes a plan: parses its body and runs its operations by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BYTES = {"float": 4, "index": 4, "byte": 1}
NUMPY = {"float": "<f4", "index": "<i4", "byte": "u1"}


@dataclass(frozen=True)
class ParsedTensor:
    """One `tensor` line."""

    type: str
    arena: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ParsedOp:
    """One `op` line."""

    phase: str
    entry: int
    kind: str
    ins: tuple[int | None, ...]
    outs: tuple[int | None, ...]
    ints: tuple[int, ...]
    floats: tuple[float, ...]


@dataclass
class Plan:
    """The content of a body."""

    tensors: list[ParsedTensor] = field(default_factory=list)
    ops: list[ParsedOp] = field(default_factory=list)
    loss: int = -1

    def place(self, number: int | None) -> tuple[str, int] | None:
        """Return where a tensor is; views of it are at the same place."""
        return None if number is None else (self.tensors[number].arena, self.tensors[number].offset)


def relative_error(found: Array, expected: Array, scale: float | None = None) -> float:
    """Return the largest error, relative to the largest value."""
    if scale is None:
        scale = float(np.abs(expected).max(initial=0.0))
    return float(np.abs(found - expected).max(initial=0.0)) / max(scale, 1e-6)


def parse(text: str) -> Plan:
    """Parse a body."""
    plan = Plan()
    for line in text.splitlines():
        words = line.split(" ")
        if words[0] == "tensor":
            rank = int(words[5])
            shape = tuple(map(int, words[6 : 6 + rank]))
            plan.tensors.append(ParsedTensor(words[2], words[3], int(words[4]), shape))
        elif words[0] == "op":
            ins, outs, ints, floats = _groups(words[4:])
            plan.ops.append(
                ParsedOp(
                    words[1],
                    int(words[2]),
                    words[3],
                    tuple(None if word == "-" else int(word) for word in ins),
                    tuple(None if word == "-" else int(word) for word in outs),
                    tuple(map(int, ints)),
                    tuple(map(float, floats)),
                )
            )
        elif words[0] == "loss":
            plan.loss = int(words[1])
    return plan


def _groups(words: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            groups.append([])
        elif word:
            groups[-1].append(word)
    return groups


def read_dump(content: bytes, plan: Plan) -> list[list[Array]]:
    """Return every tensor at every point in time of a dump, in its own precision."""
    size = 8 + sum(BYTES[each.type] * int(np.prod(each.shape)) for each in plan.tensors)
    assert len(content) % size == 0, f"{len(content)} bytes are not moments of {size} bytes"
    moments: list[list[Array]] = []
    for moment in range(len(content) // size):
        at = moment * size
        assert moment == int.from_bytes(content[at : at + 8], "little")
        at += 8
        values: list[Array] = []
        for each in plan.tensors:
            count = int(np.prod(each.shape))
            flat = np.frombuffer(content, NUMPY[each.type], count, at)
            values.append(flat.reshape(each.shape))
            at += flat.nbytes
        moments.append(values)
    return moments


class Machine:
    """Executes a plan in which no two tensors share memory except as views."""

    def __init__(self, plan: Plan, values: Sequence[Array]) -> None:
        self.plan = plan
        self.steps = 0
        self._memory: dict[tuple[str, int], Array] = {}
        for number, value in enumerate(values):
            self[number] = value

    def __getitem__(self, number: int) -> Array:
        tensor = self.plan.tensors[number]
        return self._memory[tensor.arena, tensor.offset].reshape(tensor.shape)

    def __setitem__(self, number: int, value: Array) -> None:
        tensor = self.plan.tensors[number]
        assert value.shape == tensor.shape, f"{number}: {value.shape} for {tensor.shape}"
        self._memory[tensor.arena, tensor.offset] = value.ravel().astype(np.float64)

    def step(self, seen: Sequence[Array], phases: Sequence[str] = ()) -> None:
        """Run one step; loaded batches and dropout masks are taken from the engine."""
        for op in self.plan.ops:
            if not phases or op.phase in phases:
                self.run(op, seen)
        self.steps += 1

    def run(self, op: ParsedOp, seen: Sequence[Array]) -> None:
        """Run one operation; a loaded batch and a dropout mask are taken from the engine."""
        if op.kind == "load":
            assert op.outs[0] is not None
            self[op.outs[0]] = seen[op.outs[0]]
            return
        ins = [None if number is None else self[number] for number in op.ins]
        if op.kind == "dropout_forward":
            assert op.outs[1] is not None
            ins.append(seen[op.outs[1]].astype(np.float64))
        call = Call(op, ins, [self._shape(number) for number in op.outs], self.steps)
        for number, value in zip(op.outs, KINDS[op.kind](call), strict=True):
            if number is not None:
                assert value is not None
                self[number] = value

    def _shape(self, number: int | None) -> tuple[int, ...]:
        return () if number is None else self.plan.tensors[number].shape


@dataclass
class Call:
    """One operation with its operands."""

    op: ParsedOp
    given: list[Array | None]
    shapes: list[tuple[int, ...]]
    step: int

    def __getitem__(self, index: int) -> Array:
        value = self.given[index]
        assert value is not None
        return value

    @property
    def labels(self) -> NDArray[np.int64]:
        """Return the second operand as indices."""
        return self[1].astype(np.int64)


Results = tuple[Array | None, ...]
KINDS: dict[str, Callable[[Call], Results]] = {}


def kind(*names: str) -> Callable[[Callable[[Call], Results]], Callable[[Call], Results]]:
    """Register the function of an operation."""

    def mark(function: Callable[[Call], Results]) -> Callable[[Call], Results]:
        KINDS.update(dict.fromkeys(names, function))
        return function

    return mark


def rows(x: Array) -> Array:
    """Return x with all axes but the last merged."""
    return x.reshape(-1, x.shape[-1])
