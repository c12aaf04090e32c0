"""A phone is tuned by its runner over adb; the result is stored and used by its runs."""

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.launch.opencl_tuning import tune_phone, tuning_file
from agent.phone.adb import AdbServer
from agent.phone.phone_paths import HOME
from agent.timeouts import DEFAULT_TIMEOUTS
from agent.virtual.fleet_server import FleetConfig
from kernels.autotuner import parse_tuned
from kernels.runner_builds import runner_for
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from tests.kernels.pocl import need_pocl
from tests.virtual.running_fleet import serve_fleet_in_process
from workloads.catalogue import bind
from workloads.protocol.condition import Condition


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_a_native_phone_is_tuned_and_uses_the_result(
    adb: AdbServer, context: LaneContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_pocl()
    monkeypatch.setenv("FARM_OPENCL", "pocl")
    plan = FleetConfig(("meizu-16t",), native=True, journal=tmp_path / "journals")
    with serve_fleet_in_process(plan) as (address,):
        phone = open_phone(adb, address.address)
        serial = phone.facts.serial
        # Time for the default parameters only.
        phone.timeouts = replace(DEFAULT_TIMEOUTS, tuning_search_timeout_s=1.0)
        succeeded, message, text = tune_phone(phone, context.state_dir, runner_for, [32])
        assert succeeded, message
        again = tune_phone(phone, context.state_dir, runner_for, [32])
        condition = Condition(cores="all1", freq="free", start_temp_max_c=None, time_min_s=1)
        case = bind("sgemm-square", {"n": 64}, backend="opencl")
        job = a_job(serial).model_copy(update={"case": case, "condition": condition})
        report = run_attempt(job, phone, context).report
        pushed = phone.shell_checked(["cat", f"{HOME}/tuned"])
        phone.close()
        adb.disconnect(address.address)
    assert (again[0], again[2]) == (True, text)  # the search was not repeated
    assert tuning_file(context.state_dir, serial).read_text() == pushed == text
    assert [tuned.shape.letters for tuned in parse_tuned(pushed)[2]] == ["NN", "NT", "TN"]
    assert report.fault is None, report.fault
