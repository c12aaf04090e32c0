"""Whole networks on the device: each step's parameters and loss as the reference has them."""

import numpy as np
import pytest

from kernels.harness.device import Device
from kernels.harness.network import Network
from tests.kernels.dumps import Dumped, worst
from workloads.fault import Refused
from workloads.lowering import body_of
from workloads.models.lenet import lenet
from workloads.models.squeezenet import squeezenet
from workloads.models.texts import char_lstm
from workloads.training import SGD, Adam, Training, training

MOMENTUM = SGD(0.01, momentum=0.9, weight_decay=5e-4)


def _follows_the_reference(device: Device, step: Training, steps: int) -> None:
    dumped = Dumped.of(step, steps=steps)
    machine, net = dumped.reference(), Network(device, dumped.body)
    for tensor, values in zip(dumped.body.tensors, dumped.moments[0], strict=True):
        if tensor.base is None:
            net.write(tensor, values)
    fed = [out for op in dumped.body.ops if op.kind == "load" for out in op.outs if out]
    fed += [op.outs[1] for op in dumped.body.ops if op.kind == "dropout_forward" if op.outs[1]]
    for moment in dumped.moments[1:]:
        machine.step(moment)
        for tensor in fed:
            net.write(tensor, moment[tensor.number])
        net.step()
        assert dumped.body.loss is not None
        loss = float(net.read(dumped.body.loss)[0])
        assert loss == pytest.approx(machine[dumped.plan.loss][0], rel=1e-4)
    for tensor in dumped.body.tensors:
        if tensor.arena in ("parameter", "gradient", "state"):
            error = worst(net.read(tensor), machine[tensor.number])
            assert error < 2e-3, f"{tensor.name} is off by {error:.1e}"


def test_lenet_learns_on_the_device_as_the_reference_does(device: Device) -> None:
    _follows_the_reference(device, training(lenet(12), 3, MOMENTUM), steps=2)


@pytest.mark.slow
def test_squeezenet_learns_on_the_device_as_the_reference_does(device: Device) -> None:
    _follows_the_reference(device, training(squeezenet(64, 10), 2, MOMENTUM), steps=2)


def test_an_operation_without_a_kernel_is_refused_by_name(device: Device) -> None:
    with pytest.raises(Refused, match="does 'embedding_forward' yet"):
        Network(device, body_of(training(char_lstm(6), 3, Adam())))


def test_values_go_to_the_device_and_come_back(device: Device) -> None:
    body = body_of(training(lenet(12), 3, MOMENTUM), reuse=False)
    net = Network(device, body)
    weight = next(tensor for tensor in body.tensors if tensor.arena == "parameter")
    values = np.arange(np.prod(weight.shape), dtype=np.float32).reshape(weight.shape)
    net.write(weight, values)
    assert np.array_equal(values, net.read(weight))
