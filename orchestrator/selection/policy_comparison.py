"""Policies against each other, seed by seed: by how much, how surely, and where ours is behind."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.selection.fleet import Array
from orchestrator.selection.simulate import Outcome

SEEDS_MIN = 30  # below this nobody is called better than anybody
RESAMPLES = 4000
LEVEL = 0.95
OURS = "frugal"


@dataclass(frozen=True)
class Goal:
    """A figure that policies are held together by."""

    figure: str
    words: str
    relative: bool  # a ratio, else a difference
    better: int  # -1: less is, 1: more is
    to_target: bool = False  # counted until the accuracy is reached


GOALS = (
    Goal("time_s", "time to accuracy", True, -1, to_target=True),
    Goal("energy_j", "energy to accuracy", True, -1, to_target=True),
    Goal("rounds", "rounds to accuracy", True, -1, to_target=True),
    Goal("final_accuracy", "final accuracy", False, 1),
    Goal("unfairness", "fairness (Gini)", False, -1),
    Goal("flat", "flat batteries", False, -1),
)


@dataclass(frozen=True)
class Paired:
    """One policy against another over the same seeds: a ratio or a difference."""

    goal: Goal
    value: float
    low: float
    high: float
    missed: int  # seeds on which the policy never reached the accuracy: the value is too small
    other_missed: int  # seeds on which the other did not: the value is too large

    def __str__(self) -> str:
        if not self.goal.relative:
            return f"{self.value:+.3f} ({self.low:+.3f} to {self.high:+.3f})"
        bound = ("≤ " if self.other_missed else "") if not self.missed else "≥ "
        if self.missed and self.other_missed:
            bound = "about "
        return f"{bound}{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    @property
    def verdict(self) -> int:
        """1 if the policy is the better one, -1 if the worse one, 0 if that was not shown."""
        neutral = 1.0 if self.goal.relative else 0.0
        side = 1 if self.low > neutral else -1 if self.high < neutral else 0
        # Who never got there may have needed any amount: that proves nothing in its favour.
        if side * self.goal.better > 0 and self.missed and self.goal.to_target:
            return 0
        return side * self.goal.better


def hold(outcomes: Sequence[Outcome], policy: str, other: str, goal: Goal) -> Paired | None:
    """Pair two policies by seed, with a bootstrap interval over seeds; None if nobody knows."""
    theirs = {outcome.seed: outcome for outcome in outcomes if outcome.policy == other}
    pairs = [(o, theirs[o.seed]) for o in outcomes if o.policy == policy and o.seed in theirs]
    values = [(getattr(a, goal.figure), getattr(b, goal.figure)) for a, b in pairs]
    if not pairs or any(value is None for both in values for value in both):
        return None
    if goal.relative:
        if min(min(both) for both in values) <= 0:
            return None
        middle, low, high = np.exp(_interval(np.array([np.log(a / b) for a, b in values])))
    else:
        middle, low, high = _interval(np.array([a - b for a, b in values], dtype=float))
    missed = [sum(not side.reached for side in sides) for sides in zip(*pairs, strict=True)]
    bounds = missed if goal.to_target else [0, 0]
    return Paired(goal, float(middle), float(low), float(high), bounds[0], bounds[1])


def _interval(each: Array) -> tuple[float, float, float]:
    draws = np.random.default_rng(0).integers(0, len(each), (RESAMPLES, len(each)))
    low, high = np.quantile(each[draws].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(each.mean()), float(low), float(high)


def honest_words(outcomes: Sequence[Outcome], policies: Sequence[str], seeds: int) -> list[str]:
    """Where ours is ahead of all others, where it is behind, and where nothing was shown."""
    if OURS not in policies:
        return []
    if seeds < SEEDS_MIN:
        return [f"{seeds} seeds are too few to call a policy better; take {SEEDS_MIN} or more."]
    rivals = [policy for policy in policies if policy != OURS]
    ahead, said = [], []
    for goal in GOALS:
        held = {rival: paired for rival in rivals if (paired := hold(outcomes, OURS, rival, goal))}
        behind = {rival: paired for rival, paired in held.items() if paired.verdict < 0}
        unclear = [rival for rival, paired in held.items() if paired.verdict == 0]
        if not held:
            said.append(f"Nothing is known of {goal.words}.")
        elif behind:
            worst = sorted(behind, key=lambda rival: -abs(_distance(behind[rival])))
            told = ", ".join(f"{rival} {behind[rival]}" for rival in worst)
            said.append(f"In {goal.words} {OURS} is behind {told}.")
        elif unclear:
            said.append(
                f"In {goal.words} {OURS} was not shown to differ from {', '.join(unclear)}."
            )
        else:
            ahead.append(goal.words)
    if ahead:
        said.insert(0, f"In {' and '.join(ahead)} {OURS} is ahead of all others.")
    return said


def _distance(paired: Paired) -> float:
    return float(np.log(paired.value)) if paired.goal.relative else paired.value
