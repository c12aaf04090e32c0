"""A case for the GPU through the whole lane: kernels pushed once, built there, times told apart."""

import platform
from pathlib import Path

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.phone import HOME
from agent.run.kernels import install_kernels
from agent.virtual.shelf import ShelfPlan, shelf_process
from kernels.manifest import kernel_shelf
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from tests.kernels.pocl import need_pocl
from workloads.catalogue import bind
from workloads.condition import Condition
from workloads.fault import Blame
from workloads.measure import Source


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_a_native_phone_computes_on_the_hosts_opencl(
    adb: AdbServer, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_pocl()
    monkeypatch.setenv("FARMHAND_OPENCL", "pocl")
    shelf = kernel_shelf()
    plan = ShelfPlan(("meizu-16t",), native=True, journal=tmp_path / "witness")
    with shelf_process(plan) as (address,):
        phone = open_phone(adb, address.address)
        condition = Condition(cores="all1", freq="free", start_temp_max_c=None, time_min_s=1)
        case = bind("sgemm-square", {"n": 64}, backend="opencl")
        job = a_job(phone.known.serial).model_copy(update={"case": case, "condition": condition})
        report = attempt(job, phone, desk).report
        pushed = phone.must(["ls", f"{HOME}/{shelf.folder_name}"]).split()
        assert f"{HOME}/{shelf.folder_name}" == install_kernels(phone, shelf)
        phone.close()
        adb.disconnect(address.address)
    assert report.fault is None, report.fault
    assert sorted(shelf.files) == sorted(pushed)
    figures = {metric.name: metric for metric in report.metrics}
    told = ["build_ms", "copy_ms", "queue_ms", "compute_ms", "copy_share"]
    assert {Source.HOST} == {figures[name].provenance.source for name in told}
    parts = sum(figures[name].value for name in told[1:4])
    total = figures["step_ms"].value
    assert 0 < parts < 3 * total  # a mean beside a median
    assert report.verdict is not None
    assert not [reason for reason in report.verdict.reasons if "answer" in reason]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_a_phone_without_opencl_says_so(adb: AdbServer, desk: Desk, tmp_path: Path) -> None:
    plan = ShelfPlan(("meizu-16t",), journal=tmp_path / "witness", speed=50.0)
    with shelf_process(plan) as (address,):
        phone = open_phone(adb, address.address)
        case = bind("mlp-1", {}, backend="opencl")
        job = a_job(phone.known.serial).model_copy(update={"case": case})
        report = attempt(job, phone, desk).report
        phone.close()
        adb.disconnect(address.address)
    assert report.fault is not None
    assert Blame.REQUEST is report.fault.blame
    assert "opencl" in report.fault.text
