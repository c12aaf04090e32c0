"""The telemetry of a run: traced operations and sampled sensors, on one clock.

Each sensor becomes a time series of a quantity that accumulates (energy, busy time, clock cycles):
either its running total or its rate. orchestrator/analysis/op_telemetry.py joins them
with the operations.

The telemetry of a run travels as one blob of compressed JSON, in chunks.
"""

import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import accumulate, chain, pairwise
from operator import sub
from statistics import median
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from workloads.protocol.faults import InvalidRequest
from workloads.protocol.limits import TELEMETRY_BYTES_MAX
from workloads.protocol.restored_memory import RestoredMemory

_MALFORMED = "the telemetry of this run cannot be read; it is malformed"
_UNUSABLE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
SHORTENED_MIN = 9  # items of a list
INTEGER_MAX = 2**64
_DIGITS_MAX, _ROW_BYTES = 24, 56
_DIFFERENCES, _GAPS, _COLUMNS, _TEXTS, _CHOICES = "+", "gaps", "|", "texts", "choices"
_BETWEEN = "between"
_NUMBER = re.compile(r"(0|[1-9]\d{0,17})", re.ASCII)  # that is printed as it was
# Series of ticks, kHz and kB are whole numbers of these parts, which are shorter than fractions.
_PER_UNIT = (1, 100, 1024)
_LENGTHS = {"first": "n", "t_ns": "ns"}  # a window begins where the previous one ended
COPY_KINDS = frozenset({"copy", "gather"})  # kinds of operations that only move data
# Names of series. Those that end with a dot are followed by a core, a cpufreq policy or a rail.
ENERGY, BUSY, GPU_BUSY, GPU_CLOCK = "energy_j", "busy_s", "gpu_busy_s", "gpu_khz_s"
MEMORY = "memory_mb_s"
CORE, CLOCK, RAIL = "core_busy_s.", "clock_khz_s.", "rail_j."


class CumulativeSeries(NamedTuple):
    """A quantity that only grows, such as energy, at increasing times."""

    t_ns: Sequence[int]
    total: Sequence[float]

    def between(self, start_ns: int, end_ns: int) -> float | None:
        """Return the increase between two times; None outside the sampled range."""
        first, last = self.value_at(start_ns), self.value_at(end_ns)
        return None if first is None or last is None else last - first

    def value_at(self, t_ns: int) -> float | None:
        """Return the interpolated value at a time; None outside the sampled range."""
        if len(self.t_ns) < 2 or not self.t_ns[0] <= t_ns <= self.t_ns[-1]:
            return None
        after = min(bisect_right(self.t_ns, t_ns), len(self.t_ns) - 1)
        start, end = self.t_ns[after - 1], self.t_ns[after]
        fraction = (t_ns - start) / (end - start) if end > start else 0.0
        return self.total[after - 1] + fraction * (self.total[after] - self.total[after - 1])


@dataclass(frozen=True)
class SampledSeries:
    """Samples of the rate at which a quantity grows, such as power, at increasing times."""

    t_ns: Sequence[int]
    rate: Sequence[float]  # per second

    @cached_property
    def cumulative(self) -> CumulativeSeries:
        """The quantity itself: the rate integrated over time."""
        return integrate(list(zip(self.t_ns, self.rate, strict=True)))

    def between(self, start_ns: int, end_ns: int) -> float | None:
        """Return the increase between two times; None outside the sampled range."""
        return self.cumulative.between(start_ns, end_ns)


Series = CumulativeSeries | SampledSeries


def sampled(points: Sequence[tuple[int, float]]) -> SampledSeries:
    """Return a series from pairs of time and rate."""
    return SampledSeries([t_ns for t_ns, _ in points], [rate for _, rate in points])


def integrate(points: Sequence[tuple[int, float]]) -> CumulativeSeries:
    """Integrate readings of a value over time in seconds, by the trapezoidal rule."""
    areas = [(b_ns - a_ns) / 1e9 * (a + b) / 2 for (a_ns, a), (b_ns, b) in pairwise(points)]
    return CumulativeSeries([t_ns for t_ns, _ in points], list(accumulate(areas, initial=0.0)))


class OpSpan(NamedTuple):
    """One operation in one traced step."""

    step: int
    op: int
    start_ns: int
    end_ns: int


