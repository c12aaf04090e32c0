"""In-memory history for scheduling: run times, heating, usage per owner.

All of it comes from the store; a scheduler that starts reads the latest reports.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.dispatch.fair_share import (
    ExpectedDuration,
    SweepShare,
    ThermalState,
    assign_runs,
)
from orchestrator.planning.run_durations import (
    Cell,
    Durations,
    EstimateBasis,
    ExpectedRun,
    RunTiming,
)
from orchestrator.store import phone_queries, sweep_queries, timings, trial_queries
from orchestrator.store.database import Database
from orchestrator.store.next_runs import NextRun
from workloads.catalogue import Case, cost_of, is_known, launch_for, workload_of
from workloads.protocol.condition import REST, Condition
from workloads.protocol.messages import HostHeartbeat

HALF_LIFE_S = 1800.0  # the usage of an owner counts half after this time
NEWEST_WEIGHT = 0.4  # of the newest run in the moving average
RISE_MAX_C = 60.0
PHONES_PER_TICK_MAX = 50
TRIALS_MAX = 200_000
RUNS_MAX = 2000  # the newest, which expectations are based on
NEW_SHARE = 0.05  # of them, after which durations are learned once more
# Before any report: a phone of average speed, power and heat capacity.
PRIOR_GFLOPS, PRIOR_W, PRIOR_J_PER_K = 8.0, 4.0, 120.0


class SchedulerHistory:
    """Run times, thermal states and usage, as far as the scheduler knows them."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._cursor: int | None = None
        self._runs: deque[RunTiming] = deque(maxlen=RUNS_MAX)
        self._new_runs = 0  # that the expectations do not contain yet
        self._durations = Durations(())
        self._rises_c: dict[tuple[Cell, str], float] = {}  # moving averages by phone and model
        self._last: dict[str, RunTiming] = {}
        self._thermal_states: dict[str, ThermalState] = {}
        self._models: dict[str, str] = {}
        self._cells: dict[str, Cell] = {}  # per trial
        self._priors: dict[Cell, ExpectedDuration] = {}
        self._shares: dict[str, SweepShare] = {}
        self._used_s: dict[str, float] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._read_at = time.monotonic()
        self.has_more = False  # whether idle phones were left over by the last choice

    def update(self, heartbeats: Iterable[HostHeartbeat]) -> None:
        """Take over temperatures from heartbeats, and new reports from the store."""
        for beat in heartbeats:
            for phone in beat.phones:
                if phone.temp_c is not None and phone.cooling is not None:
                    rest_c = phone.cooling.rest_c if phone.rest_c is None else phone.rest_c
                    self._thermal_states[phone.serial] = ThermalState(
                        phone.temp_c, rest_c, phone.cooling.time_constant_s
                    )
        self.has_more = False
        self._shares.clear()
        self._decay_usage()
        runs = timings.timings_since(self._db, self._cursor)
        if runs:
            self._load_sweeps({run.sweep for run in runs})
            if {run.phone for run in runs} - self._models.keys():
                self._models = phone_queries.phone_models(self._db)
        for run in runs:
            self._add_run(run)
            self._cursor = run.report
        self._new_runs += len(runs)
        if self._new_runs > NEW_SHARE * len(self._runs):
            self._new_runs = 0
            self._durations = Durations(self._runs, self._models)

    def choose_runs(self, next_runs: Sequence[NextRun]) -> list[NextRun]:
        """Choose a run for each phone that has one.

        One call serves a limited number of phones, so that events and heartbeats are not delayed.
        """
        runs = _limit_phones(next_runs)
        self.has_more = len(runs) < len(next_runs)
        self._load_sweeps({run.sweep for run in runs})
        self._load_trials({run.trial for run in runs})
        expected = {run.run: self.expected_duration(run.trial, run.phone) for run in runs}
        chosen = assign_runs(
            runs, expected, self._shares, self.used_s, self._thermal_states, time.time()
        )
        for run in chosen:
            share = self._shares[run.sweep]
            self._running[run.phone] = (share.owner, expected[run.run].run_s / share.weight)
        return chosen

    @property
    def used_s(self) -> Mapping[str, float]:
        """Recent weighted usage per owner, including the runs that are running now."""
        used = dict(self._used_s)
        for owner, seconds in self._running.values():
            used[owner] = used.get(owner, 0.0) + seconds
        return used

    def expected_duration(self, trial: str, phone: str) -> ExpectedDuration:
        """Predict a trial's next run from past runs, else from its plan."""
        cell = self._cells[trial]
        prior = self._priors[cell]
        planned = ExpectedRun(EstimateBasis.PROTOCOL_LENGTH, prior.run_s)
        run_s = self._durations.expected(phone, cell, [planned]).measuring_s
        rises_c = (self._rises_c.get((cell, name)) for name in self._names(phone))
        rise_c = next((known for known in rises_c if known is not None), prior.rise_c)
        state, start_max_c = self._thermal_states.get(phone), prior.start_max_c
        if prior.start_above_rest_k is not None and state is not None:
            start_max_c = state.rest_c + prior.start_above_rest_k
        return ExpectedDuration(run_s, rise_c, start_max_c)

    def _add_run(self, run: RunTiming) -> None:
        share = self._shares[run.sweep]
        self._running.pop(run.phone, None)
        used_s = (run.ended_s - run.started_s) / share.weight
        self._used_s[share.owner] = self._used_s.get(share.owner, 0.0) + max(0.0, used_s)
        self._runs.append(run)
        previous = self._last.get(run.phone)
        if previous is not None:
            self._update_rise(previous, run)
        self._last[run.phone] = run

    def _update_rise(self, previous: RunTiming, run: RunTiming) -> None:
        """Derive how much the previous run warmed the phone from the cooling before this run."""
        state = self._thermal_states.get(run.phone)
        if state is None or previous.start_temp_c is None or run.start_temp_c is None:
            return
        rest_c, time_constant_s = state.rest_c, state.time_constant_s
        waited_s = run.started_s - previous.ended_s + run.cooldown_s
        if not 0.0 <= waited_s <= 6 * time_constant_s:
            return
        left_c = (run.start_temp_c - rest_c) * math.exp(waited_s / time_constant_s)
        start = ThermalState(previous.start_temp_c, rest_c, time_constant_s)
        unheated_c = start.after(previous.measuring_s).temp_c
        rise_c = min(max(rest_c + left_c - unheated_c, 0.0), RISE_MAX_C)
        for name in self._names(run.phone):
            average_c = self._rises_c.setdefault((previous.cell, name), rise_c)
            self._rises_c[previous.cell, name] = average_c + NEWEST_WEIGHT * (rise_c - average_c)

    def _names(self, phone: str) -> list[str]:
        """Return the names under which a phone's heat is averaged: its serial and its model."""
        model = self._models.get(phone)
        return [phone] if model is None else [phone, f"model {model}"]

    def _decay_usage(self) -> None:
        now = time.monotonic()
        factor = 0.5 ** ((now - self._read_at) / HALF_LIFE_S)
        self._used_s = {owner: factor * used for owner, used in self._used_s.items()}
        self._read_at = now

    def _load_sweeps(self, sweeps: set[str]) -> None:
        missing = sweeps - self._shares.keys()
        for demand in sweep_queries.sweep_demands(self._db, missing) if missing else ():
            self._shares[demand.id] = SweepShare(
                *(demand.owner, demand.priority, demand.deadline, demand.created_at_s),
                remaining_s=self._durations.mean_s * demand.left,
            )

    def _load_trials(self, trials: set[str]) -> None:
        if len(self._cells) > TRIALS_MAX:
            self._cells.clear()
        missing = trials - self._cells.keys()
        if not missing:
            return
        cells = trial_queries.cell_digests(self._db, missing)
        # One trial per cell is enough to load case and condition. The digests are the stored ones,
        # because those of a workload that this version does not know cannot be computed.
        unknown = {cell: trial for trial, cell in cells.items() if cell not in self._priors}
        found = trial_queries.cases_and_conditions(self._db, unknown.values()) if unknown else {}
        for cell, trial in unknown.items():
            if trial in found:
                self._priors[cell] = prior_duration(*found[trial])
        self._cells |= cells


def _limit_phones(next_runs: Sequence[NextRun]) -> list[NextRun]:
    """Return the runs of as many phones as one tick may serve."""
    phones = set(sorted({run.phone for run in next_runs})[:PHONES_PER_TICK_MAX])
    return [run for run in next_runs if run.phone in phones]


def prior_duration(case: Case, condition: Condition) -> ExpectedDuration:
    """Predict a run before any report exists, from the cost of its plan."""
    if not is_known(case) or not workload_of(case).on_phone:
        return ExpectedDuration(0.1, 0.0, None)
    launch = launch_for(case, condition.launch)
    step_s = cost_of(case).flops / (PRIOR_GFLOPS * 1e9)
    run_s = min(max(launch.seconds, step_s * (launch.warmup + launch.steps)), launch.max_seconds)
    above_k = condition.above_rest_k if condition.start_temp_max_c == REST else None
    rise_c, start_max_c = PRIOR_W * run_s / PRIOR_J_PER_K, condition.start_limit_c(None)
    return ExpectedDuration(run_s, rise_c, start_max_c, above_k)
