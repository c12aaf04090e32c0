"""Energy: both sources added, the gauge calibrated, and a grade on every figure."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.run.energy import (
    CURRENT,
    STATUS,
    USB_CURRENTS,
    USB_LIMIT,
    USB_ONLINE,
    USB_VOLTAGE,
    VOLTAGE,
    Grade,
    found_gauge,
    power_of,
    rest_power_w,
)
from agent.run.telemetry import Readings, Value
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from workloads.measure import Metric
from workloads.phone import Gauge

S = 10**9
GAUGE = Gauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)
SPAN = (0, 10 * S)


def read(**columns: Value) -> Readings:
    """Ten seconds at 4 V and half an ampere out, three values a second, a little noise."""
    given: dict[str, Value] = {
        CURRENT: -500_000,
        VOLTAGE: 4_000_000,
        STATUS: "Discharging",
        USB_ONLINE: 0,
    }
    given |= {PATHS[name]: value for name, value in columns.items()}
    t_ns = [at * S // 3 for at in range(31)]
    made: dict[str, list[Value]] = {path: [value] * len(t_ns) for path, value in given.items()}
    current = given[CURRENT]
    if isinstance(current, int):
        made[CURRENT] = [current + (at % 3 - 1) * max(abs(current) // 500, 1) for at in range(31)]
    return Readings(paths=tuple(given), t_ns=t_ns, columns=made)


PATHS = {
    "current": CURRENT,
    "voltage": VOLTAGE,
    "status": STATUS,
    "online": USB_ONLINE,
    "usb_current": USB_CURRENTS[0],
    "usb_voltage": USB_VOLTAGE,
    "usb_limit": USB_LIMIT,
}


@pytest.mark.parametrize(
    ("given", "gauge"),
    [
        (read(), GAUGE),  # negative means out: most vendors
        (read(current=500_000), GAUGE.model_copy(update={"discharge_sign": 1})),  # the others
        (read(current=-500), GAUGE.model_copy(update={"unit_a": 1e-3})),  # mA instead of µA
        (read(voltage=4000), GAUGE),  # mV instead of µV
    ],
)
def test_signs_and_units_of_vendors_come_to_the_same_joules(given: Readings, gauge: Gauge) -> None:
    power = power_of(given, gauge)
    assert power.grade is Grade.GAUGE
    assert power.energy_j(SPAN) == pytest.approx(20.0, rel=0.01)


def test_a_port_and_a_battery_are_added_up() -> None:
    """The study's mistake: the port alone saturates, and looks like a constant."""
    given = read(online=1, usb_current=470_000, usb_voltage=5_000_000, usb_limit=480_000)
    power = power_of(given, GAUGE)
    assert (power.grade, power.saturated) == (Grade.BOTH, True)
    assert power.energy_j(SPAN) == pytest.approx(20.0 + 23.5, rel=0.01)


def test_what_flows_into_the_battery_is_not_the_phones() -> None:
    given = read(
        current=200_000, status="Charging", online=1, usb_current=400_000, usb_voltage=5_000_000
    )
    power = power_of(given, GAUGE)
    assert power.energy_j(SPAN) == pytest.approx(10 * (2.0 - 0.8), rel=0.01)


@pytest.mark.parametrize(
    ("given", "gauge", "grade", "why"),
    [
        (Readings(), GAUGE, Grade.REJECTED, "was not read"),
        (read(current=None), GAUGE, Grade.REJECTED, "was not read"),
        (read(online=1), GAUGE, Grade.REJECTED, "a part that was not read"),
        (read(current=-9_000_000), GAUGE, Grade.REJECTED, "no power of a phone"),
        (read(current=500_000), GAUGE, Grade.REJECTED, "no power of a phone"),
        (read(), None, Grade.COARSE, "guessed"),
    ],
)
def test_what_cannot_be_trusted_is_graded_down(
    given: Readings, gauge: Gauge | None, grade: Grade, why: str
) -> None:
    power = power_of(given, gauge)
    assert power.grade is grade
    assert why in power.why
    assert (power.energy_j(SPAN) is None) == (grade is Grade.REJECTED)


def test_a_gauge_that_stands_still_or_is_lazy() -> None:
    still = read()
    still.columns[CURRENT] = [-500_000] * 31
    assert power_of(still, GAUGE).why == "the battery's gauge stood still"
    lazy = read()
    lazy.columns[CURRENT] = [-500_000 - at // 8 for at in range(31)]
    slow = GAUGE.model_copy(update={"period_s": 10.0})
    assert (power_of(lazy, slow).grade, power_of(lazy, slow).why) == (
        Grade.COARSE,
        "the gauge gave 4 values in the run",
    )


def test_the_gauge_is_found_by_rest_and_work() -> None:
    rest, work = read(current=-150_000), read(current=-900_000)
    gauge = found_gauge(None, rest, work)
    assert gauge is not None
    assert (gauge.discharge_sign, gauge.unit_a) == (-1, 1e-6)
    assert found_gauge(GAUGE, rest, rest) == GAUGE
    assert rest_power_w(rest, gauge) == pytest.approx(0.6, rel=0.01)
    assert rest_power_w(Readings(), gauge) is None


def test_a_meter_outranks_every_gauge() -> None:
    metered = [(at * S, 3.0) for at in range(11)]
    power = power_of(read(), GAUGE, metered)
    assert (power.grade, power.energy_j(SPAN)) == (Grade.METER, pytest.approx(30.0))


class BenchMeter:
    """A meter that says three watts all the time."""

    def __init__(self) -> None:
        self.began = 0.0

    def start(self) -> None:
        import time

        self.began = time.monotonic()

    def stop(self) -> Sequence[tuple[float, float]]:
        return [(self.began + at / 1000, 3.0) for at in range(-50, 3000)]


@pytest.mark.parametrize(
    ("profile", "grade", "sign"),
    [
        ("meizu-16t", Grade.GAUGE, -1),  # its charger can be cut off
        ("vivo-x100", Grade.BOTH, 1),  # no switch: the port gives its part
    ],
)
def test_a_phone_learns_its_gauge_with_its_first_run(
    adb: AdbServer, start_phone: StartPhone, desk: Desk, profile: str, grade: Grade, sign: int
) -> None:
    phone = open_phone(adb, start_phone(profile, speed=60).address)
    report = attempt(a_job(phone.known.serial, time_min_s=25), phone, desk).report
    assert report.fault is None, report.fault
    assert phone.known.gauge is not None
    assert phone.known.gauge.discharge_sign == sign
    found: dict[str, Metric] = {metric.name: metric for metric in report.metrics}
    assert found["energy_j"].grade == grade.value
    assert 0.3 < found["idle_power_w"].value < 2.0
    assert 0 < found["energy_net_j"].value < found["energy_j"].value
    assert found["step_ms"].grade == ""
    assert 1.5 < found["power_w"].value < 12


def test_an_external_meter_fits_in(adb: AdbServer, start_phone: StartPhone, desk: Desk) -> None:
    phone = open_phone(adb, start_phone("meizu-16t", speed=60).address)
    metered = replace(desk, meter=BenchMeter())
    report = attempt(a_job(phone.known.serial, time_min_s=25), phone, metered).report
    found = {metric.name: metric for metric in report.metrics}
    assert found["energy_j"].grade == Grade.METER.value
    assert found["power_w"].value == pytest.approx(3.0, rel=0.1)
