"""Small but real federated training tasks: label-skewed data, local epochs, averaged weights.

Two tasks: softmax regression on overlapping clusters, and a perceptron on drawn digits. Every
client has few labels, as people's phones do, so the accuracy of a server that always chooses the
same phones suffers from the labels it never sees. The data of a client are drawn again whenever it
trains, from the seed and its number: the same every time. Only those of few clients are kept.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from orchestrator.selection.round_clock import Array
from orchestrator.selection.round_fleet import Picks

CLASSES = 10
SKEW = 0.15  # of the Dirichlet distribution of labels: small means few labels per client
SAMPLES_TYPICAL, SAMPLES_MIN, SAMPLES_MAX = 60.0, 16, 128
RARE_CLASSES, RARE_SHARE = (8, 9), 0.4  # labels that only this share of the clients has
TESTS = 2000
KEPT_MAX = 400  # clients whose data are kept: 30 MB
BATCH, EPOCHS = 16, 2
FEATURES, DISTANCE = 24, 0.6  # clusters: distance of the centres in units of their width
SIDE, GLYPH = 12, (7, 5)  # digits: an image, and the glyph inside it
PIXEL_NOISE = 0.3

Float = NDArray[np.float32]
Labels = NDArray[np.int64]
Weights = list[Float]

# Digits of five by seven dots, one text of rows per digit.
_DOTS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


class TaskKind(StrEnum):
    """What is trained."""

    CLUSTERS = "clusters"
    DIGITS = "digits"


@dataclass(frozen=True)
class TaskShape:
    """Model and rate of a kind of task."""

    layers: tuple[int, ...]
    rate: float


SHAPES = {
    TaskKind.CLUSTERS: TaskShape((FEATURES + 1, CLASSES), 0.005),
    TaskKind.DIGITS: TaskShape((SIDE * SIDE + 1, 16, CLASSES), 0.3),
}


@dataclass(frozen=True)
class FederatedTask:
    """The labels of every client, and the test data."""

    kind: TaskKind
    seed: int
    sizes: Labels  # samples of each client
    label_shares: Float  # client, class
    centres: Float  # of the clusters; unused for digits
    test_x: Float
    test_y: Labels
    best: float  # accuracy of a classifier that knows how the data were drawn
    kept: dict[int, tuple[Float, Labels]] = field(default_factory=dict, compare=False)

    @property
    def samples(self) -> Array:
        """How many samples each client processes per round."""
        return (self.sizes * EPOCHS).astype(float)

    def initial_weights(self) -> Weights:
        """Return the weights before training."""
        rng = np.random.default_rng([self.seed, 21])
        layers = SHAPES[self.kind].layers
        if len(layers) == 2:
            return [np.zeros(layers, np.float32)]
        return [
            (rng.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)
            for rows, columns in pairwise(layers)
        ]

    def data_of(self, picks: Picks) -> tuple[Float, Labels, Float]:
        """Return inputs, labels and a mask of the samples of these clients."""
        longest = int(self.sizes[picks].max())
        x = np.zeros((len(picks), longest, SHAPES[self.kind].layers[0]), np.float32)
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
        data = _inputs(self.kind, self.centres, labels, rng), labels
        if len(self.kept) < KEPT_MAX:
            self.kept[client] = data
        return data


def draw_task(
    kind: TaskKind,
    clients: int,
    seed: int,
    slowness: Array | None = None,
    equal_steps: bool = False,
) -> FederatedTask:
    """Draw the clients of a task; the same seed gives the same data.

    With the slowness of the clients, the rare labels are only on the slowest of them. With equal
    steps, every client has equally many samples.
    """
    rng = np.random.default_rng([seed, 20])
    centres = (rng.standard_normal((CLASSES, FEATURES)) * DISTANCE).astype(np.float32)
    sizes = np.clip(rng.lognormal(np.log(SAMPLES_TYPICAL), 0.5, clients), SAMPLES_MIN, SAMPLES_MAX)
    if equal_steps:
        sizes = np.full(clients, SAMPLES_TYPICAL)
    shares = rng.dirichlet(np.full(CLASSES, SKEW), clients)
    if slowness is not None:
        rest = np.argsort(-slowness, kind="stable")[max(1, int(clients * RARE_SHARE)) :]
        shares += 1e-9  # a client that had rare labels only has any of the others
        shares[rest[:, None], list(RARE_CLASSES)] = 0.0
    test_y = rng.integers(0, CLASSES, TESTS)
    test_x = _inputs(kind, centres, test_y, rng)
    best = 1.0
    if kind is TaskKind.CLUSTERS:
        distance = ((test_x[:, None, :-1] - centres) ** 2).sum(axis=-1)
        best = float((distance.argmin(axis=1) == test_y).mean())
    return FederatedTask(
        kind,
        seed,
        sizes.astype(np.int64),
        (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32),
        centres,
        test_x,
        test_y,
        best,
    )


def _inputs(kind: TaskKind, centres: Float, labels: Labels, rng: np.random.Generator) -> Float:
    """Draw inputs with these labels; the last feature is 1."""
    if kind is TaskKind.CLUSTERS:
        x = centres[labels] + rng.standard_normal((len(labels), FEATURES), np.float32)
    else:
        x = _digits(labels, rng)
    return np.concatenate([x, np.ones((len(labels), 1), np.float32)], axis=1)


def _digits(labels: Labels, rng: np.random.Generator) -> Float:
    """Draw each digit at a random place of a noisy image."""
    glyphs = np.array([[list(map(int, row)) for row in text.split()] for text in _DOTS])
    images = rng.standard_normal((len(labels), SIDE, SIDE), np.float32) * PIXEL_NOISE
    tops = rng.integers(1, SIDE - GLYPH[0], len(labels))
    lefts = rng.integers(2, SIDE - GLYPH[1] - 1, len(labels))
    rows = tops[:, None, None] + np.arange(GLYPH[0])[:, None]
    columns = lefts[:, None, None] + np.arange(GLYPH[1])
    images[np.arange(len(labels))[:, None, None], rows, columns] += 2.0 * glyphs[labels]
    return np.asarray(images.reshape(len(labels), SIDE * SIDE) / 2, np.float32)


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
            _descend(local, x[:, batch], y[:, batch], mask[:, batch], SHAPES[task.kind].rate)
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
