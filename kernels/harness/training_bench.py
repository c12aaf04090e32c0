"""Trains models on a device with every feed, next to the CPU.

Feeds take turns, with many steps in each; the fastest wall time of each counts, and the spread
over turns gives the interval of a ratio. All train the same batches from the same values; measured
times count only if the losses agree.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels.harness.local_runner import LocalRunner, StepTimes
from kernels.harness.matmul_bench import load_average
from workloads.catalogue import bind, lower
from workloads.models.perceptrons import WIDTHS
from workloads.run_options import FEEDS

_PERCEPTRON = (32, 50)
# Batch and steps per turn; on the CPU, a turn of a perceptron has more steps.
MODELS = {**dict.fromkeys(WIDTHS, _PERCEPTRON), "lenet": (32, 10), "squeezenet": (4, 1)}
NETWORK_FEED = "preloaded"  # of the larger models: the data set is on the device from the start
_CPU_STEPS = 40
_LOSS_ERROR = 0.01  # rounding alone makes a larger difference only after many more steps
_RESAMPLES = 2000


@dataclass
class FeedTurns:
    """The turns of one feed."""

    turns: list[StepTimes] = field(default_factory=list)

    @property
    def turns_s(self) -> list[float]:
        """The wall time of a step in every turn."""
        return [turn.step_s for turn in self.turns]

    @property
    def fastest(self) -> StepTimes:
        """The turn with the shortest steps."""
        return min(self.turns, key=lambda turn: turn.step_s)


@dataclass
class TrainedModel:
    """One model with its feeds, and on one thread of the CPU."""

    name: str
    batch: int
    feeds: dict[str, FeedTurns]
    engine_s: list[float] = field(default_factory=list)
    passed: bool = True
    load: float = float("nan")

    def speedup(self, feed: str) -> float:
        """How many times faster a feed is than the first one."""
        first = next(iter(self.feeds.values()))
        return first.fastest.step_s / self.feeds[feed].fastest.step_s

    def over_cpu(self, feed: str) -> tuple[float, float, float]:
        """Time on the device over time on the CPU: median, with a 95 % interval."""
        return ratio_with_interval(self.feeds[feed].turns_s, self.engine_s)


def train_model(
    runner: LocalRunner, name: str, rounds: int, on_round: Callable[[], None] = lambda: None
) -> TrainedModel:
    """Train one model; `on_round` is called after each round."""
    batch, steps = MODELS[name]
    feeds = FEEDS if name in WIDTHS else (NETWORK_FEED,)
    model = TrainedModel(name, batch, {feed: FeedTurns() for feed in feeds})
    plans = {
        backend: lower(bind(name, {"batch_size": batch}, backend=backend), 1)
        for backend in ("cpu", "opencl")
    }
    for _ in range(rounds):
        reference = runner.run(plans["cpu"], steps)
        for feed, turns in model.feeds.items():
            turns.turns.append(runner.run(plans["opencl"], steps, "--feed", feed))
            loss = turns.turns[-1].loss
            model.passed &= math.isclose(loss, reference.loss, rel_tol=_LOSS_ERROR)
        cpu = runner.run(plans["cpu"], _CPU_STEPS * steps) if name in WIDTHS else reference
        model.engine_s.append(cpu.step_s)
        on_round()
    model.load = load_average()
    return model


def ratio_with_interval(
    numerator: Sequence[float], denominator: Sequence[float]
) -> tuple[float, float, float]:
    """Return the ratio of medians and its 95 % bootstrap interval."""
    generator = np.random.default_rng(0)
    medians = [
        np.median(generator.choice(turns, (_RESAMPLES, len(turns))), 1)
        for turns in (numerator, denominator)
    ]
    low, high = np.percentile(medians[0] / medians[1], (2.5, 97.5))
    return float(np.median(numerator) / np.median(denominator)), float(low), float(high)


def growth(models: Sequence[TrainedModel], feed: str) -> dict[str, float]:
    """Return the cost of depth and width: three layers over one, 16 times the width over one."""
    rows = {model.name: model.feeds for model in models}
    pairs = {"depth, 16 wide": ("mlp-2", "mlp-1"), "width, one layer": ("mlp-3", "mlp-1")}
    pairs["width, three layers"] = ("mlp-4", "mlp-2")
    return {
        what: rows[large][feed].fastest.step_s / rows[small][feed].fastest.step_s
        for what, (large, small) in pairs.items()
        if large in rows and small in rows
    }
