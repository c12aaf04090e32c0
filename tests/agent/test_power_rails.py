"""Power rails: Pixels that count energy, Tegra boards that tell power, and phones with neither."""

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.phone import split_nodes
from agent.run.rails import Meter, parse_meters, rail_courses, rails_w
from agent.run.telemetry import Readings
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from workloads.timeline import join, read_blob, telemetry_of

S = 10**9
ODPM = "/sys/bus/iio/devices/iio:device0/energy_value"
INA = "/sys/bus/i2c/drivers/ina3221x/0-0041/iio:device1"


def test_meters_are_found_where_the_kernel_keeps_them() -> None:
    """Paths with a colon in them included."""
    text = (
        f"{ODPM}:t=349894\n{ODPM}:CH0(T=349894)[S10M_VDD_TPU], 5578756\n"
        f"{INA}/rail_name_0:VDD_IN\n{INA}/rail_name_1:../../etc\n/sys/x/type:cpu:0\n"
    )
    nodes = split_nodes(text)
    assert nodes["/sys/x/type"] == "cpu:0"
    found = parse_meters(nodes)
    assert found == (Meter(f"{INA}/in_power0_input", "VDD_IN"), Meter(ODPM))
    assert [meter.sampled for meter in found] == [f"{INA}/in_power0_input", f"{ODPM}\twhole"]
    assert parse_meters({}) == ()


def test_counted_energy_and_told_power_become_watts() -> None:
    """2 W as micro-watt-seconds that add up, 3 W as milliwatts."""
    counts = [f"t=1;CH0(T=1)[CPU], {2_000_000 * row};CH1(T=1)[GPU], 7" for row in range(4)]
    readings = Readings((ODPM, "/p"), [0, S, 2 * S, 3 * S], {ODPM: [*counts], "/p": [3000] * 4})
    courses = rail_courses(readings, [Meter(ODPM), Meter("/p", "VDD_IN")])
    assert rails_w(courses, (S // 2, 9 * S)) == pytest.approx({"CPU": 2, "GPU": 0, "VDD_IN": 3})
    assert rails_w(courses, (8 * S, 9 * S)) == {}  # nobody looked by then


def test_a_counter_that_goes_back_is_not_believed() -> None:
    """It was set to zero in between; what it counted then is not known."""
    counts = [f"CH0(T=1)[CPU], {count}" for count in (5, 9, 2)]
    readings = Readings((ODPM,), [0, S, 2 * S], {ODPM: [*counts]})
    assert rail_courses(readings, [Meter(ODPM)]) == {}


@pytest.mark.parametrize(
    ("profile", "whole", "part"),
    [("nvidia-tx2", "VDD_IN", "VDD_SYS_CPU"), ("google-pixel-8", None, "S3M_VDD_CPUCL1")],
)
def test_a_run_tells_what_each_rail_drew(
    adb: AdbServer,
    start_phone: StartPhone,
    desk: Desk,
    profile: str,
    whole: str | None,
    part: str,
) -> None:
    """In its figures, and by operation."""
    phone = open_phone(adb, start_phone(profile).address)
    job = a_job(phone.known.serial, cores="big2", freq="free", start_temp_max_c=None, time_min_s=2)
    done = attempt(job, phone, desk)
    phone.close()
    assert done.report.fault is None, done.report.fault
    figures = {metric.name: metric.value for metric in done.report.metrics}
    assert figures[f"rail_power_w.{part}"] > 0.1
    if whole is not None:
        assert figures[f"rail_power_w.{whole}"] > figures[f"rail_power_w.{part}"]
    assert done.telemetry is not None
    ops = join(telemetry_of(read_blob(done.telemetry)))
    assert all(op.rails_w[part] > 0.1 for op in ops)
