"""Power and energy of the whole phone from its gauges, with a grade of reliability. Pure.

A phone on a cable draws from two sources, and either one alone is not its power: a USB port at its
limit delivers a constant, and the battery supplies the rest. Boards and computers without such a
battery have other meters: the input rail of a board, or the energy counter of a processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import fmean, median

from agent.collect.power_rails import counted_energy, power_points
from agent.collect.readings import Readings, Span
from agent.phone.fuel_gauge import calibrate_gauge, current_unit_a
from agent.phone.kernel_nodes import SUPPLY
from agent.phone.power_meters import INPUT_RAILS, RailMeter
from agent.phone.power_stats import ROUNDING_SHARE_MAX, RailTotals, add_up_rails
from workloads.protocol.metrics import COARSE_GRADE
from workloads.protocol.phone_facts import FuelGauge
from workloads.protocol.telemetry import CumulativeSeries, Series, integrate, sampled
from workloads.protocol.verdict import Reason, ReasonCode

CURRENT = f"{SUPPLY}/battery/current_now"
POWER = f"{SUPPLY}/battery/power_now"  # laptops whose battery counts energy and not charge
VOLTAGE = f"{SUPPLY}/battery/voltage_now"
STATUS = f"{SUPPLY}/battery/status"
USB_ONLINE = f"{SUPPLY}/usb/online"
USB_CURRENTS = (f"{SUPPLY}/usb/input_current_now", f"{SUPPLY}/usb/current_now")
USB_VOLTAGE = f"{SUPPLY}/usb/voltage_now"
USB_LIMIT = f"{SUPPLY}/usb/current_max"
POWER_NODES = (CURRENT, VOLTAGE, STATUS, USB_ONLINE, *USB_CURRENTS, USB_VOLTAGE, USB_LIMIT)

CHANGES_MIN = 8  # distinct successive values that a gauge has to give within a run
READ_SHARE_MIN = 0.9
METERED_SHARE_MIN = 0.8  # of a span that lies between readings of a meter
PORT_LIMIT_SHARE = 0.97
POWER_MAX_W, COMPUTER_POWER_MAX_W = 25.0, 500.0
USB_UNCLEAR = (100, 10_000)  # raw values that may be in µA or in mA
FROZEN_READINGS = 20
IDLE_READINGS_MIN = 3
RAIL_READINGS_MIN = 4
CHARGING, DISCHARGING = "Charging", "Discharging"

Points = list[tuple[int, float]]


class EnergyGrade(StrEnum):
    """How an energy was measured, the best first."""

    GAUGE = "gauge"  # the battery alone: charging is stopped and the gauge calibrated
    BOTH = "usb+battery"  # the sum of two gauges
    RAIL = "rail"  # the input rail of a board
    RAPL = "rapl"  # the processor package only, not the whole board
    RAILS = "rails"  # the sum of the phone's metered rails, from its power statistics
    COARSE = COARSE_GRADE  # a slow gauge, or one whose sign and unit are guessed
    REJECTED = "rejected"  # not usable for a metric

    @property
    def meter(self) -> str:
        """What was read: powers of different meters are never subtracted from each other."""
        others = {EnergyGrade.RAIL, EnergyGrade.RAPL, EnergyGrade.RAILS}
        return self.value if self in others else "battery"


METERS = frozenset(grade.meter for grade in EnergyGrade)


@dataclass(frozen=True)
class PowerObservation:
    """The power of the whole phone at each moment, its grade, and what is wrong with it."""

    points: Points
    grade: EnergyGrade
    remark: Reason | None = None
    saturated: bool = False  # the USB port delivered its maximum
    counted: CumulativeSeries | None = None  # of a meter: the energy since its first reading

    def energy_j(self, span: Span) -> float | None:
        """Energy within a span: counted, or by trapezoids over the real time stamps."""
        points = [point for point in self.points if span[0] <= point[0] <= span[1]]
        if self.grade is EnergyGrade.REJECTED or len(points) < 3:
            return None
        return integrate(points).total[-1] if self.counted is None else self._metered_j(span)

    def _metered_j(self, span: Span) -> float | None:
        """Energy of a meter; the moments before its first and after its last reading are added."""
        assert self.counted is not None
        start, end = max(span[0], self.counted.t_ns[0]), min(span[1], self.counted.t_ns[-1])
        read_j, share = self.counted.between(start, end), (end - start) / (span[1] - span[0])
        return read_j / share if read_j is not None and share >= METERED_SHARE_MIN else None

    @property
    def is_slow(self) -> bool:
        """Whether a gauge gave too few values to compare runs; its sign and unit do not matter."""
        changes = sum(before != after for (_, before), (_, after) in pairwise(self.points))
        return self.counted is None and 1 + changes < CHANGES_MIN

    @property
    def series(self) -> Series:
        """The energy over the run."""
        return self.counted if self.counted is not None else sampled(self.points)


NO_POWER = PowerObservation([], EnergyGrade.REJECTED, Reason.remark(ReasonCode.ENERGY_NOT_READ))


def gauge_for_run(
    calibrated: FuelGauge | None, idle: Readings, load: Readings, cells: int = 1
) -> FuelGauge | None:
    """The calibration of the gauge: as known before, or from this phone's own rest and load."""
    gauge = calibrated or _own_calibration(idle, load)
    return gauge and gauge.model_copy(update={"cells": cells})


