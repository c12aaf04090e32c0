"""Power rails: on-board meters that show what parts of a phone draw, where it has them. Pure.

Two kinds are known. Pixels count energy (ODPM: one node with several lines, micro-watt-seconds
since boot); Tegra boards give power (INA3221: one node per rail, milliwatts).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from agent.collect.cpu_usage import WHOLE_MARK
from agent.collect.readings import Readings, Span
from workloads.protocol.telemetry import RAIL, CumulativeSeries, Series, sampled
from workloads.text import safe_text

RAIL_NODES = (
    "/sys/bus/iio/devices/*/energy_value",
    "/sys/bus/i2c/drivers/ina3221x/*/*/rail_name_*",
)
RAILS_MAX = 24
_CHANNEL = re.compile(r"CH\d+\(T=\d+\)\[([A-Za-z0-9_]{1,40})\],\s*(\d{1,18})")
_NAME = re.compile(r"[A-Za-z0-9_]{1,40}")


@dataclass(frozen=True)
class RailMeter:
    """A node to sample; without a rail's name it lists several rails."""

    path: str
    rail: str = ""

    @property
    def sampled_node(self) -> str:
        """The entry in the runner's list of nodes."""
        return self.path if self.rail else f"{self.path}{WHOLE_MARK}"


def find_rail_meters(nodes: Mapping[str, str]) -> tuple[RailMeter, ...]:
    """Find the meters among nodes that were read."""
    meters = []
    for path, text in sorted(nodes.items()):
        if path.endswith("/energy_value") and _CHANNEL.search(text):
            meters.append(RailMeter(path))
        folder, mark, number = path.rpartition("/rail_name_")
        if mark and number.isdecimal() and _NAME.fullmatch(name := safe_text(text, 41).strip()):
            meters.append(RailMeter(f"{folder}/in_power{number}_input", name))
    return tuple(meters[:RAILS_MAX])


def rail_series(readings: Readings, meters: Iterable[RailMeter]) -> dict[str, Series]:
    """The energy of every rail in joules: counted, or samples of its power."""
    counted_j: dict[str, list[tuple[int, float]]] = {}
    power_w: dict[str, list[tuple[int, float]]] = {}
    for meter in meters:
        for t_ns, value in zip(readings.t_ns, readings.column(meter.path), strict=False):
            if type(value) is int and meter.rail:
                power_w.setdefault(meter.rail, []).append((t_ns, value / 1e3))
            elif isinstance(value, str) and not meter.rail:
                for rail, micro in _CHANNEL.findall(value):
                    counted_j.setdefault(rail, []).append((t_ns, int(micro) / 1e6))
    series: dict[str, Series] = {rail: sampled(points) for rail, points in power_w.items()}
    series |= {
        rail: CumulativeSeries([t_ns for t_ns, _ in points], [joules for _, joules in points])
        for rail, points in counted_j.items()
        if all(later >= sooner for (_, sooner), (_, later) in pairwise(points))
    }
    usable = {rail: values for rail, values in series.items() if len(values.t_ns) > 1}
    return {f"{RAIL}{rail}": values for rail, values in sorted(usable.items())[:RAILS_MAX]}


def mean_rail_power_w(series: Mapping[str, Series], span: Span) -> dict[str, float]:
    """Mean power of every rail over the sampled part of a span."""
    power_w = {}
    for name, values in series.items():
        if name.startswith(RAIL):
            start, end = max(span[0], values.t_ns[0]), min(span[1], values.t_ns[-1])
            joules = values.between(start, end) if end > start else None
            if joules is not None:
                power_w[name.removeprefix(RAIL)] = joules * 1e9 / (end - start)
    return power_w
