"""Element-wise activations, dropout, and softmax."""

from math import erf

import numpy as np

from kernels.reference.machine import Array, Call, Results, kind


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(erf)(x))


@kind("relu_forward", "relu6_forward", "leaky_forward", "tanh_forward", "sigmoid_forward")
def activation(call: Call) -> Results:
    x, name = call[0], call.op.kind
    if name == "leaky_forward":
        return (np.where(x > 0, x, call.op.floats[0] * x),)
    if name == "tanh_forward":
        return (np.tanh(x),)
    if name == "sigmoid_forward":
        return (sigmoid(x),)
    return (np.clip(x, 0, 6 if name == "relu6_forward" else None),)


@kind("relu_gradient", "relu6_gradient", "leaky_gradient", "tanh_gradient", "sigmoid_gradient")
def activation_gradient(call: Call) -> Results:
    y, dy, name = call[0], call[1], call.op.kind
    if name == "leaky_gradient":
        return (np.where(y > 0, dy, call.op.floats[0] * dy),)
    if name == "tanh_gradient":
        return (dy * (1 - y * y),)
    if name == "sigmoid_gradient":
        return (dy * y * (1 - y),)
    inside = (y > 0) & (y < 6) if name == "relu6_gradient" else y > 0
    return (np.where(inside, dy, 0.0),)


@kind("gelu_forward")
def gelu_forward(call: Call) -> Results:
    x = call[0]
    return (x * 0.5 * (1 + _erf(x / np.sqrt(2))),)


@kind("gelu_gradient")
def gelu_gradient(call: Call) -> Results:
    x, dy = call[0], call[1]
    slope = 0.5 * (1 + _erf(x / np.sqrt(2))) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    return (dy * slope,)


@kind("dropout_forward")
def dropout_forward(call: Call) -> Results:
    x, mask = call[0], call[1]
    return np.where(mask != 0, x / (1 - call.op.floats[0]), 0.0), mask


@kind("dropout_gradient")
def dropout_gradient(call: Call) -> Results:
    mask, dy = call[0], call[1]
    return (np.where(mask != 0, dy / (1 - call.op.floats[0]), 0.0),)


def _shares(x: Array, axis: int) -> Array:
    exponents = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=axis, keepdims=True))


@kind("softmax_forward")
def softmax_forward(call: Call) -> Results:
    return (_shares(call[0].reshape(call.op.ints), 1).reshape(call.shapes[0]),)


@kind("softmax_gradient")
def softmax_gradient(call: Call) -> Results:
    y, dy = (value.reshape(call.op.ints) for value in (call[0], call[1]))
    mean = (y * dy).sum(axis=1, keepdims=True)
    return ((y * (dy - mean)).reshape(call.shapes[0]),)
