"""Durations of stored runs, and the plan that is based on them."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.app.plan_sweep import plan_on_phones, spread_trials
from orchestrator.planning.randomize import order_runs
from orchestrator.planning.run_durations import EstimateBasis
from orchestrator.store import phone_actions, phone_queries, submission, timings
from orchestrator.store.compressed_text import compress_text
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.operator_change import Actor
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.builders import a_phone, a_report, an_announcement
from tests.leasing import lease_next
from workloads.protocol.stage import Stage

TEXT = "farm: 1\nname: demo\nworkload: mlp-4\nphones: {select: not tag == shy}\nrepeat: 2\n"


def test_a_plan_uses_stored_durations_and_names_unavailable_phones(store: Database) -> None:
    for serial in ("PH1", "PH2", "PH3"):
        store_parcels(
            store, "host-a", [an_announcement(a_phone(serial, model="Pixel", provenance=None))]
        )
    phone_actions.tag(store, "PH3", Actor("anna@desk"), add=["shy"])
    phone_actions.reserve(store, "PH2", Actor("anna@desk"), "bert", until=3e9)
    sweep = read_sweep(TEXT)
    before = plan_on_phones(sweep, store)
    assert [each.bases for each in before.estimates] == [
        {EstimateBasis.PROTOCOL_LENGTH: 1},
        {EstimateBasis.PROTOCOL_LENGTH: 1},
    ]
    assert before.disk.bytes_at_most is None

    expansion = spread_trials(sweep, phone_queries.known_phones(store), store)
    row = {"id": sweep.id, "name": sweep.name, "source": TEXT, "seed": sweep.seed}
    submission.submit(store, row, expansion.trials, order_runs(sweep, expansion.trials))
    ((_, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=2e9)
    started = datetime(2026, 11, 1, tzinfo=UTC)
    ended = started + timedelta(seconds=50)
    report = a_report(job, started_at=started, ended_at=ended, stage_seconds={Stage.COOL: 30.0})
    store_parcels(store, "host-a", [report])

    (run,) = timings.newest_timings(store, limit=9)
    assert (run.phone, run.measuring_s, run.cooldown_s) == ("PH1", 20.0, 30.0)
    assert (run.case_digest, run.condition_digest) == sweep.cells[0].key
    assert timings.timings_since(store, cursor=None) == [run]
    assert timings.timings_since(store, cursor=run.report) == []
    after = plan_on_phones(sweep, store)
    assert [each.bases for each in after.estimates] == [
        {EstimateBasis.SAME_PHONE: 1},
        {EstimateBasis.SAME_MODEL: 1},
    ]
    for each in after.estimates:
        assert each.cooling is not None
        assert each.cooling.p50_s == pytest.approx(60, rel=0.3)
    size = len(compress_text(report.model_dump_json()))
    assert (after.disk.per_run, after.disk.bytes_at_most) == (size, 4 * size)
    assert [(each.phone, each.reason) for each in after.skipped] == [
        ("PH3", "it matches tag == shy")
    ]
    assert after.unavailable == {"PH2": "reserved by bert"}
    assert after.as_json(sweep)["unavailable"] == {"PH2": "reserved by bert"}
    assert [item["phone"] for item in after.as_json(sweep)["not_matched"]] == ["PH3"]


def test_a_phone_keeps_its_trials_when_other_phones_appear(store: Database) -> None:
    sweep = read_sweep(TEXT.replace("{select: not tag == shy}", "{take: 1}"))
    store_parcels(store, "host-a", [an_announcement(a_phone("PH1"))])
    first = spread_trials(sweep, phone_queries.known_phones(store), store)
    row = {"id": sweep.id, "name": sweep.name, "source": TEXT, "seed": sweep.seed}
    submission.submit(store, row, first.trials, order_runs(sweep, first.trials))
    for number in range(2, 9):
        store_parcels(store, "host-a", [an_announcement(a_phone(f"PH{number}"))])
    assert spread_trials(sweep, phone_queries.known_phones(store), store).phones == ("PH1",)


def test_seconds_of_a_fast_phone_are_converted_to_wall_time(store: Database) -> None:
    sweep = read_sweep(TEXT)
    store_parcels(store, "host-a", [an_announcement(a_phone("PH1"))])
    expansion = spread_trials(sweep, phone_queries.known_phones(store), store)
    row = {"id": sweep.id, "name": sweep.name, "source": TEXT, "seed": sweep.seed}
    submission.submit(store, row, expansion.trials, order_runs(sweep, expansion.trials))
    ((_, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30, now=2e9)
    started = datetime(2026, 11, 1, tzinfo=UTC)
    seconds = {Stage.COOL: 600.0, Stage.RUN: 400.0}
    ended = started + timedelta(seconds=5)
    report = a_report(job, started_at=started, ended_at=ended, stage_seconds=seconds)
    store_parcels(store, "host-a", [report])
    assert timings.phone_speeds(store) == {"PH1": 200.0}
    (run,) = timings.newest_timings(store, limit=9)
    assert (run.cooldown_s, run.measuring_s) == (3.0, 2.0)
