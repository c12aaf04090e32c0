"""The health of phones in the store: which phones get runs, and what a check changes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from orchestrator.planning.states import Health
from orchestrator.store import phone_actions, phone_health, phone_queries, submission
from orchestrator.store.audit_log import audit_entries
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.operator_change import Actor
from orchestrator.store.phone_health import HOST_RESULTS_MAX, CommandOutcome
from orchestrator.store.tables import command_result
from tests.builders import a_faulty_report, a_phone, a_trial, an_announcement, planned_runs
from tests.leasing import lease_next
from workloads.protocol.faults import Unreachable
from workloads.protocol.messages import CommandKind, CommandResult, Job

ANNA = Actor("anna@desk")
SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}


@pytest.fixture(autouse=True)
def phones(store: Database) -> None:
    """PH1 and PH2, with four runs per phone."""
    store_parcels(
        store, "host-a", [an_announcement(a_phone("PH1")), an_announcement(a_phone("PH2"))]
    )
    trials = [a_trial(0, "PH1"), a_trial(1, "PH2")]
    submission.submit(store, SWEEP, trials, planned_runs(trials, 4))


def leased(store: Database) -> dict[str, Job]:
    found = lease_next(store, {"PH1": "host-a", "PH2": "host-a"}, lease_timeout_s=30, now=2e9)
    return {job.phone: job for _, job in found}


def a_command_result(**changes: Any) -> CommandResult:
    content = {
        "host": "host-a",
        "phone": "PH1",
        "id": "c1",
        "command": CommandKind.CHECK,
        "succeeded": True,
    }
    content |= {"finished_at": datetime.now(UTC), "text": "all is well"}
    return CommandResult(**(content | changes))


def health_of(store: Database, serial: str = "PH1") -> tuple[Health, str]:
    found = next(each for each in phone_queries.known_phones(store) if each.serial == serial)
    return found.health, found.health_reason


def test_a_quarantined_phone_gets_no_runs_until_it_is_released(store: Database) -> None:
    phone_actions.quarantine(store, "PH1", ANNA, "broken screen")
    assert leased(store).keys() == {"PH2"}
    assert health_of(store) == (Health.QUARANTINED, "broken screen")
    phone_actions.release(store, "PH1", ANNA)
    assert leased(store).keys() == {"PH1"}


def test_three_faults_hold_a_phone_and_a_check_ends_it(store: Database) -> None:
    for attempt in range(3):
        job = (
            leased(store)["PH1"]
            if attempt == 0
            else lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=2e9 + attempt * 1e6)[
                0
            ][1]
        )
        stored = store_parcels(store, "host-a", [a_faulty_report(job, Unreachable("the cable"))])
    assert [event.kind for event in stored.events] == ["fault", "health"]
    assert "PH1 is held: 3 failures in a row" in stored.events[-1].text
    assert phone_health.held_phones(store) == {"PH1"}
    assert "PH1" not in leased(store)
    events = store_parcels(store, "host-a", [a_command_result()])
    assert events.confirmed == ["command:c1"]
    assert health_of(store) == ("good", "")
    assert phone_health.find_command_result(store, "c1") == CommandOutcome(True, "all is well")
    assert store_parcels(store, "host-a", [a_command_result()]).events == []


def test_a_failed_check_quarantines_a_phone(store: Database) -> None:
    store_parcels(store, "host-a", [a_command_result(succeeded=False, text="no sensor")])
    assert health_of(store) == ("quarantined", "no sensor")
    store_parcels(store, "host-a", [a_command_result(id="c2")])
    assert health_of(store)[0] == "quarantined", "only a user can release it"


def test_a_successful_restore_does_not_change_the_health(store: Database) -> None:
    phone_health.update_from_flaps(store, {"PH1": 9})
    assert health_of(store)[0] == "held"
    store_parcels(store, "host-a", [a_command_result(command=CommandKind.RESTORE)])
    assert health_of(store)[0] == "held"
    store_parcels(
        store,
        "host-a",
        [a_command_result(id="c2", command=CommandKind.RESTORE, succeeded=False, text="x")],
    )
    assert health_of(store) == ("quarantined", "x")


def test_a_tuning_result_does_not_change_the_health(store: Database) -> None:
    store_parcels(
        store,
        "host-a",
        [a_command_result(command=CommandKind.TUNE, succeeded=False, text="no OpenCL")],
    )
    assert health_of(store) == ("good", "")
    assert phone_health.find_command_result(store, "c1") == CommandOutcome(False, "no OpenCL")


def test_a_check_that_a_busy_phone_refused_changes_nothing(store: Database) -> None:
    busy = a_command_result(succeeded=False, was_executed=False, text="PH1 is busy")
    assert store_parcels(store, "host-a", [busy]).events == []
    assert health_of(store) == (Health.GOOD, "")
    assert phone_health.find_command_result(store, "c1") == CommandOutcome(False, "PH1 is busy")


def test_the_audit_log_knows_what_a_check_changed(store: Database) -> None:
    store_parcels(store, "host-a", [a_command_result(succeeded=False, text="no temperature")])
    (entry,) = audit_entries(store, "PH1")
    assert (entry.actor, entry.action, entry.after["reason"]) == (
        *("check", "quarantine"),
        "no temperature",
    )
    assert entry.undo == "farm phone release PH1"


def test_a_host_cannot_store_results_without_limit(store: Database) -> None:
    row = {"phone": "PH1", "command": "check", "succeeded": True, "text": "x" * 1000}
    flood = [
        {"id": f"f{number}", "host": "host-a", "received_at_s": float(number), **row}
        for number in range(HOST_RESULTS_MAX)
    ]
    with store.write() as connection:
        connection.execute(insert(command_result), [*flood, {**flood[0], "id": "b", "host": "b"}])
    sent = [a_command_result(id=name, phone="-") for name in ("late", "later")]
    store_parcels(store, "host-a", sent)
    with store.read() as connection:
        own = select(func.count()).where(command_result.c.host == "host-a")
        assert connection.execute(own).scalar_one() == HOST_RESULTS_MAX
    found = {name: phone_health.find_command_result(store, name) for name in ("late", "f1", "b")}
    assert [name for name, outcome in found.items() if outcome] == ["late", "b"]
