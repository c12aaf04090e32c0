"""Checks of losses, their gradients, accuracy and the targets of Q-learning."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kernels.harness.kernel_check import GROUP, Array, KernelCheck, draw


def loss_checks(generator: np.random.Generator) -> Iterator[KernelCheck]:
    """Yield checks of every kernel of losses.cl."""
    for family in (_label_losses, _value_losses, _td_target):
        yield from family(generator)


def _label_losses(generator: np.random.Generator) -> Iterator[KernelCheck]:
    x, labels = 4 * draw(generator, 13, 10), generator.integers(0, 10, 13).astype(np.int32)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    probs = powers / powers.sum(1, keepdims=True)
    one_hot = np.eye(10)[labels]
    loss = -np.log((probs * one_hot).sum(1))
    yield KernelCheck("softmax_cross_entropy", (13,), (13, 10), (x, labels), (probs, loss))
    yield KernelCheck(
        "softmax_cross_entropy_gradient",
        (13, 10),
        (13, 10),
        (probs.astype(np.float32), labels),
        ((probs - one_hot) / 13,),
    )
    yield from _cross_entropy(probs, labels)
    rows = loss.astype(np.float32)
    yield KernelCheck("mean_loss", (1,), (13,), (rows,), (np.array([loss.mean()]),))
    accuracy = np.array([(x.argmax(1) == labels).mean()])
    yield KernelCheck("accuracy", (1,), (13, 10), (x, labels), (accuracy,))


def _cross_entropy(probs: Array, labels: NDArray[np.int32]) -> Iterator[KernelCheck]:
    inputs, rows = (probs.astype(np.float32), labels), np.arange(13)
    loss, gradient = -np.log(probs[rows, labels]), np.zeros((13, 10))
    gradient[rows, labels] = -1 / (probs[rows, labels] * 13)
    yield KernelCheck("cross_entropy", (13,), (13, 10), inputs, (loss,))
    yield KernelCheck("cross_entropy_gradient", (13, 10), (13, 10), inputs, (gradient,))


def _value_losses(generator: np.random.Generator) -> Iterator[KernelCheck]:
    count = 130
    x, target = 4 * draw(generator, 13, 10), draw(generator, 13, 10)
    size, inputs, x64 = (count,), (x, target), x.astype(np.float64)
    difference, logistic = x64 - target, 1 / (1 + np.exp(-x64))
    costs = {
        "squared_error": (difference**2, 2 * difference),
        "binary_cross_entropy": (
            np.maximum(x64, 0) - x64 * target + np.log1p(np.exp(-np.abs(x64))),
            logistic - target,
        ),
    }
    for entry, (cost, grad) in costs.items():
        yield KernelCheck(entry, size, size, inputs, (cost,))
        yield KernelCheck(f"{entry}_gradient", size, size, inputs, (grad / count,))
    mean = np.array([x64.mean()])
    yield KernelCheck("mean_of_values", (GROUP,), size, (x,), (mean,), (GROUP,))


def _td_target(generator: np.random.Generator) -> Iterator[KernelCheck]:
    rows, actions, discount = 9, 4, 0.9
    q, following, reward = (
        draw(generator, *shape) for shape in ((rows, actions), (rows, actions), (rows,))
    )
    action = generator.integers(0, actions, rows).astype(np.int32)
    expected = q.astype(np.float64)
    expected[np.arange(rows), action] = reward + discount * following.max(1)
    scalars, operands = (rows, actions, discount), (q, following, action, reward)
    yield KernelCheck("td_target", (rows,), scalars, operands, (expected,))
