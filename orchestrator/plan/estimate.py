"""How long a sweep will take on a phone, from what runs took before. Pure.

The nearest past is asked first: the same cell on this phone, then on its siblings (phones of the
same model), then runs of the same protocol on this phone, then on siblings. Whatever was used is
said, and where there is nothing, nothing is made up: a run is then only known to last at least as
long as its protocol looks. What is not certain is drawn, many times, and told as the middle and the
ninth tenth of the totals.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from orchestrator.nouns import Trial
from orchestrator.plan.policy import Policy
from orchestrator.plan.sweep import Sweep
from workloads.catalogue import launch_of, workload_of
from workloads.phone import PhoneFacts

DRAWS = 200


@dataclass(frozen=True)
class PastRun:
    """How long a run took, by the clock of its host; cooling is a part of it."""

    phone: str
    model: str
    cell: tuple[str, str]
    protocol: str
    took_s: float
    cooled_s: float


class Basis(StrEnum):
    """Where an expectation comes from, the best first."""

    SAME = "history of this phone"
    SIBLINGS = "siblings of the same model"
    ALIKE = "other cells of this phone"
    ALIKE_SIBLINGS = "other cells of siblings"
    TWIN = "the twin, in the phone's own time"
    LENGTH = "the protocol's length; cooling is not known"


@dataclass(frozen=True)
class Span:
    """The middle and the ninth tenth of what a total may be."""

    p50_s: float
    p90_s: float


@dataclass(frozen=True)
class PhoneEstimate:
    """What a phone is in for."""

    phone: str
    trials: int
    runs: int  # at most
    measuring: Span
    cooling: Span | None  # None: not known
    total: Span
    bases: dict[Basis, int]  # how many trials rest on which


@dataclass(frozen=True)
class Expected:
    """What one run of a trial takes: pairs of measuring and cooling seconds to draw from."""

    basis: Basis
    pairs: tuple[tuple[float, float], ...]


class Past:
    """Past runs, sorted for those who ask."""

    def __init__(self, runs: Iterable[PastRun]) -> None:
        self._sorted: dict[tuple[object, ...], list[tuple[float, float]]] = {}
        for run in runs:
            pair = (max(0.0, run.took_s - run.cooled_s), run.cooled_s)
            for who in (("phone", run.phone), ("model", run.model)):
                for what in (run.cell, run.protocol):
                    self._sorted.setdefault((*who, what), []).append(pair)

    def expected(
        self,
        trial: Trial,
        cell: tuple[str, str],
        facts: PhoneFacts,
        twin: Mapping[str, Expected],
    ) -> Expected:
        """What a run of a trial takes, from the nearest past that there is."""
        protocol = trial.condition.protocol.value
        for basis, key in (
            (Basis.SAME, ("phone", facts.serial, cell)),
            (Basis.SIBLINGS, ("model", facts.model, cell)),
            (Basis.ALIKE, ("phone", facts.serial, protocol)),
            (Basis.ALIKE_SIBLINGS, ("model", facts.model, protocol)),
        ):
            if key in self._sorted:
                return Expected(basis, tuple(self._sorted[key]))
        return twin.get(protocol) or Expected(Basis.LENGTH, ((length_s(trial), 0.0),))


def length_s(trial: Trial) -> float:
    """How long a run measures at least, by its protocol; a workload without a phone takes none."""
    if not workload_of(trial.case).on_phone:
        return 0.0
    return launch_of(trial.case, trial.condition.launch).seconds


def estimate(
    sweep: Sweep,
    trials: Sequence[Trial],
    facts: PhoneFacts,
    past: Past,
    twin: Mapping[str, Expected] = MappingProxyType({}),
) -> PhoneEstimate:
    """What one phone is in for; its twin may know, by protocol, where the past does not."""
    cells = {sweep.trial_id(cell.key, facts.serial): cell.key for cell in sweep.cells}
    expected = {trial.id: past.expected(trial, cells[trial.id], facts, twin) for trial in trials}
    most = _runs_at_most(sweep.policy, [trial.id for trial in trials], sweep, facts.serial)
    chance = random.Random(sweep.seed)
    totals = [_total(expected, most, sweep.policy, chance) for _ in range(DRAWS)]
    bases = Counter(each.basis for each in expected.values())
    known = Basis.LENGTH not in bases
    return PhoneEstimate(
        phone=facts.serial,
        trials=len(trials),
        runs=sum(most.values()),
        measuring=_span([measured for measured, _ in totals]),
        cooling=_span([cooled for _, cooled in totals]) if known else None,
        total=_span([measured + cooled for measured, cooled in totals]),
        bases={basis: bases[basis] for basis in Basis if bases[basis]},
    )


def _runs_at_most(
    policy: Policy, trials: Sequence[str], sweep: Sweep, phone: str
) -> dict[str, int]:
    """How many runs each trial gets; the baseline's are more."""
    runs = dict.fromkeys(trials, policy.blocks)
    if policy.baseline is not None:
        control = sweep.trial_id(policy.baseline.cell, phone)
        if control in runs:
            runs[control] *= policy.baseline.runs_in(len(runs) - 1)
    return runs


def _total(
    expected: Mapping[str, Expected],
    most: Mapping[str, int],
    policy: Policy,
    chance: random.Random,
) -> tuple[float, float]:
    """One possible future: seconds of measuring and of cooling."""
    measured = cooled = 0.0
    for trial, what in expected.items():
        runs = most[trial]
        if policy.stop is not None and runs == policy.blocks:
            # Nobody knows beforehand how many it takes: every look is as likely as the next.
            runs = chance.choice(policy.stop.grid)
        if what.basis in (Basis.SAME, Basis.SIBLINGS):
            drawn = chance.choices(what.pairs, k=min(runs, len(what.pairs)))
        else:  # another cell's time is this one's only in kind
            drawn = [chance.choice(what.pairs)]
        measured += runs * sum(pair[0] for pair in drawn) / len(drawn)
        cooled += runs * sum(pair[1] for pair in drawn) / len(drawn)
    return measured, cooled


def _span(totals: list[float]) -> Span:
    ordered = sorted(totals)
    return Span(ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10])
