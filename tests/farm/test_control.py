"""Control over a real farm: a cancelled run is stopped on its phone, and the phone is put back."""

from pathlib import Path

from orchestrator.nouns import RunState
from orchestrator.store import control
from orchestrator.store.queries import sweep_summaries
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


def test_a_cancelled_run_stops_on_its_phone_and_leaves_it_as_it_was(
    farm: Farm, tmp_path: Path
) -> None:
    serial = next(name for name in farm.idle() if name.startswith("VM16T"))
    before = farm.clocks(serial)
    sweep = submit(farm, tmp_path, STOPPED)
    wait_for(lambda: farm.phone(serial).stage == "run", "the run starts")
    change = control.cancel(farm.db, sweep, control.By("anna@desk"))
    assert {"waiting": 0, "running": 0, "state": "cancelled"} == change.after
    farm.broker.tell(change.event)
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "nothing is left to do", 20)
    assert {RunState.CANCELLED: 2} == sweep_summaries(farm.db, sweep)[0].runs
    wait_for(lambda: farm.phone(serial).state == "idle", "the phone is idle")
    after = farm.clocks(serial)
    assert before == {path: after[path] for path in before}
    assert "run_stop" == farm.witness(serial, "run_start", "run_stop")[-1]["event"]
