"""How a step's data reach the device: five ways.

`copied` is what the study saw: every operation's operands go over and its results come back. The
others keep everything on the device, so that two operations may share a launch, and differ only in
how a batch gets there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.harness.device import Device
from kernels.harness.perceptron import Lesson, Operation, Perceptron, Tensor

Step = Callable[[int, "Events"], None]  # enqueue the step of this number


@dataclass
class Events:
    """What was enqueued since the last wait, kernels and copies apart."""

    kernels: list[Any] = field(default_factory=list)
    copies: list[Any] = field(default_factory=list)


def copied(net: Perceptron, lesson: Lesson) -> Step:
    """Operands over, launch, results back, each copy waited for: an operation as MNN does it."""
    x, labels = net.inputs(lesson.batch)
    operations = net.step(x, labels, apart=True)
    device = net.device

    def step(number: int, events: Events) -> None:
        x.host, labels.host = lesson.batch_at(number)
        for operation in operations:
            for tensor in operation.reads:
                events.copies.append(device.write(tensor.buffer, tensor.host))
                events.copies[-1].wait()
            events.kernels.append(operation.launch())
            for tensor in operation.writes:
                events.copies.append(device.read_into(tensor.host, tensor.buffer))

    return step


def resident(net: Perceptron, lesson: Lesson) -> Step:
    """Everything stays on the device; a batch is copied there before its step."""
    return _one_room(net, lesson, net.device.write, shared=False)


def mapped(net: Perceptron, lesson: Lesson) -> Step:
    """The same, with the batch written straight to where the device reads it."""
    return _one_room(net, lesson, net.device.write_mapped, shared=True)


def buffered(net: Perceptron, lesson: Lesson) -> Step:
    """Two rooms for batches: one is filled, on a queue of its own, while the other is used."""
    rooms = [net.inputs(lesson.batch) for _ in range(2)]
    steps = [net.step(*room) for room in rooms]
    free: list[list[Any] | None] = [None, None]

    def step(number: int, events: Events) -> None:
        at = number % 2
        content = lesson.batch_at(number)
        filled = [
            net.device.write_beside(tensor.buffer, values, free[at])
            for tensor, values in zip(rooms[at], content, strict=True)
        ]
        made = [steps[at][0].launch(filled), *_launch(steps[at][1:])]
        free[at] = made[-1:]
        events.copies += filled
        events.kernels += made

    return step


def preloaded(net: Perceptron, lesson: Lesson) -> Step:
    """The whole data set is on the device; a batch is a place in it."""
    x, labels = net.inputs(len(lesson.labels))
    _fill(net.device, (x, labels), (lesson.rows, lesson.labels))
    steps = [net.step(x, labels, number * lesson.batch) for number in range(lesson.batches)]

    def step(number: int, events: Events) -> None:
        events.kernels += _launch(steps[number % len(steps)])

    return step


WAYS: dict[str, Callable[[Perceptron, Lesson], Step]] = {
    "copied": copied,
    "resident": resident,
    "mapped": mapped,
    "buffered": buffered,
    "preloaded": preloaded,
}


def _one_room(
    net: Perceptron, lesson: Lesson, write: Callable[[Any, Any], Any], shared: bool
) -> Step:
    room = net.inputs(lesson.batch, shared)
    operations = net.step(*room)

    def step(number: int, events: Events) -> None:
        for tensor, values in zip(room, lesson.batch_at(number), strict=True):
            events.copies.append(write(tensor.buffer, values))
        events.kernels += _launch(operations)

    return step


def _launch(operations: Sequence[Operation]) -> list[Any]:
    return [operation.launch() for operation in operations]


def _fill(device: Device, room: Sequence[Tensor], content: Sequence[Any]) -> None:
    for tensor, values in zip(room, content, strict=True):
        device.write(tensor.buffer, values).wait()
