"""The backlog: what a submission adds, who gets which run, and what a lease is worth."""

import time

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from orchestrator.nouns import RunState
from orchestrator.store import backlog, leases
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.tables import run
from tests.builders import a_phone, a_run, a_sighting, a_trial, planned

SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}


def submit(store: Database, phones: int = 1, trials: int = 2, repeat: int = 1) -> None:
    """Submit trials for phones PH1.. that host-a has."""
    names = [f"PH{number + 1}" for number in range(phones)]
    store_parcels(store, "host-a", [a_sighting(a_phone(name)) for name in names])
    made = [a_trial(number, name) for name in names for number in range(trials)]
    backlog.submit(store, SWEEP, made, planned(made, repeat))


def states(store: Database) -> list[str]:
    """The state of every run."""
    with store.read() as connection:
        return list(connection.execute(select(run.c.state).order_by(run.c.id)).scalars())


def test_submitting_twice_queues_nothing_twice(store: Database) -> None:
    store_parcels(store, "host-a", [a_sighting(a_phone())])
    trials = [a_trial(0), a_trial(1)]
    first = backlog.submit(store, SWEEP, trials, planned(trials, 3))
    again = backlog.submit(store, SWEEP, trials, planned(trials, 3))
    assert (2, 6, 6) == (first.new_trials, first.new_runs, first.all_runs)
    assert (0, 0, 6) == (again.new_trials, again.new_runs, again.all_runs)
    assert [RunState.QUEUED] * 6 == states(store)


def test_each_idle_phone_gets_the_first_run_of_its_line(store: Database) -> None:
    submit(store, phones=3, trials=2)
    jobs = leases.lease_next(store, {"PH1": "host-a", "PH3": "host-b"}, lease_s=30)
    expected = {("host-a", a_trial(0, "PH1").id), ("host-b", a_trial(0, "PH3").id)}
    assert expected == {(host, job.run.trial) for host, job in jobs}


def test_a_phone_with_a_lease_gets_no_second_one(store: Database) -> None:
    submit(store)
    assert 1 == len(leases.lease_next(store, {"PH1": "host-a"}, lease_s=30))
    assert [] == leases.lease_next(store, {"PH1": "host-a"}, lease_s=30)


def test_the_database_itself_refuses_two_leases_on_a_phone(store: Database) -> None:
    submit(store)
    leases.lease_next(store, {"PH1": "host-a"}, lease_s=30)
    with store.read() as connection:
        held = connection.execute(select(run).where(run.c.state == RunState.LEASED)).one()._asdict()
    second = held | {"id": None, "repeat": 99}
    with pytest.raises(IntegrityError), store.write() as connection:
        connection.execute(insert(run), [second])


def test_every_lease_has_a_new_attempt_and_a_higher_fence(store: Database) -> None:
    submit(store, trials=1)
    seen = []
    for _ in range(3):
        ((_, job),) = leases.lease_next(store, {"PH1": "host-a"}, lease_s=30)
        seen.append((job.run.attempt, job.fence))
        leases.expire(store, time.time() + 60)
    first = seen[0][1]
    assert [(1, first), (2, first + 1), (3, first + 2)] == seen
    assert first > time.time() - 60, "ahead of every fence that an earlier store gave out"


def test_a_heartbeat_renews_its_attempt_and_no_other(store: Database) -> None:
    submit(store, trials=1)
    ((_, job),) = leases.lease_next(store, {"PH1": "host-a"}, lease_s=10, now=1000.0)
    older = job.run.model_copy(update={"attempt": 7})
    held = leases.under_way(store)
    assert 0 == leases.renew(store, held, {older: 9000.0}, latest=9000.0)
    assert 1 == leases.renew(store, held, {job.run: 2000.0}, latest=9000.0)
    assert [] == leases.expire(store, 1500.0)
    assert [leases.Expired(job.run, "PH1")] == leases.expire(store, 2500.0)
    assert [RunState.QUEUED] == states(store)


def test_heartbeats_renew_every_lease_of_a_busy_lab(store: Database) -> None:
    submit(store, phones=2)
    idle = {"PH1": "host-a", "PH2": "host-a"}
    jobs = [job for _, job in leases.lease_next(store, idle, lease_s=10, now=1000.0)]
    running = {job.run: 2000.0 + number for number, job in enumerate(jobs)}
    assert 2 == leases.renew(store, leases.under_way(store), running, latest=9000.0)
    assert {2000.0, 2001.0} == {each.until for each in leases.under_way(store)}


def test_a_run_that_must_wait_is_passed_over(store: Database) -> None:
    submit(store, trials=1)
    with store.write() as connection:
        connection.execute(run.update().values(not_before=5000.0))
    assert [] == leases.lease_next(store, {"PH1": "host-a"}, lease_s=30, now=4999.0)
    assert 1 == len(leases.lease_next(store, {"PH1": "host-a"}, lease_s=30, now=5000.0))


def test_what_the_store_never_heard_of_is_unfinished(store: Database) -> None:
    submit(store)
    assert {a_run(5)} == leases.unfinished(store, {a_run(5)})
