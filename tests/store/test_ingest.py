"""Ingest: every parcel is stored once, however often and in whatever order it arrives."""

from datetime import UTC, datetime
from time import time

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError

from orchestrator.planning.states import RunState
from orchestrator.planning.trials import PlannedRun
from orchestrator.store import (
    leases,
    phone_actions,
    phone_queries,
    results,
    submission,
    sweep_queries,
    tables,
)
from orchestrator.store.audit_log import AUTOMATIC_MAX, audit_entries
from orchestrator.store.chunk_quota import CHUNK_BYTES_MIN, ChunkQuota
from orchestrator.store.database import Database
from orchestrator.store.ingest import Delivery, store_deliveries, store_parcels
from orchestrator.store.operator_change import Actor
from orchestrator.store.tables import run
from tests.builders import (
    SIMULATED,
    a_faulty_report,
    a_phone,
    a_report,
    a_trial,
    a_void_report,
    an_announcement,
    planned_runs,
)
from tests.leasing import lease_next
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import (
    FarmError,
    FarmTrouble,
    FaultKind,
    InvalidRequest,
    Killed,
    RunnerDied,
    TooHot,
    Unreachable,
)
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.messages import (
    AnyParcel,
    Chunk,
    CommandKind,
    CommandResult,
    Job,
    split_into_chunks,
)
from workloads.protocol.metrics import Metric, Provenance, Provenances, Source

MEASURED = Provenance(source=Source.PHONE)
SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}


@pytest.fixture
def job(store: Database) -> Job:
    """A job that is leased to PH1 of host-a."""
    store_parcels(store, "host-a", [an_announcement(a_phone())])
    trials = [a_trial(0), a_trial(1)]
    submission.submit(store, SWEEP, trials, planned_runs(trials))
    return lease(store)


