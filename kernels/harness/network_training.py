"""Trains LeNet and SqueezeNet on a device and times them next to the CPU.

One batch is trained repeatedly, so its loss must fall; measured times count only if it did.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kernels.harness.device_network import TYPES, Array, DeviceNetwork
from kernels.harness.engine_baseline import engine_step
from kernels.harness.launch_timing import load_average
from kernels.harness.opencl_device import Device, timing_of
from workloads.graph import Model
from workloads.lowering import PlanBody, lower_step
from workloads.lowering.plan_body import Tensor
from workloads.models.lenet import lenet
from workloads.models.squeezenet import squeezenet
from workloads.training import SGD, training_step

NETWORKS: dict[str, tuple[Callable[[], Model], int, int]] = {  # model, batch, steps per turn
    "lenet": (lenet, 32, 10),
    "squeezenet": (squeezenet, 4, 1),
}
_UPDATE = SGD(0.005, momentum=0.9)


@dataclass
class NetworkResult:
    """One network: times of a step, and whether its loss fell."""

    name: str
    batch: int
    launches: int
    loss_first: float
    loss_last: float = float("nan")
    turns_s: list[float] = field(default_factory=list)
    engine_s: list[float] = field(default_factory=list)  # of the C engine on one thread
    phases_s: dict[str, float] = field(default_factory=dict)  # executed, by the clock of the device
    load: float = float("nan")

    @property
    def passed(self) -> bool:
        """Whether the loss fell; tests check the values."""
        return self.loss_last < self.loss_first


def train_network(
    device: Device, name: str, rounds: int, on_round: Callable[[], None] = lambda: None
) -> NetworkResult:
    """Train one network; `on_round` is called after each round."""
    make, batch, steps = NETWORKS[name]
    body = lower_step(training_step(make(), batch, _UPDATE), reuse=False)
    net = DeviceNetwork(device, body)
    _fill(net, body)
    row = NetworkResult(name, batch, len(net.step()), _loss(net, body))
    with engine_step(name, batch, threads=1) as engine:
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(steps):
                net.step()
            device.finish()
            row.turns_s.append((time.perf_counter() - start) / steps)
            row.engine_s.append(engine.seconds(steps))
            on_round()
    for phase, launches in net.phases.items():
        events = [launch() for launch in launches]
        device.finish()
        row.phases_s[phase] = sum(timing_of(event).executed_s for event in events)
    row.loss_last = _loss(net, body)
    row.load = load_average()
    return row


def _loss(net: DeviceNetwork, body: PlanBody) -> float:
    return float(net.read(body.loss)[0]) if body.loss else float("nan")


def _fill(net: DeviceNetwork, body: PlanBody) -> None:
    """Write the initial values of the plan, and one batch of noise with labels."""
    generator = np.random.default_rng(3)
    for tensor in body.tensors:
        if tensor.base is None and tensor.init.kind != "none":
            net.write(tensor, _initial(tensor, generator))
    for op in body.ops:
        if op.kind == "load" and op.outs[0] is not None and op.phase == "load":
            net.write(op.outs[0], _random_batch(op.outs[0], generator))
        if op.kind == "dropout_forward" and op.outs[1] is not None:
            kept = generator.random(op.outs[1].shape) >= op.floats[0]
            net.write(op.outs[1], kept.astype(np.uint8))


def _initial(tensor: Tensor, generator: np.random.Generator) -> Array:
    init = tensor.init
    if init.kind == "uniform":
        values = generator.uniform(-init.value, init.value, tensor.shape)
    elif init.kind == "normal":
        values = generator.normal(0.0, init.value, tensor.shape)
    else:
        values = np.full(tensor.shape, init.value)
    return values.astype(TYPES[tensor.type])


def _random_batch(tensor: Tensor, generator: np.random.Generator) -> Array:
    if tensor.type == "index":
        return generator.integers(0, 10, tensor.shape).astype(np.int32)
    return generator.standard_normal(tensor.shape).astype(np.float32)
