"""Estimates how long a sweep takes on a phone, from past run times. Pure.

The closest history is used first: the same cell on this phone, then on phones of the same model;
then the step time of the same case on the same cores and clocks under another condition, because
steps repeat; then runs of the same protocol on this phone and on phones of the same model. Every
estimate names its basis. Without any history only the minimum run length of the protocol is known.
Uncertainty is propagated by Monte Carlo and reported as P50 and P90 of the totals.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from orchestrator.planning.trials import Trial
from orchestrator.sweepfile.policy import Policy
from orchestrator.sweepfile.sweep_file import Sweep
from workloads.catalogue import launch_for, workload_of
from workloads.protocol.phone_facts import PhoneFacts
from workloads.text import TextEnum

DRAWS = 200


class RunTiming(NamedTuple):
    """When a run started and ended by the clock of its host, and how much of that was cooling."""

    report: int  # number of its report; reports are numbered in the order of arrival
    sweep: str
    phone: str
    case_digest: str
    condition_digest: str
    started_at_s: float
    ended_at_s: float
    cooldown_s: float
    start_temp_c: float | None

    @property
    def measuring_s(self) -> float:
        """From start to end, without cooling."""
        return max(0.0, self.ended_at_s - self.started_at_s - self.cooldown_s)


class EstimateBasis(TextEnum):
    """What an estimate is based on, the best first."""

    SAME_PHONE = "same_phone", "history of this phone"
    SAME_MODEL = "same_model", "history of phones of this model"
    PROFILE = "profile", "step time of this case under another condition"
    OTHER_CELLS = "other_cells", "other cells on this phone"
    OTHER_CELLS_SAME_MODEL = "other_cells_same_model", "other cells on phones of this model"
    TWIN = "twin", "simulation, in simulated time"
    PROTOCOL_LENGTH = "protocol_length", "minimum length of the protocol, without cooldown"


_SAME_CASE = (EstimateBasis.SAME_PHONE, EstimateBasis.SAME_MODEL, EstimateBasis.PROFILE)


@dataclass(frozen=True)
class DurationRange:
    """The median and the 90th percentile of a total, in seconds."""

    p50_s: float
    p90_s: float


@dataclass(frozen=True)
class PhoneEstimate:
    """The estimated time of a sweep on one phone."""

    phone: str
    trials: int
    runs: int  # at most
    measuring: DurationRange
    cooling: DurationRange | None  # None: unknown
    total: DurationRange
    bases: dict[EstimateBasis, int]  # number of trials by basis


@dataclass(frozen=True)
class RunEstimate:
    """How long one run of a trial takes: pairs of measuring and cooling seconds to draw from."""

    basis: EstimateBasis
    pairs: tuple[tuple[float, float], ...]


class ProfiledStep(NamedTuple):
    """The mean step time of a case on a phone with some cores and clocks."""

    phone: str
    case_digest: str
    cores: str
    freq: str
    step_ms: float


class TimingHistory:
    """Past runs, indexed by phone or model, and by cell or protocol."""

    def __init__(
        self,
        runs: Iterable[RunTiming],
        models: Mapping[str, str],
        protocols: Mapping[str, str],
        profiles: Iterable[ProfiledStep] = (),
    ) -> None:
        """Index runs; `models` are those of phones, `protocols` those of condition digests."""
        self._pairs: dict[tuple[object, ...], list[tuple[float, float]]] = {}
        self._step_ms: dict[tuple[str, ...], float] = {}
        for profile in profiles:
            key = (profile.case_digest, profile.cores, profile.freq)
            self._step_ms.setdefault((models[profile.phone], *key), profile.step_ms)
            self._step_ms[(profile.phone, *key)] = profile.step_ms
        for run in runs:
            pair = (run.measuring_s, run.cooldown_s)
            cell = (run.case_digest, run.condition_digest)
            for owner in (("phone", run.phone), ("model", models[run.phone])):
                for kind in (cell, protocols[run.condition_digest]):
                    self._pairs.setdefault((*owner, kind), []).append(pair)

    def estimate_run(
        self,
        trial: Trial,
        cell: tuple[str, str],
        facts: PhoneFacts,
        twin: Mapping[str, RunEstimate],
    ) -> RunEstimate:
        """Estimate a run of a trial from the closest history that exists."""
        for basis, key in (
            (EstimateBasis.SAME_PHONE, ("phone", facts.serial, cell)),
            (EstimateBasis.SAME_MODEL, ("model", facts.model, cell)),
        ):
            if key in self._pairs:
                return RunEstimate(basis, tuple(self._pairs[key]))
        other = self._other_cells(trial, facts)
        step_ms = self.step_ms(trial, facts)
        if step_ms is not None:
            cooling = other.pairs if other else ((0.0, 0.0),)
            measuring_s = predicted_run_s(trial, step_ms)
            return RunEstimate(
                EstimateBasis.PROFILE, tuple((measuring_s, cooldown_s) for _, cooldown_s in cooling)
            )
        if other is not None:
            return other
        return twin.get(trial.condition.protocol.value) or RunEstimate(
            EstimateBasis.PROTOCOL_LENGTH, ((min_run_s(trial), 0.0),)
        )

    def _other_cells(self, trial: Trial, facts: PhoneFacts) -> RunEstimate | None:
        protocol = trial.condition.protocol.value
        for basis, key in (
            (EstimateBasis.OTHER_CELLS, ("phone", facts.serial, protocol)),
            (EstimateBasis.OTHER_CELLS_SAME_MODEL, ("model", facts.model, protocol)),
        ):
            if key in self._pairs:
                return RunEstimate(basis, tuple(self._pairs[key]))
        return None

    def step_ms(self, trial: Trial, facts: PhoneFacts) -> float | None:
        """Return the step time of the case on these cores and clocks, if it was ever measured."""
        key = (trial.case.digest, trial.condition.cores, trial.condition.freq)
        return self._step_ms.get((facts.serial, *key)) or self._step_ms.get((facts.model, *key))


def min_run_s(trial: Trial) -> float:
    """Return the minimum measuring time of the protocol; zero for a workload without a phone."""
    if not workload_of(trial.case).on_phone:
        return 0.0
    return launch_for(trial.case, trial.condition.launch).seconds


def predicted_run_s(trial: Trial, step_ms: float) -> float:
    """Return the measuring time of a run whose step time is known."""
    launch = launch_for(trial.case, trial.condition.launch)
    measured_s = max(launch.steps * step_ms / 1000, launch.seconds)
    return launch.warmup * step_ms / 1000 + min(measured_s, launch.max_seconds)


def estimate_phone(
    sweep: Sweep,
    trials: Sequence[Trial],
    facts: PhoneFacts,
    history: TimingHistory,
    twin: Mapping[str, RunEstimate] = MappingProxyType({}),
) -> PhoneEstimate:
    """Estimate one phone; its twin's estimates by protocol are used where history has none."""
    cells = {sweep.trial_id(cell.key, facts.serial): cell.key for cell in sweep.cells}
    estimates = {
        trial.id: history.estimate_run(trial, cells[trial.id], facts, twin) for trial in trials
    }
    max_runs = _max_runs(sweep, [trial.id for trial in trials], facts.serial)
    rng = random.Random(sweep.seed)
    totals = [_draw_total(estimates, max_runs, sweep.policy, rng) for _ in range(DRAWS)]
    bases = Counter(estimate.basis for estimate in estimates.values())
    cooling_known = EstimateBasis.PROTOCOL_LENGTH not in bases
    return PhoneEstimate(
        phone=facts.serial,
        trials=len(trials),
        runs=sum(max_runs.values()),
        measuring=_percentiles([measuring for measuring, _ in totals]),
        cooling=_percentiles([cooling for _, cooling in totals]) if cooling_known else None,
        total=_percentiles([measuring + cooling for measuring, cooling in totals]),
        bases={basis: bases[basis] for basis in EstimateBasis if bases[basis]},
    )


