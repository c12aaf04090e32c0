"""An OpenCL case through the whole lane: kernels are pushed once and built on the phone."""

import platform
from pathlib import Path

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.launch.opencl_kernels import install_kernels
from agent.phone.adb import AdbServer
from agent.phone.phone_paths import HOME
from agent.virtual.fleet_server import FleetConfig
from kernels.harness.local_runner import open_runner
from kernels.runner_builds import kernel_sources
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from tests.kernels.pocl import need_pocl
from tests.virtual.running_fleet import serve_fleet_in_process
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.metrics import Source
from workloads.protocol.verdict import ReasonCode


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_a_native_phone_computes_on_the_hosts_opencl(
    adb: AdbServer, context: LaneContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_pocl()
    monkeypatch.setenv("FARM_OPENCL", "pocl")
    sources = kernel_sources()
    plan = FleetConfig(("meizu-16t",), native=True, journal=tmp_path / "journals")
    with serve_fleet_in_process(plan) as (address,):
        phone = open_phone(adb, address.address)
        condition = Condition(cores="all1", freq="free", start_temp_max_c=None, time_min_s=1)
        case = bind("sgemm-square", {"n": 64, "kernel": "tiled_vector"}, backend="opencl")
        job = a_job(phone.facts.serial).model_copy(update={"case": case, "condition": condition})
        report = run_attempt(job, phone, context).report
        pushed = phone.shell_checked(["ls", f"{HOME}/{sources.folder_name}"]).split()
        assert install_kernels(phone, sources) == f"{HOME}/{sources.folder_name}"
        phone.close()
        adb.disconnect(address.address)
    assert report.fault is None, report.fault
    assert sorted(pushed) == sorted(sources.files)
    with open_runner() as runner:  # what `farm kernels bench` times
        (benched,) = runner.products(["64 64 64 0 0 tiled_vector"], 1, 1)
    (program,) = report.programs
    assert program.model_dump() == {name: benched[name] for name in program.model_dump()}
    metrics = {metric.name: metric for metric in report.metrics}
    names = ["build_ms", "copy_ms", "queue_ms", "compute_ms", "copy_share"]
    assert {metrics[name].provenance.source for name in names} == {Source.HOST}
    parts = sum(metrics[name].value for name in names[1:4])
    total = metrics["step_ms"].value
    assert 0 < parts < 3 * total  # a mean beside a median
    assert report.verdict is not None
    assert ReasonCode.ANSWER_WRONG not in {reason.code for reason in report.verdict.reasons}
