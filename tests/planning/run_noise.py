"""Noise like that recorded on phones, for tests of decisions that are based on it.

Step times vary by 0.5 to 7 % with pinned clocks and by 2 to 16 % without; a step depends on the one
before it (lag-1 autocorrelation from -0.7 to +0.15); the first block of a run is up to twice as
slow. Runs are separate processes: each has an independent random factor of the same size. The value
of a run is the median of its steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.median_interval import median_interval
from orchestrator.store.stop_rule import StopCause, StopDecision, decide_stop
from orchestrator.sweepfile.policy import StopRule

Array = np.ndarray[Any, np.dtype[np.float64]]
STEPS, FIRST_BLOCK = 20, 4


@dataclass(frozen=True)
class Noise:
    """How steps and runs of a trial vary."""

    cv: float
    lag_1: float

    def runs(self, trials: int, runs: int, rng: np.random.Generator) -> Array:
        """Draw the values of `runs` runs of `trials` trials whose undisturbed step takes 1."""
        shape = (trials, runs)
        factor = np.exp(self.cv * rng.standard_normal(shape))
        fresh = rng.standard_normal((*shape, STEPS))
        steps = np.empty_like(fresh)
        steps[..., 0] = fresh[..., 0]
        scale = np.sqrt(1 - self.lag_1**2)
        for step in range(1, STEPS):
            steps[..., step] = self.lag_1 * steps[..., step - 1] + scale * fresh[..., step]
        times = np.exp(self.cv * steps)
        times[..., :FIRST_BLOCK] *= rng.uniform(1.0, 2.0, (*shape, 1))
        values: Array = factor * np.median(times, axis=-1)
        return values

    def median(self) -> float:
        """Return the true median of a run's value, from 60,000 runs."""
        return float(np.median(self.runs(1, 60_000, np.random.default_rng(3))))


PINNED = [Noise(cv, lag) for cv in (0.005, 0.02, 0.07) for lag in (-0.7, 0.15)]
UNPINNED = [Noise(cv, lag) for cv in (0.02, 0.07, 0.16) for lag in (-0.7, 0.15)]


def stopped(noise: Noise, rule: StopRule, trials: int, seed: int = 11) -> list[StopDecision]:
    """Simulate trials with this noise until they stop."""
    rng = np.random.default_rng(seed)
    return [decide_stop(row, rule) for row in noise.runs(trials, rule.n_max, rng).tolist()]


def coverage(noise: Noise, decisions: Sequence[StopDecision]) -> float:
    """Return how often the interval at which a trial stopped covers the true median."""
    truth = noise.median()
    intervals = [each.interval for each in decisions if each.interval]
    return sum(each.low <= truth <= each.high for each in intervals) / len(decisions)


@dataclass(frozen=True)
class Saving:
    """The runs of trials that stop, and of trials with a fixed number of runs."""

    fixed: int  # runs that the noisiest trial needs for the same width
    mean: float  # runs of a trial that stops when it is precise enough
    precise: float  # share of trials that reached the width

    @property
    def share(self) -> float:
        """The share of runs saved."""
        return 1 - self.mean / self.fixed


def saving(rule: StopRule, trials: int) -> Saving:
    """Simulate trials of pinned phones, from the quietest to the noisiest in even steps."""
    rng = np.random.default_rng(5)
    noises = [Noise(float(cv), 0.15) for cv in np.linspace(0.005, 0.07, trials)]
    decisions = [decide_stop(noise.runs(1, rule.n_max, rng)[0].tolist(), rule) for noise in noises]
    precise = sum(each.cause is StopCause.WIDTH for each in decisions) / trials
    return Saving(
        _fixed_runs(noises[-1], rule),
        sum(each.interval.n for each in decisions if each.interval) / trials,
        precise,
    )


def _fixed_runs(noise: Noise, rule: StopRule) -> int:
    """Return the runs that reach the requested width in half of all cases, with one look."""
    sample = noise.runs(101, rule.n_max, np.random.default_rng(6))
    for runs in range(rule.n_min, rule.n_max):
        found = [median_interval(row, rule.confidence) for row in sample[:, :runs].tolist()]
        if np.median([each.half_width_rel for each in found]) <= rule.half_width_rel:
            return runs
    return rule.n_max
