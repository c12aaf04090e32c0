"""Submitting sweeps, leasing runs to phones, renewing and expiring leases."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from orchestrator.planning.states import RunState
from orchestrator.store import leases, submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.tables import run
from tests.builders import a_phone, a_report, a_run, a_trial, an_announcement, planned_runs
from tests.leasing import lease_next
from workloads.protocol.messages import Job

SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}


def submit(store: Database, phones: int = 1, trials: int = 2, repeat: int = 1) -> None:
    """Submit trials for phones PH1, PH2, ... of host-a."""
    names = [f"PH{number + 1}" for number in range(phones)]
    store_parcels(store, "host-a", [an_announcement(a_phone(name)) for name in names])
    all_trials = [a_trial(number, name) for name in names for number in range(trials)]
    submission.submit(store, SWEEP, all_trials, planned_runs(all_trials, repeat))


def states(store: Database) -> list[str]:
    """Return the state of every run."""
    with store.read() as connection:
        return list(connection.execute(select(run.c.state).order_by(run.c.id)).scalars())


def test_submitting_twice_queues_every_run_once(store: Database) -> None:
    store_parcels(store, "host-a", [an_announcement(a_phone())])
    trials = [a_trial(0), a_trial(1)]
    first = submission.submit(store, SWEEP, trials, planned_runs(trials, 3))
    second = submission.submit(store, SWEEP, trials, planned_runs(trials, 3))
    assert (first.new_trials, first.new_runs, first.all_runs) == (2, 6, 6)
    assert (second.new_trials, second.new_runs, second.all_runs) == (0, 0, 6)
    assert states(store) == [RunState.QUEUED] * 6


def test_each_idle_phone_gets_the_first_run_of_its_queue(store: Database) -> None:
    submit(store, phones=3, trials=2)
    jobs = lease_next(store, {"PH1": "host-a", "PH3": "host-b"}, lease_timeout_s=30)
    expected = {("host-a", a_trial(0, "PH1").id), ("host-b", a_trial(0, "PH3").id)}
    assert {(host, job.run.trial) for host, job in jobs} == expected


def test_a_phone_with_a_lease_gets_no_second_one(store: Database) -> None:
    submit(store)
    assert len(lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30)) == 1
    assert lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30) == []


def test_the_database_itself_refuses_two_leases_on_a_phone(store: Database) -> None:
    submit(store)
    lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30)
    with store.read() as connection:
        leased = (
            connection.execute(select(run).where(run.c.state == RunState.LEASED)).one()._asdict()
        )
    second = leased | {"id": None, "repeat": 99}
    with pytest.raises(IntegrityError), store.write() as connection:
        connection.execute(insert(run), [second])


def test_every_lease_has_a_new_attempt_and_a_higher_fence(store: Database) -> None:
    submit(store, trials=1)
    attempts = []
    for _ in range(3):
        ((_, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30)
        attempts.append((job.run.attempt, job.fence))
        leases.expire(store, time.time() + 60)
    first = attempts[0][1]
    assert attempts == [(1, first), (2, first + 1), (3, first + 2)]
    assert first > time.time() - 60, "higher than every fence of an earlier store"


def test_a_heartbeat_renews_only_its_own_attempt(store: Database) -> None:
    submit(store, trials=1)
    ((_, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=10, now=1000.0)
    older = job.run.model_copy(update={"attempt": 7})
    leased = leases.leased_runs(store)
    assert leases.renew(store, leased, {older: 9000.0}, latest=9000.0) == 0
    assert leases.renew(store, leased, {job.run: 2000.0}, latest=9000.0) == 1
    assert leases.expire(store, 1500.0) == []
    lost = leases.ExpiredLease(job.run, "PH1", "host-a", str(SWEEP["id"]))
    assert leases.expire(store, 2500.0) == [lost]
    assert states(store) == [RunState.QUEUED]


def test_an_attempt_that_is_alive_keeps_its_lease(store: Database) -> None:
    submit(store, trials=1)
    ((_, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=10, now=1000.0)
    assert leases.expire(store, 2000.0, alive={job.run}) == []
    assert states(store) == [RunState.LEASED]


def test_heartbeats_renew_every_lease_of_a_busy_lab(store: Database) -> None:
    submit(store, phones=2)
    idle = {"PH1": "host-a", "PH2": "host-a"}
    jobs = [job for _, job in lease_next(store, idle, lease_timeout_s=10, now=1000.0)]
    running = {job.run: 2000.0 + number for number, job in enumerate(jobs)}
    assert leases.renew(store, leases.leased_runs(store), running, latest=9000.0) == 2
    assert {each.until for each in leases.leased_runs(store)} == {2000.0, 2001.0}


def test_a_run_that_must_wait_is_skipped(store: Database) -> None:
    submit(store, trials=1)
    with store.write() as connection:
        connection.execute(run.update().values(not_before=5000.0))
    assert lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=4999.0) == []
    assert len(lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=5000.0)) == 1


def test_an_unknown_run_is_unfinished(store: Database) -> None:
    submit(store)
    assert {a_run(5)} == leases.unfinished_runs(store, {a_run(5)})


def test_two_schedulers_at_once_lease_each_phone_once(store: Database) -> None:
    submit(store, phones=3, trials=1, repeat=8)
    names = ["PH1", "PH2", "PH3"]
    hosts = dict.fromkeys(names, "host-a")
    jobs: list[Job] = []
    for _ in range(3):
        with ThreadPoolExecutor(2) as pool:
            requests = [pool.submit(lease_next, store, hosts, 30.0) for _ in range(6)]
            leased = [job for each in requests for _, job in each.result()]
        assert sorted(names) == sorted(job.phone for job in leased)
        store_parcels(store, "host-a", [a_report(job) for job in leased])
        jobs += leased
    assert len({(job.run.trial, job.run.repeat) for job in jobs}) == 9
    fences = [job.fence for job in jobs if job.phone == "PH1"]
    assert sorted(set(fences)) == fences


def test_a_clock_that_was_set_back_does_not_keep_a_lost_lease_alive(store: Database) -> None:
    submit(store, trials=1)
    lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=2e9)
    hour_ago = 2e9 - 3600
    leases.renew(store, leases.leased_runs(store), {}, latest=hour_ago + 30)
    assert len(leases.expire(store, hour_ago + 31)) == 1
