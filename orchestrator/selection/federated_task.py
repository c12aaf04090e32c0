"""A small but real federated training: label-skewed data, local epochs, averaged weights.

Softmax regression on overlapping clusters. Every client has few labels, as people's phones do, so
the accuracy of a server that always chooses the same phones suffers from the labels it never sees.
The data of a client are drawn again whenever it trains, from the seed and its number: the same
every time. Only those of few clients are kept.
"""

from collections.abc import Sized
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from orchestrator.selection.round_clock import Array
from orchestrator.selection.round_fleet import Picks

CLASSES = 10
SKEW = 0.15  # of the Dirichlet distribution of labels: small means few labels per client
SAMPLES_TYPICAL, SAMPLES_MIN, SAMPLES_MAX = 60.0, 16, 128
TESTS = 2000
KEPT_MAX = 400  # clients whose data are kept: 30 MB
BATCH, EPOCHS = 16, 2
FEATURES, DISTANCE = 24, 0.6  # distance of the centres in units of the width of a cluster

Float = NDArray[np.float32]
Labels = NDArray[np.int64]
Weights = list[Float]


@dataclass(frozen=True)
class FederatedTask:
    """The labels of every client, and the test data."""

    seed: int
    sizes: Labels  # samples of each client
    label_shares: Float  # client, class
    centres: Float  # of the clusters
    test_x: Float
    test_y: Labels
    best: float  # accuracy of a classifier that knows how the data were drawn
    kept: dict[int, tuple[Float, Labels]] = field(default_factory=dict, compare=False)

    rate: ClassVar = 0.005

    @property
    def samples(self) -> Array:
        """How many samples each client processes per round."""
        return (self.sizes * EPOCHS).astype(float)

    def initial_weights(self) -> Weights:
        """Return the weights before training."""
        return [np.zeros((FEATURES + 1, CLASSES), np.float32)]

    def draw_inputs(self, labels: Labels, rng: np.random.Generator) -> Float:
        """Draw inputs with these labels; the last feature is 1."""
        return with_bias(_cluster_points(self.centres, labels, rng))

    def data_of(self, picks: Picks) -> tuple[Float, Labels, Float]:
        """Return inputs, labels and a mask of the samples of these clients."""
        longest = int(self.sizes[picks].max())
        x = np.zeros((len(picks), longest, self.test_x.shape[1]), np.float32)
        y = np.zeros((len(picks), longest), np.int64)
        for row, client in enumerate(picks.tolist()):
            inputs, labels = self.kept.get(client) or self._draw_client(client)
            x[row, : len(labels)], y[row, : len(labels)] = inputs, labels
        mask = (np.arange(longest) < self.sizes[picks][:, None]).astype(np.float32)
        return x, y, mask

    def _draw_client(self, client: int) -> tuple[Float, Labels]:
        rng = np.random.default_rng([self.seed, 22, client])
        cumulated = np.cumsum(self.label_shares[client])
        draws = rng.random(int(self.sizes[client]))
        labels = np.searchsorted(cumulated / cumulated[-1], draws, side="right")
        labels = np.minimum(labels, CLASSES - 1)
        data = self.draw_inputs(labels, rng), labels
        if len(self.kept) < KEPT_MAX:
            self.kept[client] = data
        return data


def draw_task(population: Sized, seed: int) -> FederatedTask:
    """Draw a task for these clients; the same seed gives the same data."""
    rng, clients = np.random.default_rng([seed, 20]), len(population)
    centres = (rng.standard_normal((CLASSES, FEATURES)) * DISTANCE).astype(np.float32)
    sizes = np.clip(rng.lognormal(np.log(SAMPLES_TYPICAL), 0.5, clients), SAMPLES_MIN, SAMPLES_MAX)
    shares = rng.dirichlet(np.full(CLASSES, SKEW), clients)
    test_y = rng.integers(0, CLASSES, TESTS)
    points = _cluster_points(centres, test_y, rng)
    distance = ((points[:, None] - centres) ** 2).sum(axis=-1)
    return FederatedTask(
        seed,
        sizes.astype(np.int64),
        (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32),
        *(centres, with_bias(points), test_y),
        best=float((distance.argmin(axis=1) == test_y).mean()),
    )


def _cluster_points(centres: Float, labels: Labels, rng: np.random.Generator) -> Float:
    return np.asarray(centres[labels] + rng.standard_normal((len(labels), FEATURES), np.float32))


def with_bias(x: Float) -> Float:
    """Append a feature that is always 1."""
    return np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)


def train(task: FederatedTask, weights: Weights, picks: Picks) -> tuple[Weights, Array]:
    """Train the picked clients from these weights; return the averaged weights and the losses.

    A loss is the root of the mean squared loss over a client's samples before training, which is
    what utility-driven selection uses.
    """
    x, y, mask = task.data_of(picks)
    local = [np.repeat(layer[None], len(picks), axis=0) for layer in weights]
    correct = np.take_along_axis(_softmax(_forward(x, local)[-1]), y[..., None], axis=-1)[..., 0]
    squared = np.log(np.maximum(correct, 1e-12)) ** 2
    sizes = mask.sum(axis=1)
    losses = np.sqrt((squared * mask).sum(axis=1) / sizes)
    for _ in range(EPOCHS):
        for begin in range(0, x.shape[1], BATCH):
            batch = slice(begin, begin + BATCH)
            _descend(local, x[:, batch], y[:, batch], mask[:, batch], task.rate)
    averaged = [np.average(layer, axis=0, weights=sizes).astype(np.float32) for layer in local]
    return averaged, losses.astype(float)


def _forward(x: Float, weights: Weights) -> list[Float]:
    """Return the input of every layer, and the scores."""
    values = [x]
    for layer in weights[:-1]:
        values.append(np.maximum(values[-1] @ layer, 0))
    return [*values, values[-1] @ weights[-1]]


def _descend(weights: Weights, x: Float, y: Labels, mask: Float, rate: float) -> None:
    """Make one step of gradient descent on every client."""
    *inputs, scores = _forward(x, weights)
    gradient = _softmax(scores)
    gradient.reshape(-1, CLASSES)[np.arange(y.size), y.ravel()] -= 1
    gradient *= (mask / np.maximum(mask.sum(axis=1, keepdims=True), 1))[..., None]
    for index in reversed(range(len(weights))):
        step = inputs[index].transpose(0, 2, 1) @ gradient
        if index:
            gradient = (gradient @ weights[index].transpose(0, 2, 1)) * (inputs[index] > 0)
        weights[index] -= rate * step


def accuracy(task: FederatedTask, weights: Weights) -> float:
    """Return the share of the test set that is classified correctly."""
    return float((_forward(task.test_x, weights)[-1].argmax(axis=1) == task.test_y).mean())


def _softmax(scores: Float) -> Float:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
