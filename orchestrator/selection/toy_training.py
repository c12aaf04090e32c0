"""A small federated training that is real: label-skewed data, local epochs, averaged weights.

Softmax regression on overlapping clusters. Every client holds few labels, as people's phones do; so
a server that always asks the same phones never hears of some labels, and its accuracy shows it.
"""

from dataclasses import dataclass

import numpy as np

from orchestrator.selection.fleet import Array, Picks

FEATURES, CLASSES = 24, 10
SKEW = 0.15  # of the Dirichlet draw of labels: small is few labels a client
SAMPLES_TYPICAL, SAMPLES_MIN, SAMPLES_MAX = 60.0, 16, 128
DISTANCE = 0.6  # of the clusters' centres, in units of their width: they overlap
TESTS = 2000
RATE, BATCH, EPOCHS = 0.02, 16, 2


@dataclass(frozen=True)
class Task:
    """What all phones of a simulation learn together."""

    x: Array  # client, sample, feature; the last feature is 1
    y: np.ndarray[tuple[int, ...], np.dtype[np.int64]]  # client, sample
    mask: Array  # client, sample: 1 where there is one
    test_x: Array
    test_y: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    centres: Array

    @property
    def samples(self) -> Array:
        """How many samples each client passes through in a round."""
        return np.asarray(self.mask.sum(axis=1) * EPOCHS)

    @property
    def nothing(self) -> Array:
        """The weights before anything is learned."""
        return np.zeros((FEATURES + 1, CLASSES))


def draw_task(clients: int, seed: int) -> Task:
    """Draw data for so many clients; the same seed draws the same."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CLASSES, FEATURES)) * DISTANCE
    sizes = np.clip(
        rng.lognormal(np.log(SAMPLES_TYPICAL), 0.5, clients).astype(int), SAMPLES_MIN, SAMPLES_MAX
    )
    longest = int(sizes.max())
    labels = rng.dirichlet(np.full(CLASSES, SKEW), clients)
    y = np.array([rng.choice(CLASSES, longest, p=share) for share in labels])
    mask = (np.arange(longest) < sizes[:, None]).astype(float)
    test_y = rng.integers(0, CLASSES, TESTS)
    return Task(
        _with_one(centres[y] + rng.standard_normal((clients, longest, FEATURES))),
        y,
        mask,
        _with_one(centres[test_y] + rng.standard_normal((TESTS, FEATURES))),
        test_y,
        centres,
    )


def _with_one(x: Array) -> Array:
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)


def train(task: Task, weights: Array, picks: Picks) -> tuple[Array, Array]:
    """Let the picked clients train from these weights; answer their average and their losses.

    A loss is the root of the mean squared loss over a client's samples before it trained, which is
    what utility-driven selection feeds on.
    """
    x, y, mask = task.x[picks], task.y[picks], task.mask[picks]
    sizes = mask.sum(axis=1)
    own = np.repeat(weights[None], len(picks), axis=0)
    picked = np.take_along_axis(_probabilities(x @ own), y[..., None], axis=-1)[..., 0]
    squared = np.log(np.maximum(picked, 1e-12)) ** 2
    losses = np.sqrt((squared * mask).sum(axis=1) / sizes)
    for _ in range(EPOCHS):
        for begin in range(0, x.shape[1], BATCH):
            part = slice(begin, begin + BATCH)
            here = mask[:, part, None]
            wrong = _probabilities(x[:, part] @ own)
            np.put_along_axis(
                wrong,
                y[:, part, None],
                np.take_along_axis(wrong, y[:, part, None], axis=-1) - 1,
                axis=-1,
            )
            count = np.maximum(here.sum(axis=1, keepdims=True), 1)
            own -= RATE * (x[:, part].transpose(0, 2, 1) @ (wrong * here)) / count
    return np.asarray(np.average(own, axis=0, weights=sizes)), losses


def accuracy(task: Task, weights: Array) -> float:
    """The share of the test set that is told right."""
    return float(((task.test_x @ weights).argmax(axis=1) == task.test_y).mean())


def within_reach(task: Task) -> float:
    """The best accuracy that anybody can come to: of who knows where the clusters lie."""
    distance = ((task.test_x[:, None, :-1] - task.centres) ** 2).sum(axis=-1)
    return float((distance.argmin(axis=1) == task.test_y).mean())


def _probabilities(scores: Array) -> Array:
    scores = scores - scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
