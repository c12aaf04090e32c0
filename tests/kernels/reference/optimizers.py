"""Optimizers."""

import numpy as np

from tests.kernels.reference.machine import Call, Results, kind


@kind("sgd")
def sgd(call: Call) -> Results:
    rate, decay = call.op.floats
    return (call[0] - rate * (call[1] + decay * call[0]),)


@kind("momentum")
def momentum(call: Call) -> Results:
    rate, share, decay = call.op.floats
    velocity = share * call[2] + call[1] + decay * call[0]
    return call[0] - rate * velocity, velocity


@kind("adam")
def adam(call: Call) -> Results:
    rate, first, second, epsilon = call.op.floats
    m = first * call[2] + (1 - first) * call[1]
    v = second * call[3] + (1 - second) * call[1] ** 2
    count = call.step + 1
    step = m / (1 - first**count) / (np.sqrt(v / (1 - second**count)) + epsilon)
    return call[0] - rate * step, m, v