def lease(store: Database) -> Job:
    """Lease the next run of PH1."""
    ((_, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=2e9)
    return job


def state_of(store: Database, job: Job) -> str:
    """Return the state of the run of a job."""
    with store.read() as connection:
        query = select(run.c.state).where(run.c.trial == job.run.trial)
        return str(connection.execute(query).scalar_one())


def count(store: Database, status: str) -> int:
    """Count the reports of a status."""
    with store.read() as connection:
        query = select(func.count()).where(tables.report.c.status == status)
        return connection.execute(query).scalar_one()


def test_a_report_that_arrives_three_times_is_stored_once(store: Database, job: Job) -> None:
    report = a_report(job)
    first = store_parcels(store, "host-a", [report, report])
    second = store_parcels(store, "host-a", [report])
    assert count(store, "accepted") == 1
    assert state_of(store, job) == RunState.DONE
    assert (len(first.events), len(second.events)) == (1, 0)
    assert [report.parcel_id] == second.confirmed


def test_the_database_itself_refuses_two_accepted_reports(store: Database, job: Job) -> None:
    store_parcels(store, "host-a", [a_report(job)])
    with store.read() as connection:
        stored = connection.execute(select(tables.report)).one()._asdict()
    second = stored | {"id": None, "attempt": 99}
    with pytest.raises(IntegrityError), store.write() as connection:
        connection.execute(insert(tables.report), [second])


def test_metrics_keep_their_provenance(store: Database, job: Job) -> None:
    store_parcels(store, "host-a", [a_report(job)])
    with store.read() as connection:
        name, origin, value = (
            connection.execute(select(table)).one()
            for table in (tables.metric_name, tables.metric_origin, tables.metric_value)
        )
    assert (value.name, value.origin) == (name.id, origin.id)
    found = (name.name, value.value, origin.source, origin.model)
    assert found == ("step_ms", 12.5, "simulated", "extrapolated")


def test_a_report_of_an_older_attempt_is_stored_as_stale(store: Database, job: Job) -> None:
    leases.expire(store, 3e9)
    newer = lease(store)
    store_parcels(store, "host-a", [a_report(job)])
    assert (
        count(store, "stale"),
        count(store, "accepted"),
        state_of(store, job),
    ) == (1, 0, RunState.LEASED)
    store_parcels(store, "host-a", [a_report(newer)])
    assert (
        count(store, "stale"),
        count(store, "accepted"),
        state_of(store, job),
    ) == (1, 1, RunState.DONE)


def test_a_late_report_counts_while_no_newer_attempt_exists(store: Database, job: Job) -> None:
    leases.expire(store, 3e9)
    store_parcels(store, "host-a", [a_report(job)])
    assert (count(store, "accepted"), state_of(store, job)) == (1, RunState.DONE)


def renumbered(job: Job, **changes: int) -> Job:
    """Return a job with other numbers in its run."""
    return job.model_copy(update={"run": job.run.model_copy(update=changes)})


def test_a_host_cannot_report_for_another(store: Database, job: Job) -> None:
    """Neither now nor for a later attempt: the true report is stored after the forged ones."""
    forged = [a_report(job, host="host-b"), a_report(renumbered(job, attempt=2), host="host-b")]
    refused = store_parcels(store, "host-b", forged).refused
    assert [host for host, _ in refused] == ["host-b", "host-b"]
    assert (count(store, "stale"), state_of(store, job)) == (0, RunState.LEASED)
    store_parcels(store, "host-a", [a_faulty_report(job, FarmTrouble())])
    second = lease(store)
    assert second.run.attempt == 2
    store_parcels(store, "host-a", [a_report(second)])
    assert (count(store, "accepted"), state_of(store, job)) == (1, RunState.DONE)


def test_a_stale_report_of_another_host_does_not_displace_the_true_one(
    store: Database, job: Job
) -> None:
    leases.expire(store, 3e9)
    newer = lease(store)
    store_parcels(store, "host-b", [a_report(job, host="host-b")])  # of the older attempt
    store_parcels(store, "host-a", [a_report(job), a_report(newer)])
    assert (count(store, "stale"), count(store, "accepted")) == (1, 1)


def test_a_report_of_a_run_that_was_never_leased_is_refused(store: Database, job: Job) -> None:
    unknown = [renumbered(job, repeat=77), renumbered(job, attempt=9)]
    result = store_parcels(store, "host-a", [a_report(item) for item in unknown])
    assert [host for host, _ in result.refused] == ["host-a", "host-a"]
    assert (count(store, "stale"), len(result.events)) == (0, 0)


PHONE = Provenance(source=Source.PHONE)


@pytest.mark.parametrize(
    "metrics",
    [
        [Metric(name="step_ms", value=1.0, unit="ms", provenance=PHONE)],  # simulated phone
        [Metric(name="step_ms", value=1.0, unit="s", provenance=SIMULATED)],
        [Metric(name="speed", value=1.0, unit="ms", provenance=SIMULATED)],
        [Metric(name="step_ms.1", value=1.0, unit="ms", provenance=SIMULATED)],
        [Metric(name="step_ms", value=1.0, unit="ms", provenance=SIMULATED)] * 2,
        *(
            [Metric(name="step_ms", value=value, unit="ms", provenance=SIMULATED)]
            for value in (0.0, -1.0, 1e308, 5e-324)  # no ratio can be formed of them
        ),
    ],
)
def test_a_report_with_metrics_outside_of_the_catalogue_is_a_fault(
    store: Database, job: Job, metrics: list[Metric]
) -> None:
    result = store_parcels(store, "host-a", [a_report(job, metrics=tuple(metrics))])
    assert [host for host, _ in result.refused] == ["host-a"]
    assert (count(store, "accepted"), count(store, "fault")) == (0, 1)
    with store.read() as connection:
        assert (
            connection.execute(select(func.count()).select_from(tables.metric_value)).scalar() == 0
        )


def test_a_host_cannot_change_the_phones_of_another(store: Database, job: Job) -> None:
    stolen = an_announcement(a_phone(ram_mb=1), host="host-b")
    checked = CommandResult(
        host="host-b",
        phone="PH1",
        id="forged",
        command=CommandKind.CHECK,
        finished_at=datetime.now(UTC),
        succeeded=False,
        text="broken",
    )
    refused = store_parcels(store, "host-b", [stolen, checked]).refused
    assert [host for host, _ in refused] == ["host-b", "host-b"]
    (phone,) = phone_queries.known_phones(store)
    assert (phone.host, phone.health) == ("host-a", "good")


def test_deliveries_of_several_hosts_are_one_transaction(store: Database, job: Job) -> None:
    store_parcels(store, "host-b", [an_announcement(a_phone("PH2"), host="host-b")])
    other = a_trial(5, "PH2")
    submission.submit(store, SWEEP | {"id": "sw-00000002"}, [other], planned_runs([other]))
    ((_, second),) = lease_next(store, {"PH2": "host-b"}, lease_timeout_s=30, now=2e9)
    deliveries = [
        Delivery("host-a", [a_report(job)]),
        Delivery("host-b", [a_report(second, host="host-b"), a_report(job, host="host-b")]),
    ]
    result = store_deliveries(store, deliveries)
    assert (count(store, "accepted"), len(result.events), len(result.refused)) == (2, 2, 1)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (InvalidRequest("no such cores"), RunState.FAILED),  # the request is wrong: not retried
        (RunnerDied(), RunState.FAILED),  # a finding: not retried
        (Unreachable(), RunState.QUEUED),  # phone or cable: retried
        (FarmTrouble(), RunState.QUEUED),  # the farm itself: retried
    ],
)
def test_the_blame_of_a_fault_decides_the_next_state(
    store: Database, job: Job, error: FarmTrouble, state: RunState
) -> None:
    store_parcels(store, "host-a", [a_faulty_report(job, error)])
    assert state == state_of(store, job)


