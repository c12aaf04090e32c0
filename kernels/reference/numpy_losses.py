"""Losses and accuracy."""

import numpy as np

from kernels.reference.machine import Array, Call, Results, kind
from kernels.reference.numpy_activations import sigmoid


def _one_hot(call: Call) -> Array:
    hot = np.zeros(call[0].shape)
    np.put_along_axis(hot, call.labels[..., None], 1.0, axis=-1)
    return hot


@kind("softmax_cross_entropy")
def softmax_cross_entropy(call: Call) -> Results:
    x = call[0] - call[0].max(axis=-1, keepdims=True)
    logarithms = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    loss = -(logarithms * _one_hot(call)).sum() / call.labels.size
    return np.exp(logarithms), np.array([loss])


@kind("softmax_cross_entropy_gradient")
def softmax_cross_entropy_gradient(call: Call) -> Results:
    return ((call[0] - _one_hot(call)) / call.labels.size,)


@kind("cross_entropy")
def cross_entropy(call: Call) -> Results:
    right = np.take_along_axis(call[0], call.labels[..., None], axis=-1)
    return (np.array([-np.log(np.maximum(right, 1e-12)).mean()]),)


@kind("cross_entropy_gradient")
def cross_entropy_gradient(call: Call) -> Results:
    return (-_one_hot(call) / np.maximum(call[0], 1e-12) / call.labels.size,)


@kind("mean_squared_error")
def mean_squared_error(call: Call) -> Results:
    return (np.array([((call[0] - call[1]) ** 2).mean()]),)


@kind("mean_squared_error_gradient")
def mean_squared_error_gradient(call: Call) -> Results:
    return (2 * (call[0] - call[1]) / call[0].size,)


@kind("binary_cross_entropy")
def binary_cross_entropy(call: Call) -> Results:
    x, target = call[0], call[1]
    costs = np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))
    return (np.array([costs.mean()]),)


@kind("binary_cross_entropy_gradient")
def binary_cross_entropy_gradient(call: Call) -> Results:
    return ((sigmoid(call[0]) - call[1]) / call[0].size,)


@kind("accuracy")
def accuracy(call: Call) -> Results:
    return (np.array([(call[0].argmax(axis=-1) == call.labels).mean()]),)
