"""Early stopping and budgets, as the store applies them."""

import pytest
from sqlalchemy import select

from orchestrator.planning.states import RunState
from orchestrator.store import sweep_actions, sweep_queries
from orchestrator.store.audit_log import audit_entries
from orchestrator.store.budget import exceeded_budget, pause_overspent
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.operator_change import Actor
from orchestrator.store.tables import trial
from orchestrator.sweepfile.policy import Budget, Policy, StopRule
from tests.builders import SIMULATED, a_faulty_report, a_report, a_trial
from tests.store.three_phones import announce_phones, counts, lease, submit
from workloads.protocol.faults import RunnerFailed, TooLarge
from workloads.protocol.messages import EventKind
from workloads.protocol.metrics import Metric

ANNA = Actor("anna@desk")


@pytest.fixture(autouse=True)
def phones(store: Database) -> None:
    """Three phones of host-a."""
    announce_phones(store)


def test_a_trial_that_has_converged_skips_its_other_runs(store: Database) -> None:
    submit(store, 12, Policy(stop=StopRule(half_width_rel=0.05, n_min=6, n_max=12)))
    noises = {"PH1": 0.001, "PH2": 0.4}
    for number in range(6):
        for phone, noise in noises.items():
            value = 10.0 * (1 + noise * (-1) ** number * (number + 1) / 6)
            figure = Metric(name="step_ms", value=value, unit="ms", provenance=SIMULATED)
            job = lease(store, phone, 2e9)
            stored = store_parcels(store, "host-a", [a_report(job, metrics=(figure,))])
            converged = [event for event in stored.events if event.kind is EventKind.CONVERGED]
            assert bool(converged) == (number == 5 and phone == "PH1")
    assert counts(store) == {RunState.DONE: 12, RunState.SKIPPED: 6, RunState.QUEUED: 18}
    query = select(trial.c.id, trial.c.stop_reason).where(trial.c.stop_rule != "")
    with store.read() as connection:
        ((stopped, reason),) = connection.execute(query).all()
    assert stopped == a_trial(0, "PH1").id
    assert reason == "target precision reached (median ± 0.1% after 6 runs)"


def test_a_used_up_budget_pauses_the_sweep_until_it_is_resumed(
    store: Database,
) -> None:
    submit(store, 3, Policy(budget=Budget(failures=0)))
    assert pause_overspent(store, 2e9) == []
    store_parcels(store, "host-a", [a_faulty_report(lease(store, "PH1", 2e9), RunnerFailed("x"))])
    (change,) = pause_overspent(store, 2e9)
    assert change.after == {"state": "paused"}
    (row,) = audit_entries(store)
    assert (row.actor, row.action) == ("budget", "pause")
    assert "1 run failed; the limit is 0" in sweep_queries.sweep_summaries(store)[0].state_reason
    sweep_actions.resume(store, "sw-00000001", ANNA)
    assert pause_overspent(store, 2e9) == []


def test_the_text_of_a_pause_reason_has_no_effect_on_the_budget(store: Database) -> None:
    submit(store, 3, Policy(budget=Budget(failures=0)))
    sweep_actions.pause(store, "sw-00000001", ANNA, reason="budget used up: says Bob")
    sweep_actions.resume(store, "sw-00000001", ANNA)
    store_parcels(store, "host-a", [a_faulty_report(lease(store, "PH1", 2e9), RunnerFailed("x"))])
    assert len(pause_overspent(store, 2e9)) == 1


def test_a_request_that_cannot_work_is_tried_once_per_trial(store: Database) -> None:
    submit(store, 4)
    store_parcels(store, "host-a", [a_faulty_report(lease(store, "PH1"), TooLarge("2,832 MB"))])
    assert counts(store) == {RunState.FAILED: 1, RunState.BLOCKED: 3, RunState.QUEUED: 8}
    assert (
        "2,832 MB" in sweep_queries.runs_in_state(store, "sw-00000001", RunState.BLOCKED)[0].reason
    )
    sweep_actions.retry(store, "sw-00000001", ANNA)
    assert counts(store) == {RunState.QUEUED: 12}


@pytest.mark.parametrize(
    ("failed", "ended", "planned", "is_exceeded"),
    [
        (3, 12, 400, False),  # the first ones often fail sooner
        (9, 60, 90, False),
        (10, 60, 90, True),
        (19, 19, 400, False),
        (19, 20, 400, True),  # nothing works
        (9, 20, 400, False),
    ],
)
def test_a_share_of_failures_is_a_share_of_all_runs(
    failed: int, ended: int, planned: int, is_exceeded: bool
) -> None:
    budget = Budget(failures_share=0.1)
    assert bool(exceeded_budget(budget, 1.0, failed, ended, planned)) == is_exceeded
