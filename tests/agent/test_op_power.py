"""Power per operation: what the physics draws in each operation is recovered from the meters."""

from fnmatch import fnmatchcase
from math import fsum
from pathlib import Path

import numpy as np
import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.virtual.physics.op_power import StepPower
from agent.virtual.physics.step_model import CpuStepModel
from agent.virtual.physics.step_timing import OpTable
from agent.virtual.profiles import load_profile
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from orchestrator.analysis.op_telemetry import OpMethod, op_rows
from tests.agent.jobs import a_job
from tests.agent.lane_harness import open_lane_harness
from workloads.protocol.telemetry import read_telemetry

RAIL, PARTS, WATTS = "VDD_SYS_CPU", ("little", "big", "prime"), 6.0


def drawn_watts(workload: str, batch: int) -> dict[str, float]:
    """Return what the cores of a TX2 draw in each operation."""
    model = OfflineModel(load_profile("nvidia-tx2"), bind_workload(workload, batch), "all4")
    steps = CpuStepModel(OpTable(model.step.ops, model.engine))
    seconds = steps.op_shares(model.speed) * model.timing.seconds
    power = StepPower(np.append([0.0], seconds), steps.drawn(model.speed))
    step_s = model.timing.seconds
    model.load.lead_s = lambda part, moment: step_s * power.lead(part, moment / step_s)
    mean = fsum(model.soc.rails_w().get(part, 0.0) for part in PARTS)
    ends = seconds.cumsum()
    return {
        op.name: mean + fsum(model.soc.surplus_w(end, length).get(part, 0.0) for part in PARTS)
        for op, end, length in zip(model.step.ops, ends, seconds, strict=True)
    }


@pytest.mark.parametrize(
    ("op", "workload", "apart"), [("*.forward", "char-lstm", 1.0), ("conv*", "alexnet", 1.2)]
)
def test_the_power_of_operations_is_recovered_within_five_percent(
    adb: AdbServer, context: LaneContext, tmp_path: Path, op: str, workload: str, apart: float
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
    found = {
        row.name: row.rails_w[RAIL]
        for row in rows
        if row.share > 0.02 and row.method is not OpMethod.GROUP
    }
    truth = drawn_watts(workload, 16)
    own = [truth[name] for name in found]
    assert max(own) >= apart * min(own), "operations differ without the injected power, too"
    for name, watts in found.items():
        expected = truth[name] + (WATTS if fnmatchcase(name, op) else 0.0)
        assert watts == pytest.approx(expected, rel=0.05), name
