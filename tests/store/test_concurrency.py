"""Concurrent operators, submissions, leases and reports: every run ends exactly once."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import func, select

from orchestrator.planning.states import ReportStatus, RunState, SweepState
from orchestrator.store import (
    leases,
    phone_actions,
    submission,
    sweep_actions,
    sweep_queries,
    tables,
)
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.operator_change import Actor
from tests.builders import (
    a_faulty_report,
    a_phone,
    a_report,
    a_trial,
    an_announcement,
    planned_runs,
)
from tests.leasing import lease_next
from workloads.protocol.faults import FarmTrouble, InvalidRequest
from workloads.protocol.messages import Job

SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
PHONES = ("PH1", "PH2", "PH3")
HOSTS = dict.fromkeys(PHONES, "host-a")
ANNA = Actor("anna@desk")


@pytest.fixture(autouse=True)
def phones(store: Database) -> None:
    """Three phones of host-a."""
    store_parcels(store, "host-a", [an_announcement(a_phone(name)) for name in PHONES])


def submit(store: Database, repeat: int = 3) -> submission.SubmissionCounts:
    """Submit two trials per phone."""
    trials = [a_trial(number, name) for name in PHONES for number in range(2)]
    return submission.submit(store, SWEEP, trials, planned_runs(trials, repeat))


def operator_actions(store: Database, rng: random.Random) -> list[Callable[[], object]]:
    """Return the actions of an operator, with random arguments."""
    phone, sweep = rng.choice(PHONES), "sw-00000001"
    return [
        lambda: sweep_actions.pause(store, sweep, ANNA),
        lambda: sweep_actions.resume(store, sweep, ANNA),
        lambda: sweep_actions.cancel(store, sweep, ANNA),
        lambda: sweep_actions.resume(store, sweep, ANNA),
        lambda: sweep_actions.retry(store, sweep, ANNA),
        lambda: sweep_actions.set_priority(store, sweep, ANNA, rng.randint(0, 100)),
        lambda: phone_actions.reserve(store, phone, ANNA, "bert"),
        lambda: phone_actions.unreserve(store, phone, ANNA),
        lambda: phone_actions.set_drained(store, "host-a", ANNA, True),
        lambda: phone_actions.set_drained(store, "host-a", ANNA, False),
    ]


def lease_jobs(store: Database, now: float = 2e9) -> list[Job]:
    """Lease the next run of every phone."""
    return [job for _, job in lease_next(store, HOSTS, lease_timeout_s=30, now=now)]


def finish(store: Database) -> None:
    """Undo every stop, and finish every remaining run."""
    sweep_actions.resume(store, "sw-00000001", ANNA)
    for phone in PHONES:
        phone_actions.unreserve(store, phone, ANNA)
    leases.expire(store, 4e9)
    sweep_actions.retry(store, "sw-00000001", ANNA)
    for number in range(30):
        for job in lease_jobs(store, now=5e9 + 1000 * number):
            store_parcels(store, "host-a", [a_report(job)])


def check_all_done_once(store: Database) -> None:
    """Check that every run is done and has one accepted report."""
    summary = sweep_queries.sweep_summaries(store)[0]
    assert summary.runs == {RunState.DONE: 18}
    with store.read() as connection:
        accepted = select(func.count()).where(tables.report.c.status == ReportStatus.ACCEPTED)
        assert connection.execute(accepted).scalar_one() == 18


@pytest.mark.parametrize("seed", [1, 2])
def test_a_stopped_sweep_or_phone_starts_nothing_in_any_history(store: Database, seed: int) -> None:
    """Two hundred random actions, leases and reports, some of them doubled or late."""
    submit(store)
    rng = random.Random(seed)
    leased: list[Job] = []
    for _ in range(200):
        match rng.randrange(6):
            case 0 | 1:
                with suppress(InvalidRequest):
                    rng.choice(operator_actions(store, rng))()
            case 2 | 3:
                state = sweep_queries.sweep_summaries(store)[0].state
                free = [phone for phone in PHONES if not is_reserved(store, phone)]
                jobs = lease_jobs(store)
                assert not jobs or state is SweepState.ACTIVE
                assert {job.phone for job in jobs} <= set(free)
                leased += jobs
            case 4 if leased:  # new, finished or superseded
                job = rng.choice(leased)
                failed = rng.random() < 0.2
                report = a_faulty_report(job, FarmTrouble()) if failed else a_report(job)
                store_parcels(store, "host-a", [report] * rng.choice([1, 1, 3]))
            case _:
                leases.expire(store, 2e9 + 31 if rng.random() < 0.3 else 2e9)
    finish(store)
    check_all_done_once(store)


def is_reserved(store: Database, phone: str) -> bool:
    with store.read() as connection:
        by = select(tables.phone.c.reserved_by).where(tables.phone.c.serial == phone)
        return bool(connection.execute(by).scalar_one())


def test_four_operators_and_two_schedulers_at_once_lose_nothing(store: Database) -> None:
    submit(store)

    def operate(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(50):
            with suppress(InvalidRequest):
                rng.choice(operator_actions(store, rng))()

    def work(_: int) -> None:
        for _ in range(15):
            store_parcels(store, "host-a", [a_report(job) for job in lease_jobs(store)])

    with ThreadPoolExecutor(6) as pool:
        operators = [pool.submit(operate, seed) for seed in range(4)]
        schedulers = [pool.submit(work, number) for number in range(2)]
        for each in (*operators, *schedulers):
            each.result(60)
    finish(store)
    check_all_done_once(store)


def test_a_sweep_submitted_four_times_at_once_is_queued_once(store: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        counts = [each.result(60) for each in [pool.submit(submit, store) for _ in range(4)]]
    assert sum(each.new_runs for each in counts) == 18
    assert {each.all_runs for each in counts} == {18}
    finish(store)
    check_all_done_once(store)
