"""Compares simulated policies, paired by seed, with bootstrap intervals over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from orchestrator.selection.round_clock import Array
from orchestrator.selection.simulate import SimulationOutcome

SEEDS_MIN = 30  # with fewer seeds no policy is called better
RESAMPLES = 4000
LEVEL = 0.95
OURS = "frugal"


@dataclass(frozen=True)
class PolicyMetric:
    """A field of SimulationOutcome that policies are compared by."""

    field: str
    label: str
    relative: bool  # compared as a ratio, else as a difference
    better: int  # -1: lower is better, 1: higher is better
    to_target: bool = False  # counted until the target accuracy is reached


TIME = PolicyMetric("time_s", "time to accuracy", True, -1, to_target=True)
ENERGY = PolicyMetric("energy_j", "energy to accuracy", True, -1, to_target=True)
POLICY_METRICS = (
    TIME,
    ENERGY,
    PolicyMetric("rounds", "rounds to accuracy", True, -1, to_target=True),
    PolicyMetric("final_accuracy", "final accuracy", False, 1),
    PolicyMetric("unfairness", "fairness (Gini)", False, -1),
    PolicyMetric("flat_batteries", "flat batteries", False, -1),
)


class PolicyVerdict(StrEnum):
    """Whether a policy differs from another one."""

    BETTER = "better"
    WORSE = "worse"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class PolicyDelta:
    """A ratio or a difference between two policies over the same seeds."""

    metric: PolicyMetric
    value: float
    low: float
    high: float
    missed: int  # seeds on which the policy never reached the accuracy: the value is too small
    other_missed: int  # seeds on which the other did not: the value is too large

    def __str__(self) -> str:
        if not self.metric.relative:
            return f"{self.value:+.3f} ({self.low:+.3f} to {self.high:+.3f})"
        bound = ("≤ " if self.other_missed else "") if not self.missed else "≥ "
        if self.missed and self.other_missed:
            bound = "about "
        return f"{bound}{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    @property
    def verdict(self) -> PolicyVerdict:
        """Whether the policy is better or worse; unclear if that was not shown."""
        neutral = 1.0 if self.metric.relative else 0.0
        side = 1 if self.low > neutral else -1 if self.high < neutral else 0
        advantage = side * self.metric.better
        if advantage < 0:
            return PolicyVerdict.WORSE
        # A policy that never reached the accuracy may have needed any amount.
        if advantage == 0 or (self.missed and self.metric.to_target):
            return PolicyVerdict.UNCLEAR
        return PolicyVerdict.BETTER


def compare_policies(
    outcomes: Sequence[SimulationOutcome], policy: str, other: str, metric: PolicyMetric
) -> PolicyDelta | None:
    """Pair two policies by seed, with a bootstrap interval over seeds; None if unknown."""
    others = {outcome.seed: outcome for outcome in outcomes if outcome.policy == other}
    pairs = [(o, others[o.seed]) for o in outcomes if o.policy == policy and o.seed in others]
    values = [(getattr(a, metric.field), getattr(b, metric.field)) for a, b in pairs]
    if not pairs or any(value is None for both in values for value in both):
        return None
    if metric.relative:
        if min(min(both) for both in values) <= 0:
            return None
        middle, low, high = np.exp(_interval(np.array([np.log(a / b) for a, b in values])))
    else:
        middle, low, high = _interval(np.array([a - b for a, b in values], dtype=float))
    missed = [sum(not side.reached for side in sides) for sides in zip(*pairs, strict=True)]
    bounds = missed if metric.to_target else [0, 0]
    return PolicyDelta(metric, float(middle), float(low), float(high), bounds[0], bounds[1])


def _interval(differences: Array) -> tuple[float, float, float]:
    n = len(differences)
    draws = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
    means = differences[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(differences.mean()), float(low), float(high)


def summarize_policies(
    outcomes: Sequence[SimulationOutcome], policies: Sequence[str], seeds: int
) -> list[str]:
    """Yield where frugal is better than all others, where it is worse, and what is unclear."""
    if OURS not in policies:
        return []
    if seeds < SEEDS_MIN:
        return [f"{seeds} seeds are too few to call a policy better; use {SEEDS_MIN} or more."]
    rivals = [policy for policy in policies if policy != OURS]
    better, sentences = [], []
    for metric in POLICY_METRICS:
        deltas = {
            rival: delta
            for rival in rivals
            if (delta := compare_policies(outcomes, OURS, rival, metric))
        }
        worse = {r: delta for r, delta in deltas.items() if delta.verdict is PolicyVerdict.WORSE}
        unclear = [r for r, delta in deltas.items() if delta.verdict is PolicyVerdict.UNCLEAR]
        if not deltas:
            sentences.append(f"Unknown: {metric.label}.")
        elif worse:
            ordered = sorted(worse, key=lambda rival: -abs(_distance(worse[rival])))
            listed = ", ".join(f"{rival} {worse[rival]}" for rival in ordered)
            sentences.append(f"In {metric.label}, {OURS} is worse than {listed}.")
        elif unclear:
            listed = ", ".join(unclear)
            sentences.append(f"In {metric.label}, {OURS} shows no clear difference from {listed}.")
        else:
            better.append(metric.label)
    if better:
        sentences.insert(0, f"In {' and '.join(better)}, {OURS} is better than all others.")
    return sentences


def _distance(delta: PolicyDelta) -> float:
    return float(np.log(delta.value)) if delta.metric.relative else delta.value
