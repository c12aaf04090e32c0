"""LeNet and SqueezeNet trained on a device: the step beyond the study, timed beside the CPU.

One batch is learned over and over, so its loss has to fall; a time counts only if it did.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kernels.harness.device import Device, timing_of
from kernels.harness.engine import engine_step
from kernels.harness.network import TYPES, Array, Network
from kernels.harness.timing import load_average
from workloads.graph import Model
from workloads.lowering import Body, body_of
from workloads.lowering.body import Tensor
from workloads.models.lenet import lenet
from workloads.models.squeezenet import squeezenet
from workloads.training import SGD, training

NETWORKS: dict[str, tuple[Callable[[], Model], int, int]] = {  # model, batch, steps a turn
    "lenet": (lenet, 32, 10),
    "squeezenet": (squeezenet, 4, 1),
}
_UPDATE = SGD(0.005, momentum=0.9)


@dataclass
class NetworkRow:
    """One network: times of a step, and whether it learned."""

    name: str
    batch: int
    launches: int
    loss_first: float
    loss_last: float = float("nan")
    turns_s: list[float] = field(default_factory=list)
    engine_s: list[float] = field(default_factory=list)  # of our engine on one thread
    phases_s: dict[str, float] = field(default_factory=dict)  # executed, by the device's clock
    load: float = float("nan")

    @property
    def right(self) -> bool:
        """The loss fell; that values are right is for the tests to say."""
        return self.loss_last < self.loss_first


def train_network(
    device: Device, name: str, rounds: int, step: Callable[[], None] = lambda: None
) -> NetworkRow:
    """Train one network; `step` is called after each round."""
    make, batch, steps = NETWORKS[name]
    body = body_of(training(make(), batch, _UPDATE), reuse=False)
    net = Network(device, body)
    _fill(net, body)
    row = NetworkRow(name, batch, len(net.step()), _loss(net, body))
    with engine_step(name, batch, threads=1) as engine:
        for _ in range(rounds):
            began = time.perf_counter()
            for _ in range(steps):
                net.step()
            device.finish()
            row.turns_s.append((time.perf_counter() - began) / steps)
            row.engine_s.append(engine.seconds(steps))
            step()
    for phase, launches in net.phases.items():
        events = [launch() for launch in launches]
        device.finish()
        row.phases_s[phase] = sum(timing_of(event).executed_s for event in events)
    row.loss_last = _loss(net, body)
    row.load = load_average()
    return row


def _loss(net: Network, body: Body) -> float:
    return float(net.read(body.loss)[0]) if body.loss else float("nan")


def _fill(net: Network, body: Body) -> None:
    """First values as the plan asks for them, and one batch of noise with labels."""
    dice = np.random.default_rng(3)
    for tensor in body.tensors:
        if tensor.base is None and tensor.init.kind != "none":
            net.write(tensor, _first(tensor, dice))
    for op in body.ops:
        if op.kind == "load" and op.outs[0] is not None and op.phase == "load":
            net.write(op.outs[0], _loaded(op.outs[0], dice))
        if op.kind == "dropout_forward" and op.outs[1] is not None:
            kept = dice.random(op.outs[1].shape) >= op.floats[0]
            net.write(op.outs[1], kept.astype(np.uint8))


def _first(tensor: Tensor, dice: np.random.Generator) -> Array:
    init = tensor.init
    if init.kind == "uniform":
        values = dice.uniform(-init.value, init.value, tensor.shape)
    elif init.kind == "normal":
        values = dice.normal(0.0, init.value, tensor.shape)
    else:
        values = np.full(tensor.shape, init.value)
    return values.astype(TYPES[tensor.type])


def _loaded(tensor: Tensor, dice: np.random.Generator) -> Array:
    if tensor.type == "index":
        return dice.integers(0, 10, tensor.shape).astype(np.int32)
    return dice.standard_normal(tensor.shape).astype(np.float32)