def test_every_run_has_an_outcome(store: Database, job: Job) -> None:
    store_parcels(store, "host-a", [a_faulty_report(job, Killed("starved"))])
    before = results.run_outcomes(store, "sw-00000001")
    assert [(each.state, each.memory_outcome) for each in before] == [
        (RunState.FAILED, MemoryOutcome.KILLED),
        (RunState.QUEUED, None),
    ]
    assert before[0].fault is not None
    assert FaultKind.KILLED is before[0].fault.kind
    store_parcels(store, "host-a", [a_report(lease(store))])
    done = results.run_outcomes(store, "sw-00000001")[1]
    assert (
        done.state,
        done.memory_outcome,
        done.validity,
    ) == (RunState.DONE, MemoryOutcome.FITS, "valid")
    outcomes = results.run_outcomes(store, "sw-00000001")
    assert [outcome.memory_outcome for outcome in outcomes] == [
        MemoryOutcome.KILLED,
        MemoryOutcome.FITS,
    ]


def test_a_void_run_is_tried_after_the_other_runs_and_fails_after_three_attempts(
    store: Database, job: Job
) -> None:
    store_parcels(store, "host-a", [a_void_report(job)])
    other = lease(store)
    assert a_trial(1).id == other.run.trial
    store_parcels(store, "host-a", [a_report(other)])
    for _ in range(2):
        assert state_of(store, job) == RunState.QUEUED
        store_parcels(store, "host-a", [a_void_report(lease(store))])
    assert (state_of(store, job), count(store, "void")) == (RunState.FAILED, 3)
    (failed,) = sweep_queries.runs_in_state(store, "sw-00000001", RunState.FAILED)
    verdict = a_void_report(job).verdict
    assert verdict is not None
    assert failed.reason == f"{verdict.reasons[0].text} (3 times)"


