"""Power per operation: known power that a virtual phone adds to operations is recovered."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from orchestrator.analysis.op_telemetry import OpMethod, op_rows
from tests.agent.jobs import a_job
from tests.agent.lane_harness import open_lane_harness
from workloads.protocol.telemetry import read_telemetry

RAIL, WATTS = "VDD_SYS_CPU", 6.0


@pytest.mark.parametrize(("op", "workload"), [("*.forward", "char-lstm"), ("conv*", "alexnet")])
def test_power_that_some_operations_add_is_recovered_within_five_percent(
    adb: AdbServer, context: LaneContext, tmp_path: Path, op: str, workload: str
) -> None:
    with open_lane_harness(adb, context, tmp_path, "nvidia-tx2") as harness:
        harness.inject("op_power", op=op, watts=WATTS)
        condition = {"cores": "all4", "freq": "free", "start_temp_max_c": None, "time_min_s": 25}
        job = a_job(
            harness.phone.facts.serial,
            workload=workload,
            parameters={"batch_size": 16},
            sample_hz=200,
            trace_steps=300,
            **condition,
        )
        done = run_attempt(job, harness.phone, context)
    assert done.report.fault is None, done.report.fault
    assert done.telemetry is not None
    rows = op_rows(read_telemetry(done.telemetry))
    told_apart = [row for row in rows if row.share > 0.02 and row.method is not OpMethod.GROUP]
    assert told_apart
    with_watts = {row.name: row.rails_w[RAIL] for row in told_apart if fnmatchcase(row.name, op)}
    without = [row.rails_w[RAIL] for row in told_apart if row.name not in with_watts]
    base = sum(without) / len(without)
    assert all(watts == pytest.approx(base, rel=0.05) for watts in without)
    assert all(watts == pytest.approx(base + WATTS, rel=0.05) for watts in with_watts.values())
