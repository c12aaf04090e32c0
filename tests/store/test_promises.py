"""Poison, stopping and drawn orders, as they are kept in the store."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select

from orchestrator.nouns import PlannedRun, RunState
from orchestrator.plan.policy import Budget, Policy, StopRule
from orchestrator.store import backlog, budgets, control, leases, queries
from orchestrator.store.control import By
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.lines import Line, Pick, drawn_blocks, first_come
from orchestrator.store.tables import run
from tests.builders import SIMULATED, a_faulty_report, a_phone, a_report, a_sighting, a_trial
from tests.builders import planned as line_up
from workloads.catalogue import bind
from workloads.fault import FarmError, Hung, Interrupted, RunnerFailed
from workloads.measure import Metric
from workloads.messages import Job

ANNA = By("anna@desk")
PHONES = ("PH1", "PH2", "PH3")
OTHER_CASE = bind("mlp-4", {})
HOSTS = dict.fromkeys(PHONES, "host-a")


@pytest.fixture(autouse=True)
def phones(store: Database) -> None:
    """Three phones of host-a."""
    store_parcels(store, "host-a", [a_sighting(a_phone(name)) for name in PHONES])


def submit(store: Database, repeat: int, policy: Policy | None = None) -> None:
    """One case for every phone, so many times."""
    wishes = (policy or Policy()).model_dump(mode="json")
    sweep = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
    trials = [a_trial(0, name) for name in PHONES]
    backlog.submit(store, {**sweep, "policy": wishes}, trials, line_up(trials, repeat))


def lease(store: Database, phone: str, now: float) -> Job:
    ((_, job),) = leases.lease_next(store, {phone: "host-a"}, lease_s=30, now=now)
    return job


def counts(store: Database) -> dict[RunState, int]:
    return queries.sweep_summaries(store)[0].runs


def die(store: Database, phone: str, error: FarmError, times: int, now: float = 2e9) -> list[str]:
    """Let attempts on a phone die of something; answer the kinds of events of the last one."""
    kinds: list[str] = []
    for number in range(times):
        job = lease(store, phone, now + 1000 * number)
        stored = store_parcels(store, "host-a", [a_faulty_report(job, error)])
        kinds = [event.kind for event in stored.events]
    return kinds


def test_a_case_that_kills_attempts_on_two_phones_is_held_with_the_evidence(
    store: Database,
) -> None:
    submit(store, repeat=4)
    assert "poisoned" not in die(store, "PH1", Hung("no answer"), 2)
    assert "poisoned" in die(store, "PH2", Hung("no answer"), 2)
    assert {RunState.HELD: 12} == counts(store)
    why = queries.held_runs(store, "sw-00000001")[0][3]
    assert "poisoned: it kills attempts on 2 phones (PH1: 2 attempts died, at last: Hung" in why
    assert [] == leases.lease_next(store, HOSTS, lease_s=30, now=3e9)
    control.retry(store, "sw-00000001", ANNA)
    assert {RunState.QUEUED: 12} == counts(store)
    assert "poisoned" not in die(store, "PH1", Hung("no answer"), 1, now=3e9), "a clean record"


def test_an_agent_that_dies_now_and_then_poisons_nothing(store: Database) -> None:
    submit(store, repeat=6)
    for number in range(3):
        for phone in PHONES:
            assert die(store, phone, Interrupted(), 2, now=2e9 + 1e6 * number) == ["fault"]
            job = lease(store, phone, 2e9 + 1e6 * number + 1e5)
            store_parcels(store, "host-a", [a_report(job)])
    assert {RunState.DONE: 9, RunState.QUEUED: 9} == counts(store)


def test_a_case_that_takes_its_agent_with_it_each_time_is_held(store: Database) -> None:
    submit(store, repeat=2)
    die(store, "PH1", Interrupted(), 2)
    begun = {lease(store, "PH1", 3e9).run}
    assert [()] == [gone.events for gone in leases.expire(store, 3e9 + 60, begun)]
    assert "poisoned" in die(store, "PH2", Interrupted(), 3)


def test_a_job_that_never_reached_its_host_says_nothing_of_its_case(store: Database) -> None:
    submit(store, repeat=2)
    die(store, "PH1", Interrupted(), 2)
    lease(store, "PH1", 3e9)
    assert 1 == len(leases.expire(store, 3e9 + 60))
    assert "poisoned" not in die(store, "PH2", Interrupted(), 3)


def test_cases_that_die_together_died_of_something_else(store: Database) -> None:
    """A host that goes down again and again takes every case with it, and poisons none."""
    sweep = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
    trials = [a_trial(0, "PH1"), a_trial(0, "PH2"), replace(a_trial(1, "PH3"), case=OTHER_CASE)]
    backlog.submit(store, sweep, trials, line_up(trials, 4))
    for number in range(4):
        jobs = [lease(store, phone, 2e9 + 1000 * number) for phone in PHONES]
        gone = [a_faulty_report(job, Interrupted()) for job in jobs]
        store_parcels(store, "host-a", gone)
    assert {RunState.QUEUED: 12} == counts(store)


def test_a_trial_that_is_known_is_spared_its_other_runs(store: Database) -> None:
    submit(store, 12, Policy(stop=StopRule(half_width_rel=0.05, n_min=6, n_max=12)))
    noises = {"PH1": 0.001, "PH2": 0.4}
    for number in range(6):
        for phone, noise in noises.items():
            value = 10.0 * (1 + noise * (-1) ** number * (number + 1) / 6)
            figure = Metric(name="step_ms", value=value, unit="ms", provenance=SIMULATED)
            job = lease(store, phone, 2e9)
            stored = store_parcels(store, "host-a", [a_report(job, metrics=(figure,))])
            known = [event.text for event in stored.events if event.kind == "known"]
            assert (number == 5 and phone == "PH1") == bool(known)
    assert {RunState.DONE: 12, RunState.SPARED: 6, RunState.QUEUED: 18} == counts(store)
    ((trial, why),) = queries.stopped_trials(store, "sw-00000001").items()
    assert (a_trial(0, "PH1").id, True) == (trial, why.startswith("width: "))


def test_a_budget_that_is_used_up_pauses_the_sweep_until_somebody_lifts_it(
    store: Database,
) -> None:
    submit(store, 3, Policy(budget=Budget(failures=0)))
    assert [] == budgets.pause_overspent(store, 2e9)
    store_parcels(store, "host-a", [a_faulty_report(lease(store, "PH1", 2e9), RunnerFailed("x"))])
    (change,) = budgets.pause_overspent(store, 2e9)
    assert {"state": "paused"} == change.after
    (row,) = queries.audit(store)
    assert ("its budget", "pause") == (row.who, row.verb)
    assert "1 runs failed, and no more than 0 may" in queries.sweep_summaries(store)[0].state_why
    control.resume(store, "sw-00000001", ANNA)
    assert [] == budgets.pause_overspent(store, 2e9)


def test_a_chosen_order_is_followed_and_kept_and_others_stay_undecided(store: Database) -> None:
    trials = [a_trial(number) for number in range(3)]
    places = [(0, 2), (1, 0), (2, 1)]
    runs = [
        PlannedRun(trial.id, block, block, 3 * block + where[0], where)
        for block in range(2)
        for trial, where in zip(trials, places, strict=True)
    ]
    sweep = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
    backlog.submit(store, sweep, trials, runs)

    def second_order(lines: list[Line]) -> list[Pick]:
        if not lines[0].undecided:
            return first_come(lines)
        (block,) = drawn_blocks(store, lines)
        assert block.block < 1 or block.is_last
        first = block.runs[block.order(1)[0]]
        return [Pick(block.phone, block.sweep, first, block, 1)]

    made = []
    for number in range(4):
        ((_, job),) = leases.lease_next(
            store, {"PH1": "host-a"}, lease_s=30, now=2e9 + number, choose=second_order
        )
        made.append((job.run.trial, job.run.repeat))
        store_parcels(store, "host-a", [a_report(job)])
    ids = [trial.id for trial in trials]
    assert [(ids[1], 0), (ids[2], 0), (ids[0], 0), (ids[1], 1)] == made
    with store.read() as connection:
        rows = connection.execute(select(run.c.position, run.c.chosen).order_by(run.c.id)).all()
    assert [(2, 1), (0, 1), (1, 1), (5, 1), (3, 1), (4, 1)] == [tuple(row) for row in rows]


def test_two_schedulers_at_once_lease_each_phone_once(store: Database) -> None:
    submit(store, repeat=8)
    jobs: list[Job] = []
    for _ in range(3):
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(leases.lease_next, store, HOSTS, 30.0) for _ in range(6)]
            won = [job for each in asked for _, job in each.result()]
        assert sorted(PHONES) == sorted(job.phone for job in won)
        store_parcels(store, "host-a", [a_report(job) for job in won])
        jobs += won
    assert 9 == len({(job.run.trial, job.run.repeat) for job in jobs})
    fences = [job.fence for job in jobs if job.phone == "PH1"]
    assert sorted(set(fences)) == fences


def test_a_clock_that_was_set_back_does_not_keep_a_lost_lease_alive(store: Database) -> None:
    submit(store, repeat=1)
    lease(store, "PH1", now=2e9)
    hour_ago = 2e9 - 3600
    leases.renew(store, leases.under_way(store), {}, latest=hour_ago + 30)
    assert 1 == len(leases.expire(store, hour_ago + 31))
