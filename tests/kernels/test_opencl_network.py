"""Whole networks on the device: parameters and loss of each step equal the reference."""

import numpy as np
import pytest

from kernels.harness.device_network import DeviceNetwork
from kernels.harness.opencl_device import Device
from tests.kernels.dumps import Dumped, worst
from workloads.lowering import lower_step
from workloads.models.lenet import lenet
from workloads.models.squeezenet import squeezenet
from workloads.models.text_models import char_lstm
from workloads.protocol.faults import InvalidRequest
from workloads.training import SGD, Adam, TrainingStep, training_step

MOMENTUM = SGD(0.01, momentum=0.9, weight_decay=5e-4)


def _follows_the_reference(device: Device, step: TrainingStep, steps: int) -> None:
    dumped = Dumped.of(step, steps=steps)
    machine, net = dumped.reference(), DeviceNetwork(device, dumped.body)
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


def test_lenet_trains_like_the_reference(device: Device) -> None:
    _follows_the_reference(device, training_step(lenet(12), 3, MOMENTUM), steps=2)


@pytest.mark.slow
def test_squeezenet_trains_like_the_reference(device: Device) -> None:
    _follows_the_reference(device, training_step(squeezenet(64, 10), 2, MOMENTUM), steps=2)


def test_an_operation_without_a_kernel_is_refused_by_name(device: Device) -> None:
    with pytest.raises(InvalidRequest, match="no kernel for 'embedding_forward' yet"):
        DeviceNetwork(device, lower_step(training_step(char_lstm(6), 3, Adam())))


def test_values_are_copied_to_the_device_and_back(device: Device) -> None:
    body = lower_step(training_step(lenet(12), 3, MOMENTUM), reuse=False)
    net = DeviceNetwork(device, body)
    weight = next(tensor for tensor in body.tensors if tensor.arena == "parameter")
    values = np.arange(np.prod(weight.shape), dtype=np.float32).reshape(weight.shape)
    net.write(weight, values)
    assert np.array_equal(values, net.read(weight))