def _own_calibration(idle: Readings, load: Readings) -> FuelGauge | None:
    resting = [raw for _, raw in idle.series(CURRENT)]
    statuses = {*idle.column(STATUS), *load.column(STATUS)}
    working = [(t_ns / 1e9, raw) for t_ns, raw in load.series(CURRENT)]
    return calibrate_gauge(resting, working, statuses)


def observe_power(
    readings: Readings,
    span: Span,
    gauge: FuelGauge | None,
    meters: Sequence[RailMeter] = (),
    power_max_w: float = POWER_MAX_W,
    rails: Sequence[RailTotals] = (),
) -> PowerObservation:
    """The power of a phone or a computer in a span, from the best source that it has.

    Meters are also read before and after the span, so that its edges can be interpolated.
    """
    battery = power_from_readings(readings.within(span), gauge, power_max_w)
    if battery.grade in {EnergyGrade.GAUGE, EnergyGrade.BOTH}:
        return battery
    candidates = (
        _rail_power(readings, meters, power_max_w),
        _package_power(readings, meters),
        _power_of_rails(rails, span, power_max_w),
    )
    others = [power for power in candidates if power is not None]
    usable = [power for power in (*others, battery) if power.grade is not EnergyGrade.REJECTED]
    return [*usable, *others, battery][0]


def energy_meters(meters: Sequence[RailMeter]) -> list[RailMeter]:
    """The meters that may be the source of a run's energy."""
    return [meter for meter in meters if meter.rail in INPUT_RAILS or meter.is_package]


def _rail_power(
    readings: Readings, meters: Sequence[RailMeter], power_max_w: float
) -> PowerObservation | None:
    """The power of the board's input rail."""
    for meter in meters:
        points = power_points(readings, meter) if meter.rail in INPUT_RAILS else []
        if len(points) < max(2, READ_SHARE_MIN * len(readings.t_ns)):
            continue
        mean_w = fmean(watts for _, watts in points)
        if not 0 < mean_w <= power_max_w:
            return _rejected(Reason.remark(ReasonCode.ENERGY_IMPLAUSIBLE, power_w=mean_w))
        return PowerObservation(points, EnergyGrade.RAIL, counted=integrate(points))
    return None


def _package_power(readings: Readings, meters: Sequence[RailMeter]) -> PowerObservation | None:
    """The power of all processor packages together."""
    packages = [counted_energy(readings, meter) for meter in meters if meter.is_package]
    if not packages or any(len(package.t_ns) < 2 for package in packages):
        return None
    start, end = max(p.t_ns[0] for p in packages), min(p.t_ns[-1] for p in packages)
    moments = [t_ns for t_ns in packages[0].t_ns if start <= t_ns <= end]
    total_j = [sum(package.value_at(t_ns) or 0.0 for package in packages) for t_ns in moments]
    steps = pairwise(zip(moments, total_j, strict=True))
    points = [(later, (b - a) * 1e9 / (later - sooner)) for (sooner, a), (later, b) in steps]
    if not points or total_j[-1] <= total_j[0]:
        return _rejected(Reason.remark(ReasonCode.ENERGY_GAUGE_FROZEN))
    remark = Reason.remark(ReasonCode.ENERGY_PACKAGE_ONLY)
    counted = CumulativeSeries(moments, total_j)
    return PowerObservation(points, EnergyGrade.RAPL, remark, counted=counted)


