"""One run as a small chart: step time, clock, heat and load in equal parts of its time. Pure.

Telemetry comes from a phone, so values that are not finite are left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.telemetry import BUSY, CLOCK, Series, Telemetry
from workloads.protocol.verdict import Reason

COLUMNS = 60
_SECOND = 1e9


@dataclass(frozen=True)
class ChartRow:
    """One quantity, with a value for each part of the run; None where it was not sampled."""

    name: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class RunChart:
    """Everything that was recorded of a run, and the moments that its verdict names."""

    seconds: float
    rows: tuple[ChartRow, ...]
    moments: tuple[tuple[float, int], ...]  # seconds, and the number of the reason

    def column_of(self, at_s: float) -> int:
        """Return the part of the run that a moment belongs to."""
        columns = len(self.rows[0].values)
        return min(columns - 1, max(0, int(at_s / self.seconds * columns)))


def build_run_chart(
    telemetry: Telemetry,
    zones: Sequence[ThermalZone],
    reasons: Sequence[Reason] = (),
    columns: int = COLUMNS,
) -> RunChart | None:
    """Divide a run into equal parts; None if its step times were not recorded."""
    windows = telemetry.windows
    if not windows.t_ns:
        return None
    start = windows.t_ns[0]
    end = max(windows.t_ns[-1] + windows.ns[-1], start + 1)
    edges = [start + (end - start) * index // columns for index in range(columns + 1)]
    steps = list(zip(windows.t_ns, windows.step_ms, strict=True))
    clocks = [series for name, series in telemetry.series.items() if name.startswith(CLOCK)]
    fastest = max(clocks, key=lambda series: _mean_rate(series, start, end) or 0.0, default=None)
    per_core = 100 / max(1, telemetry.cores)
    rows = [
        ChartRow("step", "ms", _means(steps, edges)),
        ChartRow("clock", "MHz", _rates(fastest, edges, 1e-3)),
        ChartRow("heat", "°C", _means(_hottest(telemetry, zones), edges)),
        ChartRow("load", "%", _rates(telemetry.series.get(BUSY), edges, per_core)),
    ]
    shown = tuple(row for row in rows if any(value is not None for value in row.values))
    return RunChart((end - start) / _SECOND, shown, _moments(reasons)) if shown else None


def _moments(reasons: Sequence[Reason]) -> tuple[tuple[float, int], ...]:
    known = [(reason.values.get("at_s"), number) for number, reason in enumerate(reasons, 1)]
    return tuple(
        (float(at_s), number)
        for at_s, number in known
        if isinstance(at_s, int | float) and math.isfinite(at_s)
    )


def _hottest(telemetry: Telemetry, zones: Sequence[ThermalZone]) -> list[tuple[int, float | None]]:
    """Return the hottest CPU zone at each reading."""
    readings = telemetry.readings
    columns = [
        (readings.columns[zone.path], zone.scale) for zone in zones if zone.path in readings.columns
    ]
    found: list[tuple[int, float | None]] = []
    for index, t_ns in enumerate(readings.t_ns):
        values = [(column[index], scale) for column, scale in columns if index < len(column)]
        known = [value * scale for value, scale in values if isinstance(value, int | float)]
        found.append((t_ns, max(known, default=None)))
    return found


def _means(
    points: Sequence[tuple[int, float | None]], edges: Sequence[int]
) -> tuple[float | None, ...]:
    """Return the mean in each part; a part without a point repeats the one before it."""
    parts: list[list[float]] = [[] for _ in edges[1:]]
    for t_ns, value in points:
        if value is not None and math.isfinite(value) and edges[0] <= t_ns < edges[-1]:
            parts[(t_ns - edges[0]) * len(parts) // (edges[-1] - edges[0])].append(value)
    means: list[float | None] = []
    for values in parts:
        last = means[-1] if means else None
        means.append(sum(values) / len(values) if values else last)
    return tuple(means)


def _rates(series: Series | None, edges: Sequence[int], scale: float) -> tuple[float | None, ...]:
    if series is None:
        return (None,) * (len(edges) - 1)
    found = [_mean_rate(series, *pair) for pair in pairwise(edges)]
    return tuple(
        None if value is None or not math.isfinite(value) else value * scale for value in found
    )


def _mean_rate(series: Series, start_ns: int, end_ns: int) -> float | None:
    """Return the mean rate per second within a part, as far as it was sampled."""
    if not series.t_ns:
        return None
    first, last = max(start_ns, series.t_ns[0]), min(end_ns, series.t_ns[-1])
    increase = series.between(first, last) if first < last else None
    return None if increase is None else increase * _SECOND / (last - first)
