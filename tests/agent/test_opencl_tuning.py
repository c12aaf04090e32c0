"""A phone is tuned by its runner, through adb; what was found is kept and goes into its runs."""

import platform
from pathlib import Path

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.phone import HOME
from agent.run.tuning import tune_phone, tuned_path
from agent.virtual.shelf import ShelfPlan, shelf_process
from kernels.manifest import runner_for
from kernels.tuning import parse_tuned
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from tests.kernels.pocl import need_pocl
from workloads.catalogue import bind
from workloads.condition import Condition


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_a_native_phone_is_tuned_and_runs_with_what_was_found(
    adb: AdbServer, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_pocl()
    monkeypatch.setenv("FARMHAND_OPENCL", "pocl")
    monkeypatch.setattr("agent.run.tuning.SECONDS", 1.0)  # the usual numbers, and no more
    plan = ShelfPlan(("meizu-16t",), native=True, journal=tmp_path / "witness")
    with shelf_process(plan) as (address,):
        phone = open_phone(adb, address.address)
        serial = phone.known.serial
        good, words, text = tune_phone(phone, desk.state_dir, runner_for, [32])
        assert (True, True) == (good, "3 products tuned" in words), words
        again = tune_phone(phone, desk.state_dir, runner_for, [32])
        condition = Condition(cores="all1", freq="free", start_temp_max_c=None, time_min_s=1)
        case = bind("sgemm-square", {"n": 64}, backend="opencl")
        job = a_job(serial).model_copy(update={"case": case, "condition": condition})
        report = attempt(job, phone, desk).report
        pushed = phone.must(["cat", f"{HOME}/tuned"])
        phone.close()
        adb.disconnect(address.address)
    assert (True, True, text) == (again[0], "0 products tuned" in again[1], again[2])
    assert text == tuned_path(desk.state_dir, serial).read_text() == pushed
    assert ["NN", "NT", "TN"] == [each.shape.letters for each in parse_tuned(pushed)[2]]
    assert report.fault is None, report.fault