def op_spans(traces: Iterable[tuple[int, int, int, Sequence[int]]]) -> list[OpSpan]:
    """Return the start and end of each operation; a trace is (step, t_ns, first op, ends_ns)."""
    spans = []
    for step, t_ns, first, ends_ns in traces:
        start = t_ns
        for op, end_ns in enumerate(ends_ns, first):
            if end_ns >= 0:  # a negative end: the operation did not run
                spans.append(OpSpan(step, op, start, t_ns + end_ns))
                start = t_ns + end_ns
    return spans


def copy_share(spans: Sequence[OpSpan], kinds: Sequence[str]) -> float | None:
    """Return the share of the traced time in operations that only move data."""
    total = sum(span.end_ns - span.start_ns for span in spans)
    if not total or any(span.op >= len(kinds) for span in spans):
        return None
    moved = sum(span.end_ns - span.start_ns for span in spans if kinds[span.op] in COPY_KINDS)
    return moved / total


def step_similarity(spans: Sequence[OpSpan]) -> float | None:
    """Return the mean overlap of the traced steps with the median step; 1 if all are equal.

    The overlap of two steps is the sum over operations of the smaller time, divided by the sum of
    the larger time. A step in which every operation takes 1.5 times as long overlaps by 2/3.
    """
    steps: dict[int, dict[int, int]] = {}
    for span in spans:
        steps.setdefault(span.step, {})[span.op] = span.end_ns - span.start_ns
    if len(steps) < 2:
        return None
    ops = {op for times in steps.values() for op in times}
    typical = {op: median(times.get(op, 0) for times in steps.values()) for op in ops}
    overlaps = []
    for times in steps.values():
        smaller = sum(min(times.get(op, 0), typical[op]) for op in ops)
        larger = sum(max(times.get(op, 0), typical[op]) for op in ops)
        overlaps.append(smaller / larger if larger else 1.0)
    return sum(overlaps) / len(overlaps)


