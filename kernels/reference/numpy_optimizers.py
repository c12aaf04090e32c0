"""Optimizers."""

import numpy as np

from kernels.reference.machine import Call, Results, kind


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


@kind("squared_norm", "squared_norm_add")
def squared_norm(call: Call) -> Results:
    before = call[1] if len(call.given) == 2 else np.zeros(1)
    return (before + np.sum(call[0] ** 2),)


@kind("adamw")
def adamw(call: Call) -> Results:
    rate, first, second, epsilon, decay, clip, scale = call.op.floats
    norm = scale * np.sqrt(float(call[4][0]))
    gradient = call[1] * scale * min(1.0, clip / (norm + 1e-6))
    m = first * call[2] + (1 - first) * gradient
    v = second * call[3] + (1 - second) * gradient**2
    count = call.step + 1
    step = m / (1 - first**count) / (np.sqrt(v / (1 - second**count)) + epsilon)
    return call[0] * (1 - rate * decay) - rate * step, m, v