def _power_of_rails(
    rails: Sequence[RailTotals], span: Span, power_max_w: float
) -> PowerObservation | None:
    """The power of all rails of the power statistics; readings outside the run mix in its rest."""
    inside = [reading for reading in rails if span[0] <= reading.t_ns <= span[1]]
    counted, rounding_j = add_up_rails(inside)
    if len(counted.t_ns) < RAIL_READINGS_MIN:
        return None
    read_ns = counted.t_ns[-1] - counted.t_ns[0]
    if read_ns < METERED_SHARE_MIN * (span[1] - span[0]):
        return None
    steps = pairwise(zip(*counted, strict=True))
    points = [(later, (b - a) * 1e9 / (later - sooner)) for (sooner, a), (later, b) in steps]
    mean_w = counted.total[-1] * 1e9 / read_ns
    if not 0 < mean_w <= power_max_w:
        return _rejected(Reason.remark(ReasonCode.ENERGY_IMPLAUSIBLE, power_w=mean_w))
    if rounding_j > ROUNDING_SHARE_MAX * counted.total[-1]:
        return _rejected(Reason.remark(ReasonCode.ENERGY_RAILS_ROUNDED, rounding_j=rounding_j))
    remark = Reason.remark(ReasonCode.ENERGY_RAILS_ONLY)
    return PowerObservation(points, EnergyGrade.RAILS, remark, counted=counted)


def power_from_readings(
    readings: Readings, gauge: FuelGauge | None, power_max_w: float = POWER_MAX_W
) -> PowerObservation:
    """The power of a phone, from battery and USB port."""
    raws = [raw for _, raw in readings.series(CURRENT)]
    if len(raws) < READ_SHARE_MIN * max(len(readings.t_ns), 1) or len(raws) < 2:
        return _power_of_energy_gauge(readings, power_max_w)
    if len(raws) >= FROZEN_READINGS and len(set(raws)) == 1 and gauge and gauge.period_s < 5:
        return _rejected(Reason.remark(ReasonCode.ENERGY_GAUGE_FROZEN))
    usb_w = _usb_power(readings)
    if usb_w is None:
        return _rejected(Reason.remark(ReasonCode.ENERGY_CHARGER_NOT_READ))
    unit_a = gauge.unit_a if gauge else current_unit_a(raws, {*readings.column(STATUS)})
    if unit_a is None:
        return _rejected(Reason.remark(ReasonCode.ENERGY_GAUGE_UNKNOWN))
    battery = _battery_points(readings, gauge, unit_a)
    points = [(t_ns, watts + usb_w.get(t_ns, 0.0)) for t_ns, watts in battery]
    mean_w = fmean(watts for _, watts in points) if points else 0.0
    if not 0 < mean_w <= power_max_w:
        return _rejected(Reason.remark(ReasonCode.ENERGY_IMPLAUSIBLE, power_w=mean_w))
    saturated = _is_port_saturated(readings)
    if gauge is None:
        guessed = Reason.remark(ReasonCode.ENERGY_GAUGE_GUESSED)
        return PowerObservation(points, EnergyGrade.COARSE, guessed, saturated)
    changes = 1 + sum(before != after for before, after in pairwise(raws))
    if changes < CHANGES_MIN:
        slow = Reason.remark(ReasonCode.ENERGY_GAUGE_SLOW, values=changes)
        return PowerObservation(points, EnergyGrade.COARSE, slow, saturated)
    by_usb = any(watts > 0 for watts in usb_w.values())
    grade = EnergyGrade.BOTH if by_usb else EnergyGrade.GAUGE
    return PowerObservation(points, grade, None, saturated)


def _power_of_energy_gauge(readings: Readings, power_max_w: float) -> PowerObservation:
    """The power of a battery that reports it in µW, as ACPI does; on mains it is not that power."""
    raws = [raw for _, raw in readings.series(POWER)]
    if len(raws) < READ_SHARE_MIN * max(len(readings.t_ns), 1) or len(raws) < 2:
        return _rejected(Reason.remark(ReasonCode.ENERGY_NOT_READ))
    if any(status != DISCHARGING for status in readings.column(STATUS)):
        return _rejected(Reason.remark(ReasonCode.ENERGY_CHARGER_NOT_READ))
    points = [(t_ns, abs(raw) * 1e-6) for t_ns, raw in readings.series(POWER)]
    mean_w = fmean(watts for _, watts in points)
    if not 0 < mean_w <= power_max_w:
        return _rejected(Reason.remark(ReasonCode.ENERGY_IMPLAUSIBLE, power_w=mean_w))
    changes = 1 + sum(before != after for before, after in pairwise(raws))
    if changes < CHANGES_MIN:
        slow = Reason.remark(ReasonCode.ENERGY_GAUGE_SLOW, values=changes)
        return PowerObservation(points, EnergyGrade.COARSE, slow)
    return PowerObservation(points, EnergyGrade.GAUGE)


