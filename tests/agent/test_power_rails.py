"""Power rails: Pixels that count energy, Tegra boards that give power, and phones with neither."""

import pytest

from agent.collect.power_rails import mean_rail_power_w, rail_series, sampled_meter_nodes
from agent.collect.readings import Readings
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.power_meters import RailMeter, find_rail_meters
from agent.phone.shell_command import parse_nodes
from orchestrator.analysis.op_telemetry import op_rows
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from workloads.protocol.telemetry import read_telemetry

S = 10**9
ODPM = "/sys/bus/iio/devices/iio:device0/energy_value"
INA = "/sys/bus/i2c/drivers/ina3221x/0-0041/iio:device1"


def test_meters_are_found_where_the_kernel_keeps_them() -> None:
    text = (
        f"{ODPM}:t=349894\n{ODPM}:CH0(T=349894)[S10M_VDD_TPU], 5578756\n"
        f"{INA}/rail_name_0:VDD_IN\n{INA}/rail_name_1:../../etc\n/sys/x/type:cpu:0\n"
    )
    nodes = parse_nodes(text)
    assert nodes["/sys/x/type"] == "cpu:0"
    meters = find_rail_meters(nodes)
    assert meters == (RailMeter(f"{INA}/in_power0_input", "VDD_IN"), RailMeter(ODPM))
    sampled = [node for meter in meters for node in sampled_meter_nodes(meter)]
    assert sampled == [f"{INA}/in_power0_input", f"{ODPM}\twhole"]
    assert find_rail_meters({}) == ()


def test_counted_energy_and_sampled_power_become_watts() -> None:
    counts = [f"t=1;CH0(T=1)[CPU], {2_000_000 * row};CH1(T=1)[GPU], 7" for row in range(4)]
    readings = Readings((ODPM, "/p"), [0, S, 2 * S, 3 * S], {ODPM: [*counts], "/p": [3000] * 4})
    series = rail_series(readings, [RailMeter(ODPM), RailMeter("/p", "VDD_IN")])
    assert mean_rail_power_w(series, (S // 2, 9 * S)) == pytest.approx(
        {"CPU": 2, "GPU": 0, "VDD_IN": 3}
    )
    assert mean_rail_power_w(series, (8 * S, 9 * S)) == {}  # nothing was sampled by then


def test_a_counter_that_goes_back_is_not_used() -> None:
    counts = [f"CH0(T=1)[CPU], {count}" for count in (5, 9, 2)]
    readings = Readings((ODPM,), [0, S, 2 * S], {ODPM: [*counts]})
    assert rail_series(readings, [RailMeter(ODPM)]) == {}


@pytest.mark.parametrize(
    ("profile", "whole", "part"),
    [("nvidia-tx2", "VDD_IN", "VDD_SYS_CPU"), ("google-pixel-8", None, "S3M_VDD_CPUCL1")],
)
def test_a_run_reports_the_power_of_each_rail(
    adb: AdbServer,
    start_phone: StartPhone,
    context: LaneContext,
    profile: str,
    whole: str | None,
    part: str,
) -> None:
    phone = open_phone(adb, start_phone(profile).address)
    job = a_job(phone.facts.serial, cores="big2", freq="free", start_temp_max_c=None, time_min_s=2)
    done = run_attempt(job, phone, context)
    phone.close()
    assert done.report.fault is None, done.report.fault
    figures = {metric.name: metric.value for metric in done.report.metrics}
    assert figures[f"rail_power_w.{part}"] > 0.1
    if whole is not None:
        assert figures[f"rail_power_w.{whole}"] > figures[f"rail_power_w.{part}"]
    assert done.telemetry is not None
    ops = op_rows(read_telemetry(done.telemetry))
    assert all(op.rails_w[part] > 0.1 for op in ops)