def _max_runs(sweep: Sweep, trials: Sequence[str], phone: str) -> dict[str, int]:
    """Return the maximum number of runs of each trial; a baseline has several per block."""
    policy = sweep.policy
    runs = dict.fromkeys(trials, policy.blocks)
    if policy.baseline is not None:
        baseline = sweep.trial_id(policy.baseline.cell, phone)
        if baseline in runs:
            runs[baseline] *= policy.baseline.runs_per_block(len(runs) - 1)
    return runs


def _draw_total(
    estimates: Mapping[str, RunEstimate],
    max_runs: Mapping[str, int],
    policy: Policy,
    rng: random.Random,
) -> tuple[float, float]:
    """Draw one possible total: seconds of measuring and of cooling."""
    measuring = cooling = 0.0
    for trial, estimate in estimates.items():
        runs = max_runs[trial]
        if policy.stop is not None and runs == policy.blocks:
            # The number of runs is not known in advance: every look is equally likely.
            runs = rng.choice(policy.stop.grid)
        if estimate.basis in _SAME_CASE:
            drawn = rng.choices(estimate.pairs, k=min(runs, len(estimate.pairs)))
        else:  # another cell shows only the order of magnitude, so its runs do not average out
            drawn = [rng.choice(estimate.pairs)]
        measuring += runs * sum(pair[0] for pair in drawn) / len(drawn)
        cooling += runs * sum(pair[1] for pair in drawn) / len(drawn)
    return measuring, cooling


def _percentiles(totals: list[float]) -> DurationRange:
    ordered = sorted(totals)
    return DurationRange(ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10])
