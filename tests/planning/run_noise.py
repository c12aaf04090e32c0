"""Noise of the character that was recorded on phones, for tests of what is decided from it.

Step times vary by 0.5 to 7 % where clocks are pinned and by 2 to 16 % where they are not; a step
leans on the one before it (lag-1 autocorrelation from -0.7 to +0.15); the first block of a run is
up to twice as slow. Runs are processes of their own: what one of them had of luck (a share of the
same size) the next does not inherit. A run's figure is the median of its steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.plan.policy import StopRule
from orchestrator.plan.stopping import Decision, Stop, decide, interval

Array = np.ndarray[Any, np.dtype[np.float64]]
STEPS, FIRST_BLOCK = 20, 4


@dataclass(frozen=True)
class Noise:
    """How steps and runs of a trial vary."""

    cv: float
    lag_1: float

    def runs(self, trials: int, runs: int, chance: np.random.Generator) -> Array:
        """Figures of so many runs of so many trials whose undisturbed step takes 1."""
        shape = (trials, runs)
        luck = np.exp(self.cv * chance.standard_normal(shape))
        fresh = chance.standard_normal((*shape, STEPS))
        steps = np.empty_like(fresh)
        steps[..., 0] = fresh[..., 0]
        kept = np.sqrt(1 - self.lag_1**2)
        for step in range(1, STEPS):
            steps[..., step] = self.lag_1 * steps[..., step - 1] + kept * fresh[..., step]
        times = np.exp(self.cv * steps)
        times[..., :FIRST_BLOCK] *= chance.uniform(1.0, 2.0, (*shape, 1))
        figures: Array = luck * np.median(times, axis=-1)
        return figures

    def median(self) -> float:
        """The true median of a run's figure, from very many runs."""
        return float(np.median(self.runs(1, 60_000, np.random.default_rng(3))))


PINNED = [Noise(cv, lag) for cv in (0.005, 0.02, 0.07) for lag in (-0.7, 0.15)]
UNPINNED = [Noise(cv, lag) for cv in (0.02, 0.07, 0.16) for lag in (-0.7, 0.15)]


def stopped(noise: Noise, rule: StopRule, trials: int, seed: int = 11) -> list[Decision]:
    """How so many trials with this noise end."""
    chance = np.random.default_rng(seed)
    return [decide(row, rule) for row in noise.runs(trials, rule.n_max, chance).tolist()]


def coverage(noise: Noise, found: Sequence[Decision]) -> float:
    """How often the interval at which a trial ended held the true median."""
    truth = noise.median()
    return sum(each.low <= truth <= each.high for each in found) / len(found)


@dataclass(frozen=True)
class Saving:
    """Runs of a sweep that stops, beside those of one that does not."""

    fixed: int  # runs of every trial that the noisiest needs for the same width
    mean: float  # runs of a trial that stops when it is known
    known: float  # share of trials that ended by their width

    @property
    def share(self) -> float:
        """How many runs fewer."""
        return 1 - self.mean / self.fixed


def saving(rule: StopRule, trials: int) -> Saving:
    """Trials as pinned phones have them, from the quietest to the noisiest in even steps."""
    chance = np.random.default_rng(5)
    noises = [Noise(float(cv), 0.15) for cv in np.linspace(0.005, 0.07, trials)]
    found = [decide(noise.runs(1, rule.n_max, chance)[0].tolist(), rule) for noise in noises]
    known = sum(each.stop is Stop.WIDTH for each in found) / trials
    return Saving(_fixed_runs(noises[-1], rule), sum(each.n for each in found) / trials, known)


def _fixed_runs(noise: Noise, rule: StopRule) -> int:
    """How many runs give a trial the width that is asked in half of all cases, with one look."""
    sample = noise.runs(101, rule.n_max, np.random.default_rng(6))
    for runs in range(rule.n_min, rule.n_max):
        ends = [interval(row, rule.confidence) for row in sample[:, :runs].tolist()]
        if np.median([(high - low) / 2 / middle for low, middle, high in ends]) <= (
            rule.half_width_rel
        ):
            return runs
    return rule.n_max
