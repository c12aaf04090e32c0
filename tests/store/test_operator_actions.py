"""Control: every decision is made once, can be asked about first, and is written down."""

from collections.abc import Callable

import pytest
from sqlalchemy import select

from orchestrator.nouns import RunState, SweepState
from orchestrator.store import backlog, control, leases, queries
from orchestrator.store.control import By, Change
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.lines import first_come, lines
from orchestrator.store.tables import run
from tests.builders import a_faulty_report, a_phone, a_report, a_sighting, a_trial, planned
from workloads.fault import Cancelled, Refused, RunnerFailed
from workloads.messages import Job

SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
ANNA = By("anna@desk")
HOSTS = {"PH1": "host-a", "PH2": "host-b"}


@pytest.fixture(autouse=True)
def lab(store: Database) -> None:
    """PH1 at host-a and PH2 at host-b, with two runs each."""
    store_parcels(store, "host-a", [a_sighting(a_phone("PH1"))])
    store_parcels(store, "host-b", [a_sighting(a_phone("PH2"), "host-b")])
    trials = [a_trial(0, "PH1"), a_trial(1, "PH2")]
    backlog.submit(store, SWEEP, trials, planned(trials, 2))


def leased(store: Database, now: float = 2e9) -> dict[str, Job]:
    found = leases.lease_next(store, HOSTS, lease_s=30, now=now)
    return {job.phone: job for _, job in found}


def states(store: Database) -> list[str]:
    with store.read() as connection:
        return sorted(connection.execute(select(run.c.state)).scalars())


DECISIONS: dict[str, Callable[[Database, By], Change]] = {
    "pause": lambda db, by: control.pause(db, "sw-00000001", by),
    "cancel": lambda db, by: control.cancel(db, "sw-00000001", by),
    "reprioritise": lambda db, by: control.set_priority(db, "sw-00000001", 80, by),
    "drain": lambda db, by: control.drain(db, "host-a", by),
    "reserve": lambda db, by: control.reserve(db, "PH1", "bert", by, until=3e9),
    "tag": lambda db, by: control.tag(db, "PH1", by, add=["shelf-2"]),
    "quarantine": lambda db, by: control.quarantine(db, "PH1", by, "its glass is broken"),
}


def test_every_decision_can_be_asked_about_is_made_once_and_is_written_down(
    store: Database,
) -> None:
    for verb, decide in DECISIONS.items():
        asked = decide(store, By("anna@desk", dry_run=True))
        assert (True, [], "would be done") == (
            asked.changed,
            [row.verb for row in queries.audit(store, asked.object) if row.verb == verb],
            asked.lines[0].split(": ")[1],
        )
        made, again = decide(store, ANNA), decide(store, ANNA)
        assert (True, False) == (made.changed, again.changed), verb
        assert "undo with: farm " in made.lines[1]
        (row,) = [row for row in queries.audit(store, made.object) if row.verb == verb]
        assert ("anna@desk", made.after, made.undo) == (row.who, row.after, row.undo)


def test_a_paused_sweep_starts_nothing_until_it_goes_on(store: Database) -> None:
    control.pause(store, "sw-00000001", ANNA)
    assert {} == leased(store)
    control.resume(store, "sw-00000001", ANNA)
    assert {"PH1", "PH2"} == leased(store).keys()


def test_what_is_paused_between_look_and_lease_is_not_begun(store: Database) -> None:
    picks = first_come(lines(store, HOSTS, now=2e9))
    control.pause(store, "sw-00000001", ANNA)
    assert (2, []) == (len(picks), leases.lease(store, picks, HOSTS, lease_s=30, now=2e9))


def test_a_cancelled_sweep_stops_what_runs_and_keeps_what_is_done(store: Database) -> None:
    jobs = leased(store)
    store_parcels(store, "host-a", [a_report(jobs["PH1"])])
    control.cancel(store, "sw-00000001", ANNA)
    assert ["cancelled", "cancelled", "done", "leased"] == states(store)
    assert [("host-b", jobs["PH2"].run)] == [
        (each.host, each.run) for each in leases.under_way(store) if each.unwanted
    ]
    stopped = a_faulty_report(jobs["PH2"], Cancelled()).model_copy(update={"host": "host-b"})
    store_parcels(store, "host-b", [stopped])
    assert ["cancelled", "cancelled", "cancelled", "done"] == states(store)
    assert queries.sweep_summaries(store)[0].finished
    control.resume(store, "sw-00000001", ANNA)
    assert ["done", "queued", "queued", "queued"] == states(store)


def test_a_cancelled_attempt_that_is_never_heard_of_again_is_not_repeated(store: Database) -> None:
    leased(store)
    control.cancel(store, "sw-00000001", ANNA)
    leases.expire(store, 2e9 + 60)
    assert [RunState.CANCELLED] * 4 == states(store)


def test_only_what_was_given_up_is_retried(store: Database) -> None:
    jobs = leased(store)
    store_parcels(store, "host-a", [a_faulty_report(jobs["PH1"], RunnerFailed("a crash"))])
    done = a_report(jobs["PH2"], host="host-b")
    store_parcels(store, "host-b", [done])
    assert ["done", "failed", "queued", "queued"] == states(store)
    change = control.retry(store, "sw-00000001", ANNA)
    assert {"failed": 1, "held": 0} == change.before
    assert ["done", "queued", "queued", "queued"] == states(store)
    assert not control.retry(store, "sw-00000001", ANNA).changed
    assert 2 == leased(store)["PH1"].run.attempt, "its attempts go on counting"


def test_a_reserved_phone_gets_no_runs_until_its_time_is_over(store: Database) -> None:
    control.reserve(store, "PH1", "bert", ANNA, until=2e9 + 50)
    assert {"PH2"} == leased(store, now=2e9).keys()
    assert {"PH1"} == leased(store, now=2e9 + 60).keys()


def test_a_drained_host_is_left_out(store: Database) -> None:
    control.drain(store, "host-b", ANNA)
    assert {"host-b"} == leases.drained_hosts(store)
    control.undrain(store, "host-b", ANNA)
    assert set() == leases.drained_hosts(store)


def test_tags_are_put_on_and_taken_off(store: Database) -> None:
    control.tag(store, "PH1", ANNA, add=["old", "shelf-2"])
    change = control.tag(store, "PH1", ANNA, add=["new"], remove=["old"])
    assert "farm phone tag PH1 -new old" == change.undo
    assert {"PH1": frozenset({"new", "shelf-2"}), "PH2": frozenset()} == queries.phone_tags(store)


def test_nobody_decides_about_what_is_not_there(store: Database) -> None:
    for decide in (
        lambda: control.pause(store, "sw-ffffffff", ANNA),
        lambda: control.reserve(store, "PH9", "bert", ANNA),
        lambda: control.drain(store, "host-z", ANNA),
    ):
        with pytest.raises(Refused, match="there is no"):
            decide()
    control.cancel(store, "sw-00000001", ANNA)
    assert SweepState.CANCELLED == queries.sweep_summaries(store)[0].state
    with pytest.raises(Refused, match="first: farm sweep resume"):
        control.retry(store, "sw-00000001", ANNA)
