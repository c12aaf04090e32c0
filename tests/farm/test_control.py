"""Cancelling on a real farm: the run stops on its phone, and the phone is restored."""

from pathlib import Path

from orchestrator.planning.states import RunState
from orchestrator.store import operator_change, sweep_actions
from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import Farm, wait_for
from tests.farm.test_trouble import submit

STOPPED = """\
farm: 1
name: to-be-cancelled
workload: mlp-4
phones: [VM16T*]
matrix: {protocol: [soaked]}
conditions: {cores: big2, freq: mid}
repeat: 2
"""


def test_a_cancelled_run_stops_and_its_phone_is_restored(farm: Farm, tmp_path: Path) -> None:
    serial = next(name for name in farm.idle_phones() if name.startswith("VM16T"))
    before = farm.clocks(serial)
    sweep = submit(farm, tmp_path, STOPPED)
    wait_for(lambda: farm.phone(serial).status.stage == "run", "the run starts")
    change = sweep_actions.cancel(farm.db, sweep, operator_change.Actor("anna@desk"))
    assert change.after == {"waiting": 0, "running": 0, "state": "cancelled"}
    farm.broker.publish_event(change.event)
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "the sweep is finished", 20)
    assert sweep_summaries(farm.db, sweep)[0].runs == {RunState.CANCELLED: 2}
    wait_for(lambda: farm.phone(serial).status.state == "idle", "the phone is idle")
    after = farm.clocks(serial)
    assert before == {path: after[path] for path in before}
    assert farm.journal(serial, "run_start", "run_stop")[-1]["event"] == "run_stop"
