"""Estimates how long a sweep takes on a phone, from past runs and from calculations. Pure.

The step time of a case under another condition predicts a run, because steps repeat. A simulated
phone's twin predicts it, too. Without any of these and without history only the minimum run length
of the protocol is known. P50 and P90 of the totals are drawn.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from orchestrator.planning.run_durations import Cell, Durations, EstimateBasis, ExpectedRun
from orchestrator.planning.trials import Trial
from orchestrator.sweepfile.sweep_file import Sweep
from workloads.catalogue import launch_for, workload_of
from workloads.protocol.phone_facts import PhoneFacts

DRAWS = 200
NO_SPEEDS: Mapping[str, float] = MappingProxyType({})


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


class CalculatedRun(NamedTuple):
    """A calculated run: seconds of the phone's clock, and the error of their logarithm."""

    measuring_s: float
    cooling_s: float = 0.0
    error: float = 0.0


class ProfiledStep(NamedTuple):
    """The mean step time of a case on a phone with some cores and clocks."""

    phone: str
    case_digest: str
    cores: str
    freq: str
    step_ms: float


class TimingHistory:
    """What is known of how long runs take: past runs, and step times to calculate with."""

    def __init__(
        self,
        durations: Durations,
        models: Mapping[str, str],
        profiles: Iterable[ProfiledStep] = (),
        speeds: Mapping[str, float] = NO_SPEEDS,
    ) -> None:
        """Index step times; `models` are those of phones, `speeds` those of their clocks."""
        self.durations = durations
        self._step_ms: dict[tuple[str, ...], float] = {}
        for profile in profiles:
            key = (profile.case_digest, profile.cores, profile.freq)
            self._step_ms.setdefault((models[profile.phone], *key), profile.step_ms)
            self._step_ms[(profile.phone, *key)] = profile.step_ms
        self._speeds = {models[phone]: speed for phone, speed in speeds.items()} | {**speeds}

    def estimate_run(
        self, trial: Trial, cell: Cell, facts: PhoneFacts, twin: Mapping[str, CalculatedRun]
    ) -> ExpectedRun:
        """Estimate a run of a trial from the closest history, or else from a calculation."""
        speed = self._speeds.get(facts.serial, self._speeds.get(facts.model, 1.0))

        def expect(basis: EstimateBasis, found: CalculatedRun) -> ExpectedRun:
            seconds = found.measuring_s + found.cooling_s
            share = found.cooling_s / seconds if seconds else 0.0
            return ExpectedRun(basis, seconds / speed, share, found.error)

        found = [expect(EstimateBasis.PROTOCOL_LENGTH, CalculatedRun(min_run_s(trial)))]
        step_ms = self.step_ms(trial, facts)
        if step_ms is not None:
            measured = self.durations.measured(facts.serial, cell)
            cooling_s = measured.cooling_s * speed if measured else 0.0
            predicted = CalculatedRun(predicted_run_s(trial, step_ms), cooling_s)
            found.append(expect(EstimateBasis.PROFILE, predicted))
        if prediction := twin.get(trial.condition.protocol.value):
            found.append(expect(EstimateBasis.TWIN, prediction))
        return self.durations.expected(facts.serial, cell, found)

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
    twin: Mapping[str, CalculatedRun] = MappingProxyType({}),
) -> PhoneEstimate:
    """Estimate one phone; its twin's predictions by protocol are used where history has none."""
    cells = {sweep.trial_id(cell.key, facts.serial): cell.key for cell in sweep.cells}
    runs = {trial.id: history.estimate_run(trial, cells[trial.id], facts, twin) for trial in trials}
    max_runs = _max_runs(sweep, [trial.id for trial in trials], facts.serial)
    totals = _draw_totals(sweep, [(runs[trial], max_runs[trial]) for trial in runs], history)
    cooling_s = sum(max_runs[trial] * run.cooling_s for trial, run in runs.items())
    all_s = sum(max_runs[trial] * run.seconds for trial, run in runs.items())
    share = cooling_s / all_s if all_s else 0.0
    bases = Counter(run.basis for run in runs.values())
    cooling_known = EstimateBasis.PROTOCOL_LENGTH not in bases
    return PhoneEstimate(
        phone=facts.serial,
        trials=len(trials),
        runs=sum(max_runs.values()),
        measuring=_percentiles([(1.0 - share) * total_s for total_s in totals]),
        cooling=_percentiles([share * total_s for total_s in totals]) if cooling_known else None,
        total=_percentiles(totals),
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


def _draw_totals(
    sweep: Sweep, runs: Sequence[tuple[ExpectedRun, int]], history: TimingHistory
) -> list[float]:
    """Draw possible totals: how many runs a stop rule needs is not known in advance."""
    durations, stop = history.durations, sweep.policy.stop
    is_fixed = [stop is None or times != sweep.policy.blocks for _, times in runs]
    fixed = durations.work(run for run, known in zip(runs, is_fixed, strict=True) if known)
    stopped = durations.work(run for run, known in zip(runs, is_fixed, strict=True) if not known)
    least = stop.grid[0] / stop.grid[-1] if stop is not None else 1.0
    rng = random.Random(sweep.seed)
    return [
        durations.draw_s(
            stopped.scaled(rng.uniform(least, 1.0)).plus(fixed), durations.draw_pace(rng), rng
        )
        for _ in range(DRAWS)
    ]


def _percentiles(totals: list[float]) -> DurationRange:
    ordered = sorted(totals)
    return DurationRange(ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10])
