"""The book: what is known of heat, time and shares, as the scheduler remembers it from the store.

Everything in it can be read anew; a scheduler that starts begins with the last reports.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.dispatch.fair_share import (
    Candidate,
    ExpectedDuration,
    SweepShare,
    ThermalState,
    assign_runs,
)
from orchestrator.planning.estimate import RunTiming
from orchestrator.store import phone_queries, sweep_queries, timings, trial_queries
from orchestrator.store.database import Database
from orchestrator.store.next_runs import Assignment, NextRun
from workloads.catalogue import Case, cost_of, is_known, launch_for, workload_of
from workloads.protocol.condition import Condition
from workloads.protocol.messages import HostHeartbeat

HALF_LIFE_S = 1800.0  # after so long, what an owner used weighs half
FRESH = 0.4  # what the newest run weighs in what is expected of the next
RISE_MAX_C = 60.0
AT_ONCE = 50  # phones that get a run in one tick
TRIALS_MAX = 200_000
# Before any report: a phone of middling speed, power and weight.
PRIOR_GFLOPS, PRIOR_W, PRIOR_J_PER_K = 8.0, 4.0, 120.0

Key = tuple[str, str, str]  # case, condition, and phone or model


@dataclass
class TrialTiming:
    """What the runs of a trial were like: seconds, and degrees where they could be told."""

    run_s: float
    rise_c: float | None = None


class SchedulerHistory:
    """What the scheduler remembers."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._cursor: int | None = None
        self._seen: dict[Key, TrialTiming] = {}
        self._last: dict[str, RunTiming] = {}
        self._heats: dict[str, ThermalState] = {}
        self._models: dict[str, str] = {}
        self._trials: dict[str, tuple[str, str]] = {}
        self._priors: dict[tuple[str, str], ExpectedDuration] = {}
        self._stakes: dict[str, SweepShare] = {}
        self._used_s: dict[str, float] = {}
        self._under_way: dict[str, tuple[str, float]] = {}
        self._read_at = time.monotonic()
        self.left_out = False  # whether phones are left that could have been given a run just now

    def look(self, presences: Iterable[HostHeartbeat]) -> None:
        """Take over what heartbeats say of heat, and what was reported since."""
        for presence in presences:
            for phone in presence.phones:
                if phone.temp_c is not None and phone.cooling is not None:
                    self._heats[phone.serial] = ThermalState(
                        phone.temp_c, phone.cooling.rest_c, phone.cooling.time_constant_s
                    )
        self.left_out = False
        self._stakes.clear()
        self._age()
        made = timings.timings_since(self._db, self._cursor)
        if made:
            self._know_sweeps({run.sweep for run in made})
            if {run.phone for run in made} - self._models.keys():
                self._models = phone_queries.phone_models(self._db)
        for run in made:
            self._note(run)
            self._cursor = run.report

    def choose(self, lines: Sequence[NextRun]) -> list[Assignment]:
        """Pick a run for each phone that has a line.

        No more than a handful at once: the rest are next, and nobody else waits for long.
        """
        some = _a_handful(lines)
        self.left_out = len(some) < len(lines)
        lines = some
        self._know_sweeps({line.sweep for line in lines})
        self._know_trials({line.trial for line in lines})
        offers: dict[str, list[Candidate]] = {}
        for line in lines:
            expected = self.expected(line.trial, line.phone)
            offer = Candidate(line.phone, line.sweep, line.run, expected)
            offers.setdefault(line.phone, []).append(offer)
        chosen = assign_runs(offers, self._stakes, self.used_s, self._heats, time.time())
        for phone, offer in chosen.items():
            stake = self._stakes[offer.sweep]
            self._under_way[phone] = (stake.owner, offer.expected.run_s / stake.weight)
        return [Assignment(phone, offer.sweep, offer.run) for phone, offer in chosen.items()]

    @property
    def used_s(self) -> Mapping[str, float]:
        """What each owner has had of the lab lately, by weight, with what is under way."""
        used = dict(self._used_s)
        for owner, seconds in self._under_way.values():
            used[owner] = used.get(owner, 0.0) + seconds
        return used

    def expected(self, trial: str, phone: str) -> ExpectedDuration:
        """What a trial's next run will be like: by itself, by its siblings, or by its plan."""
        asked = self._trials[trial]
        found = [seen for name in self._names(phone) if (seen := self._seen.get((*asked, name)))]
        unseen = self._priors[asked]
        if not found:
            return unseen
        rise_c = next((seen.rise_c for seen in found if seen.rise_c is not None), unseen.rise_c)
        return ExpectedDuration(found[0].run_s, rise_c, unseen.start_max_c)

    def _note(self, run: RunTiming) -> None:
        stake = self._stakes[run.sweep]
        self._under_way.pop(run.phone, None)
        share = (run.ended_at_s - run.started_at_s) / stake.weight
        self._used_s[stake.owner] = self._used_s.get(stake.owner, 0.0) + max(0.0, share)
        for name in self._names(run.phone):
            seen = self._seen.setdefault(
                (run.case_digest, run.condition_digest, name), TrialTiming(run.measuring_s)
            )
            seen.run_s += FRESH * (run.measuring_s - seen.run_s)
        before = self._last.get(run.phone)
        if before is not None:
            self._note_rise(before, run)
        self._last[run.phone] = run

    def _note_rise(self, before: RunTiming, run: RunTiming) -> None:
        """How long a phone cooled afterwards tells how warm the run before had left it."""
        heat = self._heats.get(run.phone)
        if heat is None or before.start_temp_c is None or run.start_temp_c is None:
            return
        waited_s = run.started_at_s - before.ended_at_s + run.cooldown_s
        if not 0.0 <= waited_s <= 6 * heat.tau_s:
            return
        left_c = (run.start_temp_c - heat.rest_c) * math.exp(waited_s / heat.tau_s)
        began = ThermalState(before.start_temp_c, heat.rest_c, heat.tau_s).later(before.measuring_s)
        rise_c = min(max(heat.rest_c + left_c - began.temp_c, 0.0), RISE_MAX_C)
        for name in self._names(run.phone):
            seen = self._seen.get((before.case_digest, before.condition_digest, name))
            if seen is not None:
                old = rise_c if seen.rise_c is None else seen.rise_c
                seen.rise_c = old + FRESH * (rise_c - old)

    def _names(self, phone: str) -> list[str]:
        """Under what a phone's runs are remembered: its own, and what all of its model share."""
        model = self._models.get(phone)
        return [phone] if model is None else [phone, f"model {model}"]

    def _age(self) -> None:
        now = time.monotonic()
        share = 0.5 ** ((now - self._read_at) / HALF_LIFE_S)
        self._used_s = {owner: share * used for owner, used in self._used_s.items()}
        self._read_at = now

    def _know_sweeps(self, sweeps: set[str]) -> None:
        missing = sweeps - self._stakes.keys()
        for claim in sweep_queries.sweep_demands(self._db, missing) if missing else ():
            typical_s = [seen.run_s for seen in self._seen.values()]
            each_s = sum(typical_s) / len(typical_s) if typical_s and claim.left else 0.0
            self._stakes[claim.id] = SweepShare(
                *(claim.owner, claim.priority, claim.deadline, claim.created_at_s),
                remaining_s=each_s * claim.left,
            )

    def _know_trials(self, trials: set[str]) -> None:
        if len(self._trials) > TRIALS_MAX:
            self._trials.clear()
        missing = trials - self._trials.keys()
        if not missing:
            return
        found = trial_queries.cell_digests(self._db, missing)
        # One trial of each question is enough to know the question.
        asked = {key: trial for trial, key in found.items() if key not in self._priors}
        for case, condition in (
            trial_queries.cases_and_conditions(self._db, asked.values()) if asked else ()
        ):
            self._priors[(case.digest, condition.digest)] = prior(case, condition)
        self._trials |= found


def _a_handful(lines: Sequence[NextRun]) -> list[NextRun]:
    """The lines of as many phones as one tick may serve."""
    some = set(sorted({line.phone for line in lines})[:AT_ONCE])
    return [line for line in lines if line.phone in some]


def prior(case: Case, condition: Condition) -> ExpectedDuration:
    """What a run is expected to be like before anybody has made it: from the plan's arithmetic."""
    if not is_known(case) or not workload_of(case).on_phone:
        return ExpectedDuration(0.1, 0.0, None)
    launch = launch_for(case, condition.launch)
    step_s = cost_of(case).flops / (PRIOR_GFLOPS * 1e9)
    run_s = min(max(launch.seconds, step_s * (launch.warmup + launch.steps)), launch.max_seconds)
    return ExpectedDuration(run_s, PRIOR_W * run_s / PRIOR_J_PER_K, condition.start_temp_max_c)
