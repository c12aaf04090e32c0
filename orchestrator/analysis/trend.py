"""A phone and a workload over time: where the figures took a step, and did not come back.

A step is believed if the runs before and after it differ by more than the margin, and chance would
not have made the best of all possible cuts look like that. Figures of unlike making are never one
history.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from orchestrator.analysis.bootstrap import Pair, spread_of
from orchestrator.analysis.stats import median
from orchestrator.analysis.versus import CHANCE, MARGIN, Word, higher_is_better
from orchestrator.nouns import Making, TrialFigures
from workloads.text import natural

RUNS_A_SIDE = 4
PRICE = 3.0  # of a cut, in what noise alone would gain by it
CHANCE_OF_A_STEP = CHANCE / 5  # many histories are looked at, again and again


@dataclass(frozen=True)
class Step:
    """Where a history changed."""

    at: datetime  # of the first run after it
    before: float
    after: float
    p: float  # that of the best cut, times the cuts there were
    verdict: Word

    @property
    def ratio(self) -> float:
        """What is after, over what was before."""
        return self.after / self.before


@dataclass(frozen=True)
class History:
    """All valid runs of one case under one condition on one phone, made in one way."""

    phone: str
    model: str
    case: str
    condition: str
    metric: str
    making: Making
    sweeps: int
    times: tuple[datetime, ...]
    values: tuple[float, ...]
    steps: tuple[Step, ...]


def histories(trials: Iterable[TrialFigures], margin: float = MARGIN) -> list[History]:
    """Every history among some trials, of whichever sweeps they are, with its steps."""
    groups: dict[tuple[str, str, str, Making], list[TrialFigures]] = {}
    for trial in trials:
        if len(trial.makings) == 1:
            (making,) = trial.makings
            key = (trial.phone, trial.case.digest, trial.condition.digest, making)
            groups.setdefault(key, []).append(trial)
    found = [_history(own, key[3], margin) for key, own in groups.items()]
    return sorted(
        found, key=lambda each: (each.model, each.phone, natural(each.case), each.condition)
    )


def _history(trials: Sequence[TrialFigures], making: Making, margin: float) -> History:
    runs = sorted(
        (at, value) for trial in trials for at, value in zip(trial.times, trial.values, strict=True)
    )
    times, values = tuple(at for at, _ in runs), tuple(value for _, value in runs)
    first = trials[0]
    return History(
        phone=first.phone,
        model=first.model,
        case=first.case.label,
        condition=first.condition.label,
        metric=first.metric,
        making=making,
        sweeps=len({trial.sweep for trial in trials}),
        times=times,
        values=values,
        steps=_steps(first.metric, times, values, margin),
    )


def _steps(
    metric: str, times: Sequence[datetime], values: Sequence[float], margin: float
) -> tuple[Step, ...]:
    cuts = _believed(values, _cuts(values), margin)
    steps = []
    for before, cut, after in _neighbours(cuts, len(values)):
        old, new = median(values[before:cut]), median(values[cut:after])
        better = (new > old) == higher_is_better(metric)
        word = Word.FASTER if better else Word.SLOWER
        steps.append(Step(times[cut], old, new, _p(values, before, cut, after), word))
    return tuple(steps)


def _neighbours(cuts: Sequence[int], n: int) -> list[tuple[int, int, int]]:
    """Every cut with where the stretch before it begins, and where the one after it ends."""
    edges = [0, *cuts, n]
    return [(edges[at], edges[at + 1], edges[at + 2]) for at in range(len(cuts))]


def _believed(values: Sequence[float], cuts: list[int], margin: float) -> list[int]:
    """Drop the weakest cut, again and again, until all that are left can be believed."""
    while cuts:
        found = []
        for before, cut, after in _neighbours(cuts, len(values)):
            change = abs(median(values[cut:after]) / median(values[before:cut]) - 1)
            p = _p(values, before, cut, after) if change > margin else 1.0
            found.append((p, -change, cut))
        weakest = max(found)
        if weakest[0] <= CHANCE_OF_A_STEP:
            return cuts
        cuts = [cut for cut in cuts if cut != weakest[2]]
    return []


def _p(values: Sequence[float], before: int, cut: int, after: int) -> float:
    """How often chance makes the best of all cuts look like this one."""
    spread = spread_of([Pair("", values[before:cut], values[cut:after])])
    return 1.0 if spread is None else min(1.0, spread.p_value() * len(values))


def _cuts(values: Sequence[float]) -> list[int]:
    """Cut so that what is left of scatter, and a price for every cut, is as little as can be.

    Wild runs are drawn in first, so that none of them is a stretch of its own.
    """
    n = len(values)
    if n < 2 * RUNS_A_SIDE:
        return []
    logs = np.log(values)
    noise = float(np.median(np.abs(np.diff(logs)))) / (0.6745 * np.sqrt(2)) or 1e-9
    smooth = np.array([np.median(logs[max(0, at - 2) : at + 3]) for at in range(n)])
    logs = np.clip(logs, smooth - 3 * noise, smooth + 3 * noise)
    sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (logs, logs**2))
    price = PRICE * noise**2 * np.log(n)
    best, last = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=int)
    best[0] = -price
    for end in range(RUNS_A_SIDE, n + 1):
        starts = np.arange(end - RUNS_A_SIDE + 1)
        length = end - starts
        scatter = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / length
        total = best[starts] + scatter + price
        last[end] = int(np.argmin(total))
        best[end] = total[last[end]]
    cuts, at = [], n
    while last[at] > 0:
        at = int(last[at])
        cuts.append(at)
    return cuts[::-1]
