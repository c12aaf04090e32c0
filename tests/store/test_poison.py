"""Poison: a case that crashes attempts on two phones is blocked."""

from dataclasses import replace

import pytest

from orchestrator.planning.states import RunState
from orchestrator.store import leases, submission, sweep_actions, sweep_queries
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.operator_change import Actor
from orchestrator.store.poison import Build, poison_scope
from tests.builders import (
    a_faulty_report,
    a_phone,
    a_report,
    a_trial,
    an_announcement,
    planned_runs,
)
from tests.leasing import lease_next
from tests.store.three_phones import HOSTS, PHONES, SWEEP, announce_phones, counts, lease, submit
from workloads.catalogue import bind
from workloads.protocol.faults import FarmError, Hung, Interrupted
from workloads.protocol.messages import EventKind

ANNA = Actor("anna@desk")
OTHER_CASE = bind("mlp-4", {})


@pytest.fixture(autouse=True)
def phones(store: Database) -> None:
    """Three phones of host-a."""
    announce_phones(store)


def crash(
    store: Database, phone: str, error: FarmError, times: int, now: float = 2e9
) -> list[EventKind]:
    """Let attempts on a phone crash; return the kinds of events of the last one."""
    kinds: list[EventKind] = []
    for number in range(times):
        job = lease(store, phone, now + 1000 * number)
        stored = store_parcels(store, "host-a", [a_faulty_report(job, error)])
        kinds = [event.kind for event in stored.events]
    return kinds


def test_a_case_that_kills_attempts_on_two_phones_is_blocked_with_the_evidence(
    store: Database,
) -> None:
    submit(store, repeat=4)
    assert EventKind.POISONED not in crash(store, "PH1", Hung("no answer"), 2)
    assert EventKind.POISONED in crash(store, "PH2", Hung("no answer"), 2)
    # PH3 is another product, so one of its runs tries the case.
    assert counts(store) == {RunState.BLOCKED: 11, RunState.QUEUED: 1}
    blocked = sweep_queries.runs_in_state(store, "sw-00000001", RunState.BLOCKED)
    assert all("PH1: " in run.reason and "PH2: " in run.reason for run in blocked)
    ((_, tried),) = lease_next(store, HOSTS, lease_timeout_s=30, now=3e9)
    assert tried.phone == "PH3"
    leases.expire(store, 3e9 + 60)
    sweep_actions.retry(store, "sw-00000001", ANNA)
    assert counts(store) == {RunState.QUEUED: 12}
    assert EventKind.POISONED not in crash(store, "PH1", Hung("no answer"), 1, now=3e9), (
        "a retried run starts without a history"
    )


def test_a_case_that_succeeds_is_blocked_only_where_it_crashes(store: Database) -> None:
    """Two bad phones do not keep a third one from its runs."""
    submit(store, repeat=4)
    store_parcels(store, "host-a", [a_report(lease(store, "PH3"))])
    crash(store, "PH1", Hung("no answer"), 2)
    assert EventKind.POISONED in crash(store, "PH2", Hung("no answer"), 2)
    assert counts(store) == {RunState.BLOCKED: 8, RunState.QUEUED: 3, RunState.DONE: 1}
    blocked = sweep_queries.runs_in_state(store, "sw-00000001", RunState.BLOCKED)
    assert {run.phone for run in blocked} == {"PH1", "PH2"}
    assert all("it succeeds on 1 phone" in run.reason for run in blocked)


def test_one_run_per_further_product_tries_a_case_that_has_succeeded_nowhere(
    store: Database,
) -> None:
    models = {"PH1": "bad", "PH2": "bad", "PH3": "good", "PH4": "good", "PH5": "bad"}
    facts = [an_announcement(a_phone(serial, model=model)) for serial, model in models.items()]
    store_parcels(store, "host-a", facts)
    trials = [a_trial(0, serial) for serial in models]
    submission.submit(store, SWEEP, trials, planned_runs(trials, 4))
    crash(store, "PH1", Hung("no answer"), 2)
    assert EventKind.POISONED in crash(store, "PH2", Hung("no answer"), 2)
    assert counts(store) == {RunState.BLOCKED: 19, RunState.QUEUED: 1}
    store_parcels(store, "host-a", [a_report(lease(store, "PH3", 3e9))])
    # It succeeds, so only the product whose phones crash stays blocked, also its third phone.
    assert counts(store) == {RunState.BLOCKED: 12, RunState.QUEUED: 7, RunState.DONE: 1}
    blocked = sweep_queries.runs_in_state(store, "sw-00000001", RunState.BLOCKED)
    assert {run.phone for run in blocked} == {"PH1", "PH2", "PH5"}


def test_the_scope_names_phones_builds_or_products() -> None:
    builds = {
        **{f"A{number}": Build("alpha", "13") for number in range(3)},
        **{f"B{number}": Build("alpha", "14") for number in range(3)},
        **{f"C{number}": Build("beta", "14") for number in range(3)},
    }
    every = frozenset(builds)
    nowhere = poison_scope(builds, {"A0", "A1"}, ())
    assert (nowhere.blocked, nowhere.tries) == (every, {"C0"})
    assert poison_scope(builds, {"A0", "C0"}, {"A1", "C1"}).blocked == {"A0", "C0"}
    of_a_build = poison_scope(builds, {"A0", "A1"}, {"B0"})
    assert of_a_build.blocked == {"A0", "A1", "A2"}
    assert "Android 13 of alpha" in of_a_build.text
    of_a_product = poison_scope(builds, {"A0", "B0"}, {"C0"})
    assert of_a_product.blocked == {serial for serial in every if serial[0] != "C"}
    assert of_a_product.text.endswith("alpha")


def test_occasional_crashes_of_an_agent_are_not_poison(store: Database) -> None:
    submit(store, repeat=6)
    for number in range(3):
        for phone in PHONES:
            assert crash(store, phone, Interrupted(), 2, now=2e9 + 1e6 * number) == [
                EventKind.FAULT
            ]
            job = lease(store, phone, 2e9 + 1e6 * number + 1e5)
            store_parcels(store, "host-a", [a_report(job)])
    assert counts(store) == {RunState.DONE: 9, RunState.QUEUED: 9}


def test_a_case_that_always_crashes_its_agent_is_blocked(store: Database) -> None:
    submit(store, repeat=2)
    crash(store, "PH1", Interrupted(), 2)
    started = {lease(store, "PH1", 3e9).run}
    assert [reports.events for reports in leases.expire(store, 3e9 + 60, started)] == [()]
    assert EventKind.POISONED in crash(store, "PH2", Interrupted(), 3)


def test_a_job_that_never_reached_its_host_is_not_a_crash(store: Database) -> None:
    submit(store, repeat=2)
    crash(store, "PH1", Interrupted(), 2)
    lease(store, "PH1", 3e9)
    assert len(leases.expire(store, 3e9 + 60)) == 1
    assert EventKind.POISONED not in crash(store, "PH2", Interrupted(), 3)


def test_cases_that_crash_together_are_not_poison(store: Database) -> None:
    """A host that fails repeatedly crashes every case; none of them is poison."""
    trials = [a_trial(0, "PH1"), a_trial(0, "PH2"), replace(a_trial(1, "PH3"), case=OTHER_CASE)]
    submission.submit(store, SWEEP, trials, planned_runs(trials, 4))
    for number in range(4):
        jobs = [lease(store, phone, 2e9 + 1000 * number) for phone in PHONES]
        reports = [a_faulty_report(job, Interrupted()) for job in jobs]
        store_parcels(store, "host-a", reports)
    assert counts(store) == {RunState.QUEUED: 12}