@pytest.mark.parametrize(
    ("error", "order"),
    [
        (Unreachable(), [0, 1, 0, 2, 3, 4, 5]),  # after one other run
        (TooHot(), [0, 1, 2, 3, 4, 0, 5]),  # after four
        (FarmTrouble(), [0, 0, 1, 2, 3, 4, 5]),  # at once
    ],
)
def test_a_retry_stands_after_a_number_of_other_runs(
    store: Database, error: FarmError, order: list[int]
) -> None:
    """However much time passes between two leases."""
    for serial, later_s in (("PH1", 0.0), ("PH2", 1e4)):
        store_parcels(store, "host-a", [an_announcement(a_phone(serial))])
        trials = [a_trial(number, serial) for number in range(6)]
        submission.submit(store, SWEEP, trials, planned_runs(trials))
        number_of = {trial.id: number for number, trial in enumerate(trials)}
        found = []
        for turn in range(7):
            now = time() + turn * later_s
            ((_, job),) = lease_next(store, {serial: "host-a"}, 30, now)
            found.append(number_of[job.run.trial])
            failed = job.run.trial == trials[0].id and job.run.attempt == 1
            report = a_faulty_report(job, error) if failed else a_report(job)
            store_parcels(store, "host-a", [report])
        assert (serial, found) == (serial, order)


def test_a_phone_without_another_run_retries_at_once(store: Database, job: Job) -> None:
    store_parcels(store, "host-a", [a_report(job)])
    last = lease(store)
    result = store_parcels(store, "host-a", [a_faulty_report(last, Unreachable())])
    ((_, again),) = lease_next(store, {"PH1": "host-a"}, 30, now=time())
    assert (again.run.trial, again.run.attempt) == (last.run.trial, 2)
    assert "will be retried after at most 1 other run of this phone" in result.events[0].text


def test_faults_of_the_farm_do_not_count_as_attempts(store: Database, job: Job) -> None:
    store_parcels(store, "host-a", [a_faulty_report(job, FarmTrouble())])
    again = lease(store)
    assert again.run.trial == job.run.trial, "the first one keeps its place"
    before_s = time()
    store_parcels(store, "host-a", [a_faulty_report(again, FarmTrouble())])
    store_parcels(store, "host-a", [a_report(lease(store))])
    for _ in range(8):
        assert lease_next(store, {"PH1": "host-a"}, 30, before_s) == [], "it has a pause"
        ((_, again),) = lease_next(store, {"PH1": "host-a"}, 30, time() + 60)
        before_s = time()
        store_parcels(store, "host-a", [a_faulty_report(again, FarmTrouble())])
        assert state_of(store, job) == RunState.QUEUED


def test_a_blob_is_reassembled_from_its_chunks(store: Database) -> None:
    blob = bytes(range(256)) * 8192
    digest = digest_of_bytes(blob)
    pieces = split_into_chunks(digest, blob)
    assert len(pieces) > 1
    store_parcels(store, "host-a", pieces[1:])
    assert results.telemetry_blob(store, digest) is None
    store_parcels(store, "host-a", pieces)
    assert blob == results.telemetry_blob(store, digest)


def test_chunks_that_no_report_names_are_limited(store: Database, job: Job) -> None:
    def chunk_of(number: int) -> Chunk:
        return split_into_chunks(digest_of_bytes(bytes([number])), bytes([number]))[0]

    def send(*parcels: AnyParcel, host: str = "host-a") -> set[str]:
        return store_deliveries(store, [Delivery(host, parcels)], quota=quota).deferred

    quota = ChunkQuota(3 * CHUNK_BYTES_MIN)
    first, *others = (chunk_of(number) for number in range(6))
    assert send(first, *others) == {item.parcel_id for item in others[2:]}
    assert send(others[2], host="host-b") == set()  # each host has its own limit
    report = a_report(job, telemetry=first.digest, chunks=1)
    never_leased = a_report(renumbered(job, repeat=77), telemetry=others[0].digest)
    assert send(never_leased, report, others[3]) == {others[3].parcel_id}
    assert send(others[3], others[1]) == set()  # what is known already is not counted again
    assert send(others[4]) == {others[4].parcel_id}


