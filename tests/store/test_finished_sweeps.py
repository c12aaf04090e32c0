"""Sweeps without runs left: they leave the state active, and come back with new runs."""

from orchestrator.planning.states import SweepState
from orchestrator.store import sweep_actions, sweep_queries
from orchestrator.store.database import Database
from orchestrator.store.finished_sweeps import mark_finished
from orchestrator.store.ingest import store_parcels
from orchestrator.store.operator_change import Actor
from tests.builders import a_faulty_report, a_report
from tests.store.three_phones import PHONES, announce_phones, lease, submit
from workloads.protocol.faults import RunnerDied

SWEEP_ID = "sw-00000001"


def state(store: Database) -> SweepState:
    """Return the state of the sweep."""
    return sweep_queries.sweep_summaries(store)[0].state


def finish_runs(store: Database) -> None:
    """Report every run as done, one of them as failed."""
    for number, phone in enumerate(PHONES):
        job = lease(store, phone)
        assert mark_finished(store) == []
        report = a_faulty_report(job, RunnerDied()) if number == 0 else a_report(job)
        store_parcels(store, "host-a", [report])


def test_a_sweep_without_runs_left_is_finished(store: Database) -> None:
    announce_phones(store)
    submit(store, repeat=1)
    assert mark_finished(store) == []
    finish_runs(store)
    # It is shown as finished at once; the scheduler notes it a moment later.
    assert (state(store), mark_finished(store)) == (SweepState.FINISHED, [SWEEP_ID])
    assert (state(store), mark_finished(store)) == (SweepState.FINISHED, [])


def test_a_finished_sweep_is_active_again_with_new_runs(store: Database) -> None:
    announce_phones(store)
    submit(store, repeat=1)
    finish_runs(store)
    mark_finished(store)
    sweep_actions.retry(store, SWEEP_ID, Actor("tester"))
    assert state(store) is SweepState.ACTIVE
    store_parcels(store, "host-a", [a_report(lease(store, PHONES[0]))])
    assert mark_finished(store) == [SWEEP_ID]
    submit(store, repeat=2)  # submitted again with one more repeat
    assert state(store) is SweepState.ACTIVE
    assert lease(store, PHONES[1]).run.repeat == 1


def test_resuming_a_finished_sweep_changes_nothing(store: Database) -> None:
    announce_phones(store)
    submit(store, repeat=1)
    finish_runs(store)
    mark_finished(store)
    change = sweep_actions.resume(store, SWEEP_ID, Actor("tester"))
    assert not change.changed
    assert state(store) is SweepState.FINISHED
