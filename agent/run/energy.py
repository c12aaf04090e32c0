"""Energy, with a grade: what the whole phone drew, and how far that can be trusted. Pure.

A phone on a cable draws from two sources. Either one alone is not its power: a port that gives all
it can looks like a constant, and the battery behind it like the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import fmean, median

from agent.phone.gauge import calibrate
from agent.phone.nodes import SUPPLY
from agent.run.telemetry import Readings
from workloads.measure import COARSE_GRADE
from workloads.phone import Gauge
from workloads.timeline import course_of

CURRENT = f"{SUPPLY}/battery/current_now"
VOLTAGE = f"{SUPPLY}/battery/voltage_now"
STATUS = f"{SUPPLY}/battery/status"
USB_ONLINE = f"{SUPPLY}/usb/online"
USB_CURRENTS = (f"{SUPPLY}/usb/input_current_now", f"{SUPPLY}/usb/current_now")
USB_VOLTAGE = f"{SUPPLY}/usb/voltage_now"
USB_LIMIT = f"{SUPPLY}/usb/current_max"
POWER_NODES = (CURRENT, VOLTAGE, STATUS, USB_ONLINE, *USB_CURRENTS, USB_VOLTAGE, USB_LIMIT)

NEWS_MIN = 8  # values of its own that a gauge has to give within a run
SEEN_MIN = 0.9
FULL_PORT = 0.97
POWER_MAX_W = 25.0
STANDSTILL_LOOKS = 20
REST_LOOKS_MIN = 3

Points = list[tuple[int, float]]


class Grade(StrEnum):
    """How an energy was found, the best first."""

    METER = "meter"  # an external meter between supply and phone
    GAUGE = "gauge"  # the battery alone, its charger cut off, its gauge calibrated
    BOTH = "usb+battery"  # two gauges added up
    COARSE = COARSE_GRADE  # a gauge that is slow, or whose sign and unit are only guessed
    REJECTED = "rejected"  # no figure can be made of it


@dataclass(frozen=True)
class Power:
    """What the whole phone drew at each moment, how good that is, and why not better."""

    points: Points
    grade: Grade
    why: str = ""
    saturated: bool = False  # the port gave all it could

    def energy_j(self, span: tuple[int, int]) -> float | None:
        """Energy within a span, by trapezoids over real time stamps."""
        inside = [point for point in self.points if span[0] <= point[0] <= span[1]]
        if self.grade is Grade.REJECTED or len(inside) < 3:
            return None
        return course_of(inside).total[-1]

    @property
    def mean_w(self) -> float | None:
        """Mean power over all moments."""
        return fmean(watts for _, watts in self.points) if self.points else None


NO_POWER = Power([], Grade.REJECTED, "nothing was read")


def found_gauge(known: Gauge | None, rest: Readings, work: Readings) -> Gauge | None:
    """How the gauge speaks: as found before, or by this phone's own rest and work."""
    if known is not None:
        return known
    idle = [raw for raw in rest.numbers(CURRENT) if raw is not None]
    pairs = zip(work.t_ns, work.numbers(CURRENT), strict=False)
    return calibrate(idle, [(t_ns / 1e9, raw) for t_ns, raw in pairs if raw is not None])


def power_of(readings: Readings, gauge: Gauge | None, metered: Points | None = None) -> Power:
    """What a phone drew, from the best that there is."""
    if metered:
        return Power(metered, Grade.METER)
    raws = [raw for raw in readings.numbers(CURRENT) if raw is not None]
    if len(raws) < SEEN_MIN * max(len(readings.t_ns), 1) or len(raws) < 2:
        return _rejected("the battery's current was not read")
    if len(raws) >= STANDSTILL_LOOKS and len(set(raws)) == 1 and gauge and gauge.period_s < 5:
        return _rejected("the battery's gauge stood still")
    battery = _battery_points(readings, gauge, raws)
    usb = _usb_points(readings)
    if usb is None:
        return _rejected("the charger gave a part that was not read")
    added = [(t_ns, watts + usb.get(t_ns, 0.0)) for t_ns, watts in battery]
    mean_w = fmean(watts for _, watts in added) if added else 0.0
    if not 0 < mean_w <= POWER_MAX_W:
        return _rejected(f"{mean_w:.2f} W is no power of a phone")
    news = 1 + sum(before != after for before, after in pairwise(raws))
    saturated = _is_saturated(readings)
    if gauge is None:
        return Power(added, Grade.COARSE, "sign and unit of the gauge are guessed", saturated)
    if news < NEWS_MIN:
        return Power(added, Grade.COARSE, f"the gauge gave {news} values in the run", saturated)
    fed = any(watts > 0 for watts in usb.values())
    return Power(added, Grade.BOTH if fed else Grade.GAUGE, "", saturated)


def rest_power_w(rest: Readings, gauge: Gauge | None) -> float | None:
    """What the phone drew at rest in the same state; None where that was hardly seen."""
    if len(rest.t_ns) < REST_LOOKS_MIN or gauge is None:
        return None
    power = power_of(rest, gauge)
    return median(watts for _, watts in power.points) if power.points else None


def _rejected(why: str) -> Power:
    return Power([], Grade.REJECTED, why)


def _battery_points(readings: Readings, gauge: Gauge | None, raws: Sequence[int]) -> Points:
    """Watts out of the battery; what goes into it counts below zero."""
    volt = _volt(readings.numbers(VOLTAGE))
    # Without a calibration: µA unless that were next to nothing, and the status knows the sign.
    unit_a = gauge.unit_a if gauge else (1e-3 if median(map(abs, raws)) < 20_000 else 1e-6)
    statuses = readings.columns.get(STATUS, [])
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
            amperes = abs(raw) * unit_a * (-1 if status == "Charging" else 1)
        points.append((t_ns, amperes * volts * volt))
    return points


def _usb_points(readings: Readings) -> dict[int, float] | None:
    """Watts out of the port; None when it gave something that nobody read."""
    online = [value for value in readings.numbers(USB_ONLINE) if value is not None]
    if online and not any(online):
        return {}
    volt = _volt(readings.numbers(USB_VOLTAGE))
    for path in USB_CURRENTS:
        pairs = zip(
            readings.t_ns, readings.numbers(path), readings.numbers(USB_VOLTAGE), strict=False
        )
        found = {
            t_ns: abs(raw) * 1e-6 * volts * volt
            for t_ns, raw, volts in pairs
            if raw is not None and volts is not None
        }
        if len(found) >= SEEN_MIN * len(readings.t_ns):
            return found
    charged = any(status == "Charging" for status in readings.columns.get(STATUS, []))
    # Without a node for the port, a battery that gives is taken for the only source.
    return None if charged or online else {}


def _is_saturated(readings: Readings) -> bool:
    limits = [limit for limit in readings.numbers(USB_LIMIT) if limit]
    if not limits:
        return False
    for path in USB_CURRENTS:
        seen = [abs(raw) for raw in readings.numbers(path) if raw is not None]
        if seen and sum(raw >= FULL_PORT * limits[0] for raw in seen) > len(seen) / 10:
            return True
    return False


def _volt(column: Sequence[int | None]) -> float:
    """What a number of a voltage's node has to be multiplied by: µV by the ABI, mV on some."""
    known = [value for value in column if value]
    return 1e-6 if known and median(known) > 100_000 else 1e-3