def test_a_phone_that_its_host_shows_cannot_be_announced_by_another(store: Database) -> None:
    store_parcels(store, "host-a", [an_announcement(a_phone())])
    stolen = an_announcement(a_phone(ram_mb=1), host="host-b")
    deliveries = [Delivery("host-b", [stolen])]
    serial = stolen.facts.serial
    result = store_deliveries(store, deliveries, lambda serial, owner: f"{serial} is at {owner}")
    assert (result.deferred, len(result.refused)) == ({stolen.parcel_id}, 1)
    assert phone_queries.known_phones(store)[0].host == "host-a"
    result = store_deliveries(store, deliveries)  # it was moved
    assert (result.deferred, result.refused) == (set(), [])
    assert phone_queries.known_phones(store)[0].host == "host-b"
    (entry,) = audit_entries(store, serial)  # an operator who doubts results finds it
    assert (entry.actor, entry.action, entry.before) == ("host-b", "move", {"host": "host-a"})
    assert phone_queries.previous_hosts(store, {serial}) == {serial: "host-a"}
    phone_actions.move(store, serial, Actor("anna"), "host-c")  # she knows where the cable is
    assert phone_queries.known_phones(store)[0].host == "host-c"
    assert phone_queries.previous_hosts(store, {serial}) == {}


def test_a_phone_with_other_sources_is_never_a_moved_phone(store: Database) -> None:
    """A host that takes over a simulated phone could otherwise report measured numbers of it."""
    store_parcels(store, "host-a", [an_announcement(a_phone())])
    real = Provenances(time=MEASURED, clock=MEASURED, heat=MEASURED, energy=MEASURED)
    stolen = an_announcement(a_phone(provenance=real), host="host-b")
    result = store_parcels(store, "host-b", [stolen])
    assert "it is another phone" in result.refused[0][1]
    assert phone_queries.known_phones(store)[0].host == "host-a"


def test_a_late_report_of_a_stranger_is_not_kept(store: Database, job: Job) -> None:
    store_parcels(store, "host-a", [a_faulty_report(job, FarmTrouble())])
    ((_, again),) = lease_next(store, {"PH1": "host-a"}, 30, time() + 60)
    late, other = a_report(job, host="host-b"), a_report(again, phone="PH2")
    assert [host for host, _ in store_parcels(store, "host-b", [late]).refused] == ["host-b"]
    assert len(store_parcels(store, "host-a", [other]).refused) == 1
    assert count(store, "stale") == 0
    assert store_parcels(store, "host-a", [a_report(again)]).refused == []


def test_two_hosts_that_take_a_phone_in_turn_do_not_fill_the_store(store: Database) -> None:
    hosts = ["host-a", "host-b"] * (AUTOMATIC_MAX + 5)
    turns = [Delivery(host, [an_announcement(a_phone(), host=host)]) for host in hosts]
    store_deliveries(store, turns)
    entries = audit_entries(store, a_phone().serial, limit=1000)
    assert [entry.actor for entry in entries] == ["host-b", "host-a"] * AUTOMATIC_MAX


def test_an_announcement_updates_the_facts_of_a_phone(store: Database) -> None:
    store_parcels(store, "host-a", [an_announcement(a_phone())])
    store_parcels(store, "host-b", [an_announcement(a_phone(ram_mb=8000), host="host-b")])
    (phone,) = phone_queries.known_phones(store)
    assert (phone.host, phone.facts.ram_mb) == ("host-b", 8000)
    assert datetime.now(UTC) >= (phone.last_seen_at or datetime.max.replace(tzinfo=UTC))


def test_an_event_names_the_block_of_a_recurring_baseline(store: Database) -> None:
    """A baseline has several runs per block, so its repeats differ from its blocks."""
    store_parcels(store, "host-a", [an_announcement(a_phone())])
    baseline = a_trial(7)
    runs = [
        PlannedRun(trial=baseline.id, repeat=number, block=number // 3, position=number)
        for number in range(6)
    ]
    submission.submit(store, SWEEP, [baseline], runs)
    blocks = []
    for _ in runs:
        (event,) = store_parcels(store, "host-a", [a_report(lease(store))]).events
        blocks.append(event.text.rpartition("block ")[2])
    assert blocks == ["1", "1", "1", "2", "2", "2"]