def part_rates(series: Series, span: tuple[int, int], part_ns: int) -> list[float]:
    """Return the mean rate of a series in equal parts of a span, each at least `part_ns` long."""
    start, end = max(span[0], series.t_ns[0]), min(span[1], series.t_ns[-1])
    count = (end - start) // max(part_ns, 1)
    edges = [start + (end - start) * index // count for index in range(count + 1)] if count else []
    rates = []
    for first, last in pairwise(edges):
        increase = series.between(first, last)
        if increase is not None:
            rates.append(increase * 1e9 / (last - first))
    return rates


def similarity(values: Sequence[float]) -> float | None:
    """Return the mean of smaller / larger of each value and the median; 1 if all are equal."""
    if len(values) < 2 or any(value < 0 for value in values):
        return None
    typical = median(values)
    if typical <= 0:
        return None
    return sum(min(value, typical) / max(value, typical) for value in values) / len(values)


@dataclass(frozen=True)
class StepWindows:
    """Windows of consecutive steps, in columns: all of the same length."""

    first: Sequence[int] = ()  # index of the first step
    n: Sequence[int] = ()  # number of steps
    t_ns: Sequence[int] = ()  # start
    ns: Sequence[int] = ()  # duration
    ns_min: Sequence[int] = ()  # shortest step
    ns_max: Sequence[int] = ()  # longest step

    @property
    def step_ms(self) -> list[float | None]:
        """The mean step time of each window; None for a window without steps."""
        return [ns / n / 1e6 if n else None for ns, n in zip(self.ns, self.n, strict=True)]


SensorValue = int | float | str | None


@dataclass(frozen=True)
class SensorReadings:
    """Sampled nodes of a phone, in columns by path: one value per time."""

    t_ns: Sequence[int] = ()
    columns: Mapping[str, Sequence[SensorValue]] = field(default_factory=dict)


@dataclass(frozen=True)
class Telemetry:
    """The telemetry of one run; parts that were not recorded are empty."""

    ops: tuple[tuple[str, str], ...] = ()  # name and kind
    traces: Sequence[tuple[int, int, int, Sequence[int]]] = ()  # see op_spans()
    series: Mapping[str, Series] = field(default_factory=dict)
    cores: int = 1
    windows: StepWindows = field(default_factory=StepWindows)
    readings: SensorReadings = field(default_factory=SensorReadings)

    @cached_property
    def spans(self) -> list[OpSpan]:
        """Every traced operation, with its start and end."""
        return op_spans(self.traces)


def pack_telemetry(content: Mapping[str, Any]) -> bytes:
    """Return a run's telemetry as compressed JSON, with the differences of whole numbers.

    A cold run takes about 6 kB; the plain JSON, deflated, took 10.5 kB.
    """
    shortened = _shorten(content)
    windows = content.get("windows") or {} if content else {}
    for name, length in _LENGTHS.items():
        starts, lengths = windows.get(name, ()), windows.get(length, ())
        if len(starts) == len(lengths) and set(map(type, (*starts, *lengths))) == {int}:
            ends = [start + length for start, length in zip(starts, lengths, strict=True)]
            gaps = [starts[0], *(start - end for end, start in zip(ends, starts[1:], strict=False))]
            shortened["windows"][name] = {_GAPS: _shorten(gaps)}
    return zlib.compress(to_json(shortened))


def _shorten(value: Any) -> Any:
    """Replace whole numbers by their differences, rows by columns, repeated texts by an index."""
    if isinstance(value, Mapping):
        return {key: _shorten(item) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    kinds = set(map(type, value))
    if len(value) >= SHORTENED_MIN:
        if kinds == {int}:
            return {_DIFFERENCES: [value[0], *map(sub, value[1:], value)]}
        if kinds <= {list, tuple} and _are_rows(value):
            return {_COLUMNS: [_shorten(list(column)) for column in zip(*value, strict=True)]}
        if kinds <= {str, type(None)}:
            return _shorten_texts(value)
    return [_shorten(item) for item in value] if kinds & {dict, list, tuple} else value


def _shorten_texts(value: Sequence[str | None]) -> Any:
    """Write repeated texts once, and of texts that differ only in their numbers the numbers."""
    texts = list(dict.fromkeys(value))
    if 2 * len(texts) < len(value):
        index = {text: number for number, text in enumerate(texts)}
        return {_TEXTS: texts, _CHOICES: [index[item] for item in value]}
    if None in texts:
        return value
    rows = [_NUMBER.split(text or "") for text in value]
    between = rows[0][::2]
    if len(between) == 1 or any(row[::2] != between for row in rows):
        return value
    columns = zip(*(row[1::2] for row in rows), strict=True)
    return {_BETWEEN: between, _COLUMNS: [_shorten([*map(int, column)]) for column in columns]}


def _are_rows(value: Sequence[Any]) -> bool:
    """Return whether all items are lists of equally many whole numbers."""
    is_table = len(set(map(len, value))) == 1 and len(value[0]) > 0
    return is_table and set(map(type, chain.from_iterable(value))) == {int}


def _restore(value: Any, expansion: RestoredMemory) -> Any:
    """Return what was shortened; ValueError before it takes more memory than it may."""
    if isinstance(value, list):
        return [_restore(item, expansion) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_DIFFERENCES}:
        differences = _integers(value[_DIFFERENCES])
        expansion.spend_items(len(differences))
        return list(accumulate(differences))
    if value.keys() == {_TEXTS, _CHOICES}:
        texts, choices = value[_TEXTS], _integers(value[_CHOICES])
        if any(not 0 <= choice < len(texts) for choice in choices):
            raise ValueError("a text is missing")
        if not set(map(type, texts)) <= {str, type(None)}:
            raise ValueError("not a list of texts")
        expansion.spend_items(len(choices))
        return [texts[choice] for choice in choices]
    if value.keys() == {_BETWEEN, _COLUMNS}:
        first, *rest = map(str, value[_BETWEEN])
        columns = _restore_columns(value, expansion)
        width = len(first) + sum(map(len, rest)) + _DIGITS_MAX * len(rest)
        expansion.spend_items(len(columns[0]), width)
        rows = (zip(row, rest, strict=True) for row in zip(*columns, strict=True))
        return [first + "".join(f"{number}{text}" for number, text in row) for row in rows]
    if value.keys() == {_COLUMNS}:
        columns = _restore_columns(value, expansion)
        expansion.spend_items(len(columns[0]), _ROW_BYTES + 8 * len(columns))
        return [list(row) for row in zip(*columns, strict=True)]
    return {key: _restore(item, expansion) for key, item in value.items()}


def _restore_columns(value: Mapping[str, Any], expansion: RestoredMemory) -> list[list[int]]:
    """Return columns of whole numbers, all of one length."""
    columns = [_integers(_restore(column, expansion)) for column in value[_COLUMNS]]
    if len({len(column) for column in columns}) != 1:
        raise ValueError("columns of different length")
    return columns


def _restore_starts(windows: dict[str, Any]) -> None:
    """Replace the gaps between windows by their starts."""
    for name, length in _LENGTHS.items():
        column = windows.get(name)
        if isinstance(column, dict):
            starts = _integers(column[_GAPS])[:1]
            for gap, ended in zip(column[_GAPS][1:], _integers(windows[length]), strict=False):
                starts.append(starts[-1] + ended + gap)
            windows[name] = starts


def unpack_telemetry(blob: bytes, expansion: RestoredMemory | None = None) -> dict[str, Any]:
    """Return the content of a blob; raise InvalidRequest if it is malformed or too large.

    Contents that are kept at the same time share an `expansion`.
    """
    allowed = expansion or RestoredMemory(TELEMETRY_BYTES_MAX)
    try:
        text = allowed.inflate(blob)
        allowed.spend_json(text)
        content = _restore(from_json(text), allowed)
        if not isinstance(content, dict):
            raise ValueError("not telemetry")
        _restore_starts(content.get("windows") or {})
    except (*_UNUSABLE, zlib.error):
        raise InvalidRequest(_MALFORMED) from None
    return content


def read_telemetry(blob: bytes, expansion: RestoredMemory | None = None) -> Telemetry:
    """Decompress and validate a run's telemetry, as `unpack_telemetry` does."""
    content = unpack_telemetry(blob, expansion)
    try:
        return _parse(content)
    except _UNUSABLE:
        raise InvalidRequest(_MALFORMED) from None


def _parse(content: Mapping[str, Any]) -> Telemetry:
    ops, readings = content.get("ops") or {}, content.get("readings") or {}
    windows = content.get("windows") or {}
    columns = dict(zip(readings.get("paths", ()), readings.get("columns", ()), strict=True))
    read_ns = _integers(readings.get("t_ns", []))
    series = (content.get("series") or {}).items()
    return Telemetry(
        ops=tuple(zip(ops.get("name", ()), ops.get("kind", ()), strict=True)),
        traces=[_trace(trace) for trace in content.get("traces") or ()],
        series={name: _series(values, read_ns) for name, values in series},
        cores=int(content.get("cores", 1)),
        windows=_windows(windows),
        readings=SensorReadings(
            read_ns, {str(path): list(column) for path, column in columns.items()}
        ),
    )


def series_columns(series: Series, read_ns: Sequence[int] = ()) -> dict[str, Any]:
    """Return a series as the blob has it; times that are those of readings are not repeated."""
    name = "rate" if isinstance(series, SampledSeries) else "total"
    values = series.rate if isinstance(series, SampledSeries) else series.total
    columns: dict[str, Any] = {name: values}
    for per in _PER_UNIT:
        whole = [round(per * value) for value in values]
        if all(number / per == value for number, value in zip(whole, values, strict=True)):
            columns = {name: whole, "per": per}
            break
    first = bisect_left(read_ns, series.t_ns[0]) if series.t_ns else 0
    if series.t_ns and series.t_ns == read_ns[first : first + len(series.t_ns)]:
        return {"row": first, **columns}
    return {"t_ns": series.t_ns, **columns}


def _series(columns: Mapping[str, Any], read_ns: Sequence[int]) -> Series:
    kind = SampledSeries if "rate" in columns else CumulativeSeries
    values = _numbers(columns["rate" if "rate" in columns else "total"])
    if "per" in columns:
        (per,) = _integers([columns["per"]])
        if per not in _PER_UNIT:
            raise ValueError("unknown unit")
        values = [value / per for value in values]
    if "row" in columns:
        (first,) = _integers([columns["row"]])
        t_ns = read_ns[first : first + len(values)] if first >= 0 else ()
    else:
        t_ns = _integers(columns["t_ns"])
    if len(values) != len(t_ns):
        raise ValueError("columns of different length")
    return kind(t_ns, values)


def _windows(columns: Mapping[str, Any]) -> StepWindows:
    names = [field.name for field in fields(StepWindows)]
    values = [_integers(columns.get(name, [])) for name in names]
    if len({len(column) for column in values}) > 1:
        raise ValueError("columns of different length")
    return StepWindows(*values)


def _trace(trace: Sequence[Any]) -> tuple[int, int, int, Sequence[int]]:
    step, t_ns, first, ends_ns = trace
    return *_integers([step, t_ns, first]), _integers(ends_ns)  # type: ignore[return-value]


def _integers(values: Any) -> list[int]:
    if not isinstance(values, list) or not {*map(type, values)} <= {int}:
        raise ValueError("not a list of integers")
    _check_size(values)
    return values


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list) or not {*map(type, values)} <= {int, float}:
        raise ValueError("not a list of numbers")
    _check_size(values)
    return values


def _check_size(values: Sequence[float]) -> None:
    """Refuse numbers of a million digits, whose sums would be as long."""
    if values and not -INTEGER_MAX <= min(values) <= max(values) <= INTEGER_MAX:
        raise ValueError("a number is too large")
