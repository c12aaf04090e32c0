"""A small but real federated training: label-skewed data, local epochs, averaged weights.

Softmax regression on overlapping clusters. Every client has few labels, as people's phones do, so
the accuracy of a server that always chooses the same phones suffers from the labels it never sees.
"""

from dataclasses import dataclass

import numpy as np

from orchestrator.selection.round_fleet import Array, Picks

FEATURES, CLASSES = 24, 10
SKEW = 0.15  # of the Dirichlet distribution of labels: small means few labels per client
SAMPLES_TYPICAL, SAMPLES_MIN, SAMPLES_MAX = 60.0, 16, 128
DISTANCE = 0.6  # of the clusters' centres, in units of their width: they overlap
TESTS = 2000
RATE, BATCH, EPOCHS = 0.02, 16, 2


@dataclass(frozen=True)
class ToyTask:
    """The training data of all clients, and the test data."""

    x: Array  # client, sample, feature; the last feature is 1
    y: np.ndarray[tuple[int, ...], np.dtype[np.int64]]  # client, sample
    mask: Array  # client, sample: 1 where there is a sample
    test_x: Array
    test_y: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    centres: Array

    @property
    def samples(self) -> Array:
        """How many samples each client processes per round."""
        return np.asarray(self.mask.sum(axis=1) * EPOCHS)

    @property
    def initial_weights(self) -> Array:
        """The weights before training."""
        return np.zeros((FEATURES + 1, CLASSES))


def draw_toy_task(clients: int, seed: int) -> ToyTask:
    """Draw data for a number of clients; the same seed gives the same data."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CLASSES, FEATURES)) * DISTANCE
    sizes = np.clip(
        rng.lognormal(np.log(SAMPLES_TYPICAL), 0.5, clients).astype(int), SAMPLES_MIN, SAMPLES_MAX
    )
    longest = int(sizes.max())
    label_shares = rng.dirichlet(np.full(CLASSES, SKEW), clients)
    y = np.array([rng.choice(CLASSES, longest, p=shares) for shares in label_shares])
    mask = (np.arange(longest) < sizes[:, None]).astype(float)
    test_y = rng.integers(0, CLASSES, TESTS)
    return ToyTask(
        _append_one(centres[y] + rng.standard_normal((clients, longest, FEATURES))),
        y,
        mask,
        _append_one(centres[test_y] + rng.standard_normal((TESTS, FEATURES))),
        test_y,
        centres,
    )


def _append_one(x: Array) -> Array:
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)


def train(task: ToyTask, weights: Array, picks: Picks) -> tuple[Array, Array]:
    """Train the picked clients from these weights; return the averaged weights and the losses.

    A loss is the root of the mean squared loss over a client's samples before training, which is
    what utility-driven selection uses.
    """
    x, y, mask = task.x[picks], task.y[picks], task.mask[picks]
    sizes = mask.sum(axis=1)
    local = np.repeat(weights[None], len(picks), axis=0)
    correct = np.take_along_axis(_softmax(x @ local), y[..., None], axis=-1)[..., 0]
    squared = np.log(np.maximum(correct, 1e-12)) ** 2
    losses = np.sqrt((squared * mask).sum(axis=1) / sizes)
    for _ in range(EPOCHS):
        for begin in range(0, x.shape[1], BATCH):
            batch = slice(begin, begin + BATCH)
            batch_mask = mask[:, batch, None]
            gradient = _softmax(x[:, batch] @ local)
            np.put_along_axis(
                gradient,
                y[:, batch, None],
                np.take_along_axis(gradient, y[:, batch, None], axis=-1) - 1,
                axis=-1,
            )
            count = np.maximum(batch_mask.sum(axis=1, keepdims=True), 1)
            step = x[:, batch].transpose(0, 2, 1) @ (gradient * batch_mask)
            local -= RATE * step / count
    return np.asarray(np.average(local, axis=0, weights=sizes)), losses


def accuracy(task: ToyTask, weights: Array) -> float:
    """Return the share of the test set that is classified correctly."""
    return float(((task.test_x @ weights).argmax(axis=1) == task.test_y).mean())


def best_accuracy(task: ToyTask) -> float:
    """Return the highest possible accuracy: that of a classifier that knows the clusters."""
    distance = ((task.test_x[:, None, :-1] - task.centres) ** 2).sum(axis=-1)
    return float((distance.argmin(axis=1) == task.test_y).mean())


def _softmax(scores: Array) -> Array:
    scores = scores - scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