def resting_power_w(
    idle: Readings,
    gauge: FuelGauge | None,
    meters: Sequence[RailMeter] = (),
    meter: str = EnergyGrade.GAUGE.meter,
) -> float | None:
    """The power of the phone at rest by the same meter; None with too few readings."""
    if len(idle.t_ns) < IDLE_READINGS_MIN:
        return None
    if meter != EnergyGrade.GAUGE.meter:
        span = (idle.t_ns[0], idle.t_ns[-1])
        power = observe_power(idle, span, None, meters, COMPUTER_POWER_MAX_W)
        return _median_w(power) if power.grade.meter == meter else None
    if gauge is None and not any(raw for _, raw in idle.series(POWER)):
        return None
    return _median_w(power_from_readings(idle, gauge, COMPUTER_POWER_MAX_W))


def _median_w(power: PowerObservation) -> float | None:
    return median(watts for _, watts in power.points) if power.points else None


def _rejected(remark: Reason) -> PowerObservation:
    return PowerObservation([], EnergyGrade.REJECTED, remark)


def _battery_points(readings: Readings, gauge: FuelGauge | None, unit_a: float) -> Points:
    """Watts out of the battery; charging counts below zero, by the status if need be."""
    volt_scale = volts_per_unit(readings.numbers(VOLTAGE)) * (gauge.cells if gauge else 1)
    statuses = readings.column(STATUS)
    points = []
    for row, (t_ns, raw, volts) in enumerate(
        zip(readings.t_ns, readings.numbers(CURRENT), readings.numbers(VOLTAGE), strict=False)
    ):
        if raw is None or not volts:
            continue
        status = statuses[row] if row < len(statuses) else None
        if gauge is not None:
            amperes = raw * gauge.discharge_sign * unit_a
        else:
            amperes = abs(raw) * unit_a * (-1 if status == CHARGING else 1)
        points.append((t_ns, amperes * volts * volt_scale))
    return points


def _usb_power(readings: Readings) -> dict[int, float] | None:
    """Watts out of the USB port at each moment; None if it delivered an unknown power."""
    online = [value for _, value in readings.series(USB_ONLINE)]
    if online and not any(online):
        return {}
    volt_scale = volts_per_unit(readings.numbers(USB_VOLTAGE))
    for path in USB_CURRENTS:
        middle = median([abs(raw) for _, raw in readings.series(path)] or [0])
        if USB_UNCLEAR[0] < middle < USB_UNCLEAR[1]:
            return None
        rows = zip(
            readings.t_ns, readings.numbers(path), readings.numbers(USB_VOLTAGE), strict=False
        )
        power_w = {
            t_ns: abs(raw) * 1e-6 * volts * volt_scale
            for t_ns, raw, volts in rows
            if raw is not None and volts is not None
        }
        if len(power_w) >= READ_SHARE_MIN * len(readings.t_ns):
            return power_w
    charged = CHARGING in readings.column(STATUS)
    # Without a node for the port, a discharging battery is taken as the only source.
    return None if charged or online else {}


def _is_port_saturated(readings: Readings) -> bool:
    limits = [limit for _, limit in readings.series(USB_LIMIT) if limit]
    if not limits:
        return False
    for path in USB_CURRENTS:
        currents = [abs(raw) for _, raw in readings.series(path)]
        at_limit = sum(current >= PORT_LIMIT_SHARE * limits[0] for current in currents)
        if currents and at_limit > len(currents) / 10:
            return True
    return False


def volts_per_unit(column: Sequence[int | None]) -> float:
    """The factor from a voltage node to volts: µV by the kernel's ABI, mV on some phones."""
    values = [value for value in column if value]
    return 1e-6 if values and median(values) > 100_000 else 1e-3
