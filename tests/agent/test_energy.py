"""Energy: both sources added, the gauge calibrated, and a grade on every metric."""

import pytest

from agent.collect.energy import (
    CURRENT,
    STATUS,
    USB_CURRENTS,
    USB_LIMIT,
    USB_ONLINE,
    USB_VOLTAGE,
    VOLTAGE,
    EnergyGrade,
    gauge_for_run,
    power_from_readings,
    resting_power_w,
)
from agent.collect.readings import NodeValue, Readings
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from workloads.protocol.metrics import Metric
from workloads.protocol.phone_facts import FuelGauge
from workloads.protocol.verdict import Reason, ReasonCode

S = 10**9
GAUGE = FuelGauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)
SPAN = (0, 10 * S)


def read(**columns: NodeValue) -> Readings:
    """Build readings of 10 s at 4 V and 0.5 A discharge, three per second, with a little noise."""
    nodes: dict[str, NodeValue] = {
        CURRENT: -500_000,
        VOLTAGE: 4_000_000,
        STATUS: "Discharging",
        USB_ONLINE: 0,
    }
    nodes |= {PATHS[name]: value for name, value in columns.items()}
    rows = range(31)
    values: dict[str, list[NodeValue]] = {
        path: [value for _ in rows] for path, value in nodes.items()
    }
    current = nodes[CURRENT]
    if isinstance(current, int):
        noise = max(abs(current) // 500, 1)
        values[CURRENT] = [current + (row % 3 - 1) * noise for row in rows]
    return Readings(paths=tuple(nodes), t_ns=[row * S // 3 for row in rows], columns=values)


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
    ("sampled", "gauge"),
    [
        (read(), GAUGE),  # negative while discharging: most vendors
        (read(current=500_000), GAUGE.model_copy(update={"discharge_sign": 1})),  # the others
        (read(current=-500), GAUGE.model_copy(update={"unit_a": 1e-3})),  # mA instead of µA
        (read(voltage=4000), GAUGE),  # mV instead of µV
    ],
)
def test_signs_and_units_of_vendors_give_the_same_energy(
    sampled: Readings, gauge: FuelGauge
) -> None:
    power = power_from_readings(sampled, gauge)
    assert power.grade is EnergyGrade.GAUGE
    assert power.energy_j(SPAN) == pytest.approx(20.0, rel=0.01)


def test_a_port_and_a_battery_are_added_up() -> None:
    """A USB port at its limit alone looks like a constant."""
    sampled = read(online=1, usb_current=470_000, usb_voltage=5_000_000, usb_limit=480_000)
    power = power_from_readings(sampled, GAUGE)
    assert (power.grade, power.saturated) == (EnergyGrade.BOTH, True)
    assert power.energy_j(SPAN) == pytest.approx(20.0 + 23.5, rel=0.01)


def test_charging_the_battery_is_not_the_phones_consumption() -> None:
    sampled = read(
        current=200_000, status="Charging", online=1, usb_current=400_000, usb_voltage=5_000_000
    )
    power = power_from_readings(sampled, GAUGE)
    assert power.energy_j(SPAN) == pytest.approx(10 * (2.0 - 0.8), rel=0.01)


@pytest.mark.parametrize(
    ("sampled", "gauge", "grade", "code"),
    [
        (Readings(), GAUGE, EnergyGrade.REJECTED, ReasonCode.ENERGY_NOT_READ),
        (read(current=None), GAUGE, EnergyGrade.REJECTED, ReasonCode.ENERGY_NOT_READ),
        (read(online=1), GAUGE, EnergyGrade.REJECTED, ReasonCode.ENERGY_CHARGER_NOT_READ),
        (read(current=-9_000_000), GAUGE, EnergyGrade.REJECTED, ReasonCode.ENERGY_IMPLAUSIBLE),
        (read(current=500_000), GAUGE, EnergyGrade.REJECTED, ReasonCode.ENERGY_IMPLAUSIBLE),
        (read(), None, EnergyGrade.COARSE, ReasonCode.ENERGY_GAUGE_GUESSED),
        # 976 µA of a phone on its charger, not 976 mA; and a port that may show 450 mA
        (
            read(current=976, status="Not charging"),
            None,
            EnergyGrade.REJECTED,
            ReasonCode.ENERGY_GAUGE_UNKNOWN,
        ),
        (
            read(online=1, usb_current=450, usb_voltage=5_000_000),
            GAUGE,
            EnergyGrade.REJECTED,
            ReasonCode.ENERGY_CHARGER_NOT_READ,
        ),
    ],
)
def test_unreliable_energy_has_a_lower_grade(
    sampled: Readings, gauge: FuelGauge | None, grade: EnergyGrade, code: ReasonCode
) -> None:
    power = power_from_readings(sampled, gauge)
    assert power.grade is grade
    assert power.remark is not None
    assert power.remark.code is code
    assert (power.energy_j(SPAN) is None) == (grade is EnergyGrade.REJECTED)


def test_a_gauge_that_is_frozen_or_slow() -> None:
    still = read()
    still.columns[CURRENT] = [-500_000] * 31
    assert power_from_readings(still, GAUGE).remark == Reason.remark(ReasonCode.ENERGY_GAUGE_FROZEN)
    slow_readings = read()
    slow_readings.columns[CURRENT] = [-500_000 - row // 8 for row in range(31)]
    slow = GAUGE.model_copy(update={"period_s": 10.0})
    assert (
        power_from_readings(slow_readings, slow).grade,
        power_from_readings(slow_readings, slow).remark,
    ) == (
        EnergyGrade.COARSE,
        Reason.remark(ReasonCode.ENERGY_GAUGE_SLOW, values=4),
    )


def test_the_gauge_is_calibrated_by_rest_and_load() -> None:
    rest, work = read(current=-150_000), read(current=-900_000)
    gauge = gauge_for_run(None, rest, work)
    assert gauge is not None
    assert (gauge.discharge_sign, gauge.unit_a) == (-1, 1e-6)
    assert gauge_for_run(GAUGE, rest, rest) == GAUGE
    two = gauge_for_run(GAUGE, rest, rest, cells=2)
    one_w, two_w = (power_from_readings(work, of).points[0][1] for of in (GAUGE, two))
    assert two_w == pytest.approx(2 * one_w)
    assert resting_power_w(rest, gauge) == pytest.approx(0.6, rel=0.01)
    assert resting_power_w(Readings(), gauge) is None


@pytest.mark.parametrize(
    ("profile", "grade", "sign"),
    [
        ("meizu-16t", EnergyGrade.GAUGE, -1),  # its charging can be stopped
        ("vivo-x100", EnergyGrade.BOTH, 1),  # no switch: the USB port delivers a part
    ],
)
def test_the_first_run_of_a_phone_calibrates_its_gauge(
    adb: AdbServer,
    start_phone: StartPhone,
    context: LaneContext,
    profile: str,
    grade: EnergyGrade,
    sign: int,
) -> None:
    phone = open_phone(adb, start_phone(profile, speed=60).address)
    report = run_attempt(a_job(phone.facts.serial, time_min_s=25), phone, context).report
    assert report.fault is None, report.fault
    assert phone.facts.gauge is not None
    assert phone.facts.gauge.discharge_sign == sign
    metrics: dict[str, Metric] = {metric.name: metric for metric in report.metrics}
    assert metrics["energy_j"].grade == grade.value
    assert 0.3 < metrics["idle_power_w"].value < 2.0
    assert 0 < metrics["energy_net_j"].value < metrics["energy_j"].value
    assert metrics["step_ms"].grade == ""
    assert 1.5 < metrics["power_w"].value < 12
