"""How the data of a step reach the device: five feeds.

`copied` is what the study measured: every operation copies its operands to the device and its
results back. The other feeds keep everything on the device, so that two operations can share a
launch, and differ only in how a batch gets there.

The names are those of the option `feed` (workloads/run_options.py), which the runner takes as well,
and HARNESS_ONLY: `buffered` needs a second queue, which the runner does not have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.harness.device_perceptron import (
    DevicePerceptron,
    DeviceTensor,
    LabelledBatches,
    StepOperation,
)
from kernels.harness.opencl_device import Device

HARNESS_ONLY = ("buffered",)
EnqueueStep = Callable[[int, "StepEvents"], None]  # enqueue the step of this number


@dataclass
class StepEvents:
    """Events enqueued since the last wait, kernels and copies separately."""

    kernels: list[Any] = field(default_factory=list)
    copies: list[Any] = field(default_factory=list)


def copied(net: DevicePerceptron, batches: LabelledBatches) -> EnqueueStep:
    """Copy operands, launch, copy results, and wait for each copy, as MNN does per operation."""
    x, labels = net.inputs(batches.batch)
    operations = net.step(x, labels, fused=False)
    device = net.device

    def step(number: int, events: StepEvents) -> None:
        x.host, labels.host = batches.batch_at(number)
        for operation in operations:
            for tensor in operation.reads:
                events.copies.append(device.write(tensor.buffer, tensor.host))
                events.copies[-1].wait()
            events.kernels.append(operation.launch())
            for tensor in operation.writes:
                events.copies.append(device.read_into(tensor.host, tensor.buffer))

    return step


def resident(net: DevicePerceptron, batches: LabelledBatches) -> EnqueueStep:
    """Keep everything on the device; copy a batch before its step."""
    return _one_buffer(net, batches, net.device.write, host_visible=False)


def mapped(net: DevicePerceptron, batches: LabelledBatches) -> EnqueueStep:
    """Keep everything on the device; write a batch into a mapped buffer (zero copy)."""
    return _one_buffer(net, batches, net.device.write_mapped, host_visible=True)


def buffered(net: DevicePerceptron, batches: LabelledBatches) -> EnqueueStep:
    """Use two buffers: one is filled, on a second queue, while the other is used."""
    buffers = [net.inputs(batches.batch) for _ in range(2)]
    steps = [net.step(*buffer) for buffer in buffers]
    last_use: list[list[Any] | None] = [None, None]

    def step(number: int, events: StepEvents) -> None:
        which = number % 2
        content = batches.batch_at(number)
        filled = [
            net.device.write_on_copy_queue(tensor.buffer, values, last_use[which])
            for tensor, values in zip(buffers[which], content, strict=True)
        ]
        launched = [steps[which][0].launch(filled), *_launch(steps[which][1:])]
        last_use[which] = launched[-1:]
        events.copies += filled
        events.kernels += launched

    return step


def preloaded(net: DevicePerceptron, batches: LabelledBatches) -> EnqueueStep:
    """Keep the whole data set on the device; a batch is a range of it."""
    x, labels = net.inputs(len(batches.labels))
    _fill(net.device, (x, labels), (batches.rows, batches.labels))
    steps = [net.step(x, labels, number * batches.batch) for number in range(batches.batches)]

    def step(number: int, events: StepEvents) -> None:
        events.kernels += _launch(steps[number % len(steps)])

    return step


HARNESS_FEEDS: dict[str, Callable[[DevicePerceptron, LabelledBatches], EnqueueStep]] = {
    "copied": copied,
    "resident": resident,
    "mapped": mapped,
    "buffered": buffered,
    "preloaded": preloaded,
}


def _one_buffer(
    net: DevicePerceptron,
    batches: LabelledBatches,
    write: Callable[[Any, Any], Any],
    host_visible: bool,
) -> EnqueueStep:
    buffer = net.inputs(batches.batch, host_visible)
    operations = net.step(*buffer)

    def step(number: int, events: StepEvents) -> None:
        for tensor, values in zip(buffer, batches.batch_at(number), strict=True):
            events.copies.append(write(tensor.buffer, values))
        events.kernels += _launch(operations)

    return step


def _launch(operations: Sequence[StepOperation]) -> list[Any]:
    return [operation.launch() for operation in operations]


def _fill(device: Device, tensors: Sequence[DeviceTensor], content: Sequence[Any]) -> None:
    for tensor, values in zip(tensors, content, strict=True):
        device.write(tensor.buffer, values).wait()
