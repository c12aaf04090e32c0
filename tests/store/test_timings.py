"""What runs took before is read from their reports, and what a plan makes of it."""

from datetime import UTC, datetime, timedelta

from orchestrator.plan.estimate import Basis, Span
from orchestrator.plan.order import order
from orchestrator.plan.sweep import read_sweep
from orchestrator.planning import plan, spread
from orchestrator.store import backlog, control, history, leases, queries
from orchestrator.store.control import By
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from tests.builders import a_phone, a_report, a_sighting

TEXT = "farm: 1\nname: demo\nworkload: mlp-4\nphones: {select: not tag == shy}\nrepeat: 2\n"


def test_a_plan_tells_the_past_of_the_phone_its_disk_and_who_is_left_out(store: Database) -> None:
    for serial in ("PH1", "PH2", "PH3"):
        store_parcels(
            store, "host-a", [a_sighting(a_phone(serial, model="Pixel", provenance=None))]
        )
    control.tag(store, "PH3", By("anna@desk"), add=["shy"])
    control.reserve(store, "PH2", "bert", By("anna@desk"), until=3e9)
    sweep = read_sweep(TEXT)
    before = plan(sweep, store)
    assert [{Basis.LENGTH: 1}, {Basis.LENGTH: 1}] == [each.bases for each in before.estimates]
    assert None is before.disk.bytes_at_most

    expansion = spread(sweep, queries.known_phones(store), store)
    row = {"id": sweep.id, "name": sweep.name, "source": TEXT, "seed": sweep.seed}
    backlog.submit(store, row, expansion.trials, order(sweep, expansion.trials))
    ((_, job),) = leases.lease_next(store, {"PH1": "host-a"}, lease_s=30, now=2e9)
    began = datetime(2026, 11, 1, tzinfo=UTC)
    ended = began + timedelta(seconds=50)
    report = a_report(job, started_at=began, ended_at=ended, stage_s={"cool": 30.0})
    store_parcels(store, "host-a", [report])

    (run,) = history.past_runs(store)
    assert ("PH1", "Pixel", "cold", 50.0, 30.0) == (
        *(run.phone, run.model, run.protocol),
        *(run.took_s, run.cooled_s),
    )
    assert sweep.cells[0].key == run.cell
    after = plan(sweep, store)
    assert [{Basis.SAME: 1}, {Basis.SIBLINGS: 1}] == [each.bases for each in after.estimates]
    assert {Span(60, 60)} == {each.cooling for each in after.estimates}
    size = len(report.model_dump_json())
    assert (size, 4 * size) == (after.disk.per_run, after.disk.bytes_at_most)
    assert [("PH3", "it is: tag == shy")] == [
        (each.phone, each.reason) for each in after.expansion.skipped
    ]
    assert {"PH2": "reserved by bert"} == after.unwell
    assert "not_matched" in after.as_json()


def test_who_has_a_sweep_keeps_it_when_others_come(store: Database) -> None:
    sweep = read_sweep(TEXT.replace("{select: not tag == shy}", "{take: 1}"))
    store_parcels(store, "host-a", [a_sighting(a_phone("PH1"))])
    first = spread(sweep, queries.known_phones(store), store)
    row = {"id": sweep.id, "name": sweep.name, "source": TEXT, "seed": sweep.seed}
    backlog.submit(store, row, first.trials, order(sweep, first.trials))
    for number in range(2, 9):
        store_parcels(store, "host-a", [a_sighting(a_phone(f"PH{number}"))])
    assert ("PH1",) == spread(sweep, queries.known_phones(store), store).phones
