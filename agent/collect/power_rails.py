"""Power rails: meters on the board that tell what parts of it draw, where a phone has them. Pure.

Two kinds are known. Pixels count energy (ODPM: one node of several lines, micro-watt-seconds since
boot); Tegra boards tell power (INA3221: one node a rail, milliwatts).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from agent.run.activity import WHOLE_MARK
from agent.run.telemetry import Readings
from workloads.text import safe_text
from workloads.timeline import RAIL, Course, course_of

RAIL_NODES = (
    "/sys/bus/iio/devices/*/energy_value",
    "/sys/bus/i2c/drivers/ina3221x/*/*/rail_name_*",
)
RAILS_MAX = 24
_CHANNEL = re.compile(r"CH\d+\(T=\d+\)\[([A-Za-z0-9_]{1,40})\],\s*(\d{1,18})")
_NAME = re.compile(r"[A-Za-z0-9_]{1,40}")


@dataclass(frozen=True)
class Meter:
    """A node to sample; without a rail's name it lists several."""

    path: str
    rail: str = ""

    @property
    def sampled(self) -> str:
        """As the runner's list of nodes wants it."""
        return self.path if self.rail else f"{self.path}{WHOLE_MARK}"


def parse_meters(nodes: Mapping[str, str]) -> tuple[Meter, ...]:
    """Find the meters among nodes that were read."""
    meters = []
    for path, text in sorted(nodes.items()):
        if path.endswith("/energy_value") and _CHANNEL.search(text):
            meters.append(Meter(path))
        folder, mark, number = path.rpartition("/rail_name_")
        if mark and number.isdecimal() and _NAME.fullmatch(name := safe_text(text, 41).strip()):
            meters.append(Meter(f"{folder}/in_power{number}_input", name))
    return tuple(meters[:RAILS_MAX])


def rail_courses(readings: Readings, meters: Iterable[Meter]) -> dict[str, Course]:
    """The energy of every rail in joules, as it adds up."""
    counted: dict[str, list[tuple[int, float]]] = {}
    drawn: dict[str, list[tuple[int, float]]] = {}
    for meter in meters:
        column = readings.columns.get(meter.path, [])
        for t_ns, value in zip(readings.t_ns, column, strict=False):
            if type(value) is int and meter.rail:
                drawn.setdefault(meter.rail, []).append((t_ns, value / 1e3))
            elif isinstance(value, str) and not meter.rail:
                for rail, micro in _CHANNEL.findall(value):
                    counted.setdefault(rail, []).append((t_ns, int(micro) / 1e6))
    courses = {rail: course_of(points) for rail, points in drawn.items()}
    courses |= {
        rail: Course([t_ns for t_ns, _ in points], [joules for _, joules in points])
        for rail, points in counted.items()
        if all(later >= sooner for (_, sooner), (_, later) in pairwise(points))
    }
    whole = {rail: course for rail, course in courses.items() if len(course.t_ns) > 1}
    return {f"{RAIL}{rail}": course for rail, course in sorted(whole.items())[:RAILS_MAX]}


def rails_w(courses: Mapping[str, Course], span: tuple[int, int]) -> dict[str, float]:
    """Mean power of every rail over what was sampled of a span."""
    found = {}
    for name, course in courses.items():
        if name.startswith(RAIL):
            start, end = max(span[0], course.t_ns[0]), min(span[1], course.t_ns[-1])
            joules = course.between(start, end) if end > start else None
            if joules is not None:
                found[name.removeprefix(RAIL)] = joules * 1e9 / (end - start)
    return found
