"""Operator actions on sweeps, phones and hosts: idempotent, with a dry run, audited."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from orchestrator.planning.states import Health, RunState, SweepState
from orchestrator.store import (
    leases,
    phone_actions,
    phone_health,
    phone_queries,
    submission,
    sweep_actions,
    sweep_queries,
)
from orchestrator.store.audit_log import audit_entries
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.next_runs import next_runs
from orchestrator.store.operator_change import Actor, OperatorChange
from orchestrator.store.tables import run
from tests.builders import (
    a_faulty_report,
    a_phone,
    a_report,
    a_trial,
    an_announcement,
    planned_runs,
)
from tests.leasing import choose_oldest, lease_next
from workloads.protocol.faults import Cancelled, InvalidRequest, RunnerFailed
from workloads.protocol.messages import CommandKind, CommandResult, Job

SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
ANNA = Actor("anna@desk")
HOSTS = {"PH1": "host-a", "PH2": "host-b"}


@pytest.fixture(autouse=True)
def lab(store: Database) -> None:
    """PH1 of host-a and PH2 of host-b, with two runs per phone."""
    store_parcels(store, "host-a", [an_announcement(a_phone("PH1"))])
    store_parcels(store, "host-b", [an_announcement(a_phone("PH2"), "host-b")])
    trials = [a_trial(0, "PH1"), a_trial(1, "PH2")]
    submission.submit(store, SWEEP, trials, planned_runs(trials, 2))


def leased(store: Database, now: float = 2e9) -> dict[str, Job]:
    found = lease_next(store, HOSTS, lease_timeout_s=30, now=now)
    return {job.phone: job for _, job in found}


def states(store: Database) -> list[str]:
    with store.read() as connection:
        return sorted(connection.execute(select(run.c.state)).scalars())


CHANGES: dict[str, Callable[[Database, Actor], OperatorChange]] = {
    "pause": lambda db, actor: sweep_actions.pause(db, "sw-00000001", actor),
    "cancel": lambda db, actor: sweep_actions.cancel(db, "sw-00000001", actor),
    "set-priority": lambda db, actor: sweep_actions.set_priority(db, "sw-00000001", actor, 80),
    "drain": lambda db, actor: phone_actions.set_drained(db, "host-a", actor, True),
    "reserve": lambda db, actor: phone_actions.reserve(db, "PH1", actor, "bert", until=3e9),
    "tag": lambda db, actor: phone_actions.tag(db, "PH1", actor, add=["shelf-2"]),
    "quarantine": lambda db, actor: phone_actions.quarantine(db, "PH1", actor, "broken glass"),
    "retire": lambda db, actor: phone_actions.retire(db, "PH2", actor, "swollen battery"),
}


def test_every_change_has_a_dry_run_is_idempotent_and_audited(store: Database) -> None:
    for action, change in CHANGES.items():
        tried = change(store, Actor("anna@desk", dry_run=True))
        assert tried.changed
        assert tried.lines[0].startswith("dry run: ")
        assert action not in [entry.action for entry in audit_entries(store, tried.target)]
        first, second = change(store, ANNA), change(store, ANNA)
        assert (first.changed, second.changed) == (True, False), action
        assert first.lines[1].startswith("undo with: farm ")
        assert len(second.lines) == 1
        (entry,) = [item for item in audit_entries(store, first.target) if item.action == action]
        assert (entry.actor, entry.after, entry.undo) == ("anna@desk", first.after, first.text.undo)


def test_a_change_is_described(store: Database) -> None:
    leased(store)
    assert sweep_actions.pause(store, "sw-00000001", ANNA).lines == (
        "sw-00000001: paused with 2 runs queued; running runs finish",
        "undo with: farm sweep resume sw-00000001",
    )
    assert sweep_actions.pause(store, "sw-00000001", ANNA).lines == (
        "sw-00000001 is already paused",
    )
    assert sweep_actions.cancel(store, "sw-00000001", ANNA).lines[0] == (
        "sw-00000001: cancelled; 2 queued runs dropped; 2 running runs will be stopped"
    )


def test_a_paused_sweep_starts_nothing_until_it_is_resumed(store: Database) -> None:
    sweep_actions.pause(store, "sw-00000001", ANNA)
    assert leased(store) == {}
    sweep_actions.resume(store, "sw-00000001", ANNA)
    assert leased(store).keys() == {"PH1", "PH2"}


def test_a_sweep_paused_between_choice_and_lease_is_not_started(store: Database) -> None:
    picks = choose_oldest(next_runs(store, HOSTS, now=2e9))
    sweep_actions.pause(store, "sw-00000001", ANNA)
    assert (len(picks), leases.lease(store, picks, HOSTS, lease_timeout_s=30, now=2e9)) == (2, [])


def test_a_cancelled_sweep_stops_running_runs_and_keeps_results(store: Database) -> None:
    jobs = leased(store)
    store_parcels(store, "host-a", [a_report(jobs["PH1"])])
    sweep_actions.cancel(store, "sw-00000001", ANNA)
    assert states(store) == ["cancelled", "cancelled", "done", "leased"]
    assert [("host-b", jobs["PH2"].run)] == [
        (each.host, each.run) for each in leases.leased_runs(store) if each.cancel_requested
    ]
    stopped = a_faulty_report(jobs["PH2"], Cancelled()).model_copy(update={"host": "host-b"})
    store_parcels(store, "host-b", [stopped])
    assert states(store) == ["cancelled", "cancelled", "cancelled", "done"]
    assert sweep_queries.sweep_summaries(store)[0].finished
    sweep_actions.resume(store, "sw-00000001", ANNA)
    assert states(store) == ["done", "queued", "queued", "queued"]


def test_a_cancelled_attempt_without_a_report_is_not_repeated(store: Database) -> None:
    leased(store)
    sweep_actions.cancel(store, "sw-00000001", ANNA)
    leases.expire(store, 2e9 + 60)
    assert states(store) == [RunState.CANCELLED] * 4


def test_only_failed_and_blocked_runs_are_retried(store: Database) -> None:
    jobs = leased(store)
    store_parcels(store, "host-a", [a_faulty_report(jobs["PH1"], RunnerFailed("a crash"))])
    done = a_report(jobs["PH2"], host="host-b")
    store_parcels(store, "host-b", [done])
    assert states(store) == ["done", "failed", "queued", "queued"]
    change = sweep_actions.retry(store, "sw-00000001", ANNA)
    assert change.before == {"blocked": 0, "failed": 1}
    assert states(store) == ["done", "queued", "queued", "queued"]
    assert not sweep_actions.retry(store, "sw-00000001", ANNA).changed
    assert leased(store)["PH1"].run.attempt == 2, "the attempt number continues"


def test_a_reserved_phone_gets_no_runs_until_the_reservation_ends(store: Database) -> None:
    phone_actions.reserve(store, "PH1", ANNA, "bert", until=2e9 + 50)
    assert leased(store, now=2e9).keys() == {"PH2"}
    assert leased(store, now=2e9 + 60).keys() == {"PH1"}


def test_a_drained_host_is_listed_until_it_is_undrained(store: Database) -> None:
    phone_actions.set_drained(store, "host-b", ANNA, True)
    assert leases.drained_hosts(store) == {"host-b": ""}
    phone_actions.set_drained(store, "host-b", ANNA, False)
    assert leases.drained_hosts(store) == {}


def test_tags_are_added_and_removed(store: Database) -> None:
    phone_actions.tag(store, "PH1", ANNA, add=["old", "shelf-2"])
    change = phone_actions.tag(store, "PH1", ANNA, add=["new"], remove=["old"])
    assert change.text.undo == "farm phone tag PH1 -new old"
    tags = {item.serial: item.tags for item in phone_queries.known_phones(store)}
    assert tags == {"PH1": ("new", "shelf-2"), "PH2": ()}


def test_actions_on_unknown_targets_are_refused(store: Database) -> None:
    for decide in (
        lambda: sweep_actions.pause(store, "sw-ffffffff", ANNA),
        lambda: phone_actions.reserve(store, "PH9", ANNA, "bert"),
        lambda: phone_actions.set_drained(store, "host-z", ANNA, True),
    ):
        with pytest.raises(InvalidRequest, match="there is no"):
            decide()
    sweep_actions.cancel(store, "sw-00000001", ANNA)
    assert sweep_queries.sweep_summaries(store)[0].state == SweepState.CANCELLED
    with pytest.raises(InvalidRequest, match="first: farm sweep resume"):
        sweep_actions.retry(store, "sw-00000001", ANNA)


def test_a_retired_phone_keeps_its_results_and_blocks_no_sweep(store: Database) -> None:
    job = leased(store)["PH1"]
    change = phone_actions.retire(store, "PH1", ANNA, "swollen battery")
    assert "1 waiting run skipped; a running run will finish" in change.text.summary
    store_parcels(store, "host-a", [a_report(job)])
    assert states(store).count(RunState.SKIPPED) == 1
    assert states(store).count(RunState.DONE) == 1
    assert leased(store, 3e9) == {}  # PH2 works, PH1 gets nothing
    retired = {phone.serial: phone.health for phone in phone_queries.known_phones(store)}
    assert retired == {"PH1": Health.RETIRED, "PH2": Health.GOOD}
    assert next(entry.action for entry in audit_entries(store)) == "retire"
    # neither a check nor a failed one changes that, only an operator
    for succeeded in (True, False):
        result = CommandResult(
            id=f"c{succeeded}",
            command=CommandKind.CHECK,
            phone="PH1",
            host="host-a",
            succeeded=succeeded,
            text="checked",
            finished_at=datetime.now(UTC),
        )
        store_parcels(store, "host-a", [result])
    assert phone_queries.known_phones(store)[0].health is Health.RETIRED
    assert phone_health.count_unhealthy(store) == {}
    assert phone_actions.release(store, "PH1", ANNA).changed


def test_the_reason_of_a_pause_is_in_its_event_and_in_the_audit_log(store: Database) -> None:
    change = sweep_actions.pause(store, "sw-00000001", ANNA, reason="the room is too warm")
    assert change.event.text.endswith("running runs finish: the room is too warm")
    assert audit_entries(store)[0].after["reason"] == "the room is too warm"
    phone_actions.reserve(store, "PH1", ANNA, "bert", reason="exhibition")
    phone_actions.set_drained(store, "host-a", ANNA, True, "new hub")
    assert [entry.after["reason"] for entry in audit_entries(store)[:2]] == [
        "new hub",
        "exhibition",
    ]


def test_a_finished_sweep_is_called_finished_and_cannot_be_paused(store: Database) -> None:
    for _ in range(2):
        for job in leased(store).values():
            store_parcels(store, HOSTS[job.phone], [a_report(job, host=HOSTS[job.phone])])
    with pytest.raises(InvalidRequest, match="is finished; no run of it is left to pause"):
        sweep_actions.pause(store, "sw-00000001", ANNA)
    (summary,) = sweep_queries.sweep_summaries(store)  # no scheduler has noted the end
    assert (summary.state, summary.ended) == (SweepState.FINISHED, 4)


def test_a_cancelled_sweep_is_neither_finished_nor_complete(store: Database) -> None:
    sweep_actions.cancel(store, "sw-00000001", ANNA)
    (summary,) = sweep_queries.sweep_summaries(store)
    assert (summary.state, summary.ended, summary.left) == (SweepState.CANCELLED, 0, 0)
