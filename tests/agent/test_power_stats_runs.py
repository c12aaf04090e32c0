"""Runs on unrooted Pixels: their energy comes from the power statistics, and from nowhere else."""

import re

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext, LaneResult
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.power_stats import parse_power_stats
from agent.virtual.fleet_server import FleetConfig
from orchestrator.analysis.op_telemetry import op_rows
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.protocol.metrics import Metric
from workloads.protocol.phone_facts import PowerStatsHal
from workloads.protocol.telemetry import read_telemetry
from workloads.protocol.verdict import ReasonCode

DELTA = ["dumpsys", "android.hardware.power.stats.IPowerStats/default", "delta"]


def run_for(phone: Phone, context: LaneContext, seconds: int = 20) -> LaneResult:
    condition = {"cores": "big2", "freq": "free", "start_temp_max_c": 60, "time_min_s": seconds}
    done = run_attempt(a_job(phone.facts.serial, **condition), phone, context)
    assert done.report.fault is None, done.report.fault
    return done


def figures(done: LaneResult) -> dict[str, Metric]:
    return {metric.name: metric for metric in done.report.metrics}


@pytest.mark.slow  # two runs of 20 s
def test_the_rails_of_a_stock_pixel_add_up_to_the_battery_of_a_rooted_one(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    stock = open_phone(adb, start_phone("google-pixel-8:stock", speed=5).address)
    assert stock.facts.power_stats is PowerStatsHal.AIDL
    assert any("power statistics" in text for text in stock.facts.controlled)
    move_baseline(stock)
    done = run_for(stock, context)
    assert move_baseline(stock) > 20_000  # the run did not move it
    by_rails = figures(done)
    assert by_rails["energy_j"].grade == "rails"
    assert by_rails["rail_power_w.S3M_VDD_CPUCL1"].value > 0.1
    assert 0.2 < by_rails["idle_power_w"].value < by_rails["power_w"].value
    assert done.telemetry is not None
    ops = op_rows(read_telemetry(done.telemetry))
    assert all(op.power_w and op.rails_w["S3M_VDD_CPUCL1"] > 0.1 for op in ops)

    rooted = open_phone(adb, start_phone("google-pixel-8", speed=50).address)
    assert rooted.facts.power_stats is None  # its sampler reads the nodes of the meters
    run_for(rooted, context)  # calibrates the gauge
    by_battery = figures(run_for(rooted, context))
    assert by_battery["energy_j"].grade in {"gauge", "usb+battery"}
    assert by_battery["rail_energy_share"].value == pytest.approx(1.0, abs=0.05)
    assert by_rails["energy_per_step_mj"].value == pytest.approx(
        by_battery["energy_per_step_mj"].value, rel=0.05
    )
    stock.close()
    rooted.close()


def move_baseline(phone: Phone) -> int:
    """Call `delta`, and return the time since the last caller did, in ms."""
    text = phone.shell_checked(DELTA)
    match = re.search(r"energy meter =+\nElapsed time: (\d+) ms", text)
    assert match is not None
    assert parse_power_stats(text)  # the totals can be read from such a dump, too
    return int(match[1])


def test_totals_that_grew_too_large_give_no_energy(adb: AdbServer, context: LaneContext) -> None:
    with serve_fleet_in_thread(FleetConfig(("google-pixel-8:stock",), speed=5)) as (fleet, (at,)):
        soc = fleet.servers[0].phone.soc
        soc.change(lambda: soc.rails_j.update(board=5e7))  # a year
        phone = open_phone(adb, at.address)
        done = run_for(phone, context, 8)
        phone.close()
        adb.disconnect(at.address)
    assert "energy_j" not in figures(done)
    assert done.report.verdict is not None
    codes = {reason.code for reason in done.report.verdict.reasons}
    assert ReasonCode.ENERGY_RAILS_ROUNDED in codes


def test_older_pixels_answer_lshal(adb: AdbServer, context: LaneContext) -> None:
    with serve_fleet_in_thread(FleetConfig(("google-pixel-8:stock",), speed=5)) as (fleet, (at,)):
        old = fleet.servers[0].phone
        old.profile = old.profile.model_copy(update={"sdk": 30})
        old.properties["ro.build.version.sdk"] = "30"
        phone = open_phone(adb, at.address)
        assert phone.facts.power_stats is PowerStatsHal.HIDL
        assert figures(run_for(phone, context, 8))["energy_j"].grade == "rails"
        phone.close()
        adb.disconnect(at.address)
