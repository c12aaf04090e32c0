"""The timeline of a run: traced operations and what was sampled beside them, on one clock. Pure.

A course is a quantity that only adds up (energy, busy time, clock times time). What an operation
had of it is the difference between the course at its end and at its beginning, interpolated: time
weighs everything. A sampler is slower than most operations, so an operation's figure is as fine as
the sampling beside it, and the mean over traced steps is what to read.
"""

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, NamedTuple

from workloads.fault import Refused

BYTES_MAX = 256 * 1024 * 1024
COPIES = frozenset({"copy", "gather"})  # kinds of operations that only move data
ENERGY, BUSY, CLOCK, RAIL = "energy_j", "busy_s", "clock_khz_s.", "rail_j."


class Course(NamedTuple):
    """How much of something had come together by which moment."""

    t_ns: Sequence[int]
    total: Sequence[float]

    def between(self, start_ns: int, end_ns: int) -> float | None:
        """What came together between two moments; None where nothing was sampled around them."""
        first, last = self.at(start_ns), self.at(end_ns)
        return None if first is None or last is None else last - first

    def at(self, t_ns: int) -> float | None:
        """How much there was at a moment."""
        if len(self.t_ns) < 2 or not self.t_ns[0] <= t_ns <= self.t_ns[-1]:
            return None
        after = min(bisect_right(self.t_ns, t_ns), len(self.t_ns) - 1)
        start, end = self.t_ns[after - 1], self.t_ns[after]
        share = (t_ns - start) / (end - start) if end > start else 0.0
        return self.total[after - 1] + share * (self.total[after] - self.total[after - 1])


def course_of(points: Sequence[tuple[int, float]]) -> Course:
    """The course of a value that was read at moments: trapezoids over seconds."""
    areas = [(b_ns - a_ns) / 1e9 * (a + b) / 2 for (a_ns, a), (b_ns, b) in pairwise(points)]
    return Course([t_ns for t_ns, _ in points], list(accumulate(areas, initial=0.0)))


class Span(NamedTuple):
    """One operation in one traced step."""

    step: int
    op: int
    start_ns: int
    end_ns: int


def spans_of(traces: Iterable[tuple[int, int, int, Sequence[int]]]) -> list[Span]:
    """Operations with their beginnings and ends; each trace is (step, t_ns, first, ends_ns)."""
    spans = []
    for step, t_ns, first, ends_ns in traces:
        start = t_ns
        for op, end_ns in enumerate(ends_ns, first):
            if end_ns >= 0:  # else it took no part
                spans.append(Span(step, op, start, t_ns + end_ns))
                start = t_ns + end_ns
    return spans


def copied_share(spans: Sequence[Span], kinds: Sequence[str]) -> float | None:
    """The share of traced time that went into operations which only move data."""
    total = sum(span.end_ns - span.start_ns for span in spans)
    if not total or any(span.op >= len(kinds) for span in spans):
        return None
    moved = sum(span.end_ns - span.start_ns for span in spans if kinds[span.op] in COPIES)
    return moved / total


def step_similarity(spans: Sequence[Span]) -> float | None:
    """How alike traced steps are: the overlap of each with the median step, on average.

    The overlap is what both have of every operation's time, over what either has. A step that is
    half as long again throughout overlaps by two thirds, as does one whose time went elsewhere.
    """
    steps: dict[int, dict[int, int]] = {}
    for span in spans:
        steps.setdefault(span.step, {})[span.op] = span.end_ns - span.start_ns
    if len(steps) < 2:
        return None
    ops = {op for times in steps.values() for op in times}
    usual = {op: median(times.get(op, 0) for times in steps.values()) for op in ops}
    overlaps = []
    for times in steps.values():
        both = sum(min(times.get(op, 0), usual[op]) for op in ops)
        either = sum(max(times.get(op, 0), usual[op]) for op in ops)
        overlaps.append(both / either if either else 1.0)
    return sum(overlaps) / len(overlaps)


@dataclass(frozen=True)
class Telemetry:
    """The part of a run's blob that tells of operations."""

    ops: tuple[tuple[str, str], ...] = ()  # name and kind
    spans: tuple[Span, ...] = ()
    courses: Mapping[str, Course] = field(default_factory=dict)
    cores: int = 1


@dataclass(frozen=True)
class OpRow:
    """What an operation had, on average over the traced steps; None where nothing was sampled."""

    name: str
    kind: str
    steps: int
    ms: float
    share: float
    energy_mj: float | None
    power_w: float | None
    util_pct: float | None
    clock_mhz: Mapping[int, float]
    rails_w: Mapping[str, float]


def join(run: Telemetry) -> tuple[OpRow, ...]:
    """Join operations and courses: per operation time, share, energy, utilisation and clock."""
    by_op: dict[int, list[Span]] = {}
    for span in run.spans:
        by_op.setdefault(span.op, []).append(span)
    total = sum(span.end_ns - span.start_ns for span in run.spans) or 1
    return tuple(_row(run, op, spans, total) for op, spans in sorted(by_op.items()))


def _row(run: Telemetry, op: int, spans: Sequence[Span], total_ns: int) -> OpRow:
    taken_ns = sum(span.end_ns - span.start_ns for span in spans)
    power_w = _rate(run.courses.get(ENERGY), spans)
    busy = _rate(run.courses.get(BUSY), spans)
    clocks = _rates(run, CLOCK, spans)
    name, kind = run.ops[op] if op < len(run.ops) else (f"operation {op}", "")
    return OpRow(
        name=name,
        kind=kind,
        steps=len(spans),
        ms=taken_ns / len(spans) / 1e6,
        share=taken_ns / total_ns,
        energy_mj=None if power_w is None else power_w * taken_ns / len(spans) / 1e6,
        power_w=power_w,
        # Kernels count in ticks of 10 ms, so a busy core may seem a little busier than it can be.
        util_pct=None if busy is None else min(100.0, 100 * busy / run.cores),
        clock_mhz={int(policy): khz / 1000 for policy, khz in clocks.items()},
        rails_w=_rates(run, RAIL, spans),
    )


def _rates(run: Telemetry, family: str, spans: Sequence[Span]) -> dict[str, float]:
    """How fast every course of a family grew, by what follows the family's name."""
    found = {
        name.removeprefix(family): _rate(course, spans)
        for name, course in run.courses.items()
        if name.startswith(family)
    }
    return {name: rate for name, rate in found.items() if rate is not None}


def _rate(course: Course | None, spans: Sequence[Span]) -> float | None:
    """How fast a course grew during some spans, a second; those that nobody sampled do not say."""
    if course is None:
        return None
    parts = [
        (grown, (span.end_ns - span.start_ns) / 1e9)
        for span in spans
        if (grown := course.between(span.start_ns, span.end_ns)) is not None
    ]
    seconds = sum(lasted for _, lasted in parts)
    return sum(grown for grown, _ in parts) / seconds if seconds > 0 else None


def write_blob(content: Mapping[str, Any]) -> bytes:
    """Pack a run's telemetry: JSON, compressed."""
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), level=6)


def read_blob(blob: bytes) -> dict[str, Any]:
    """Unpack a run's telemetry; Refused when it is none."""
    try:
        unpacking = zlib.decompressobj()
        content = json.loads(unpacking.decompress(blob, BYTES_MAX))
        if not isinstance(content, dict) or not unpacking.eof:
            raise ValueError("not telemetry")
    except (ValueError, zlib.error, RecursionError):
        raise Refused("The telemetry of this run cannot be read.") from None
    return content


def telemetry_of(content: Mapping[str, Any]) -> Telemetry:
    """The operations of an unpacked blob, and what was sampled beside them."""
    try:
        names, kinds = content["ops"]["name"], content["ops"]["kind"]
        return Telemetry(
            ops=tuple(zip(names, kinds, strict=True)),
            spans=tuple(spans_of(content["traces"])),
            courses={
                name: Course(course["t_ns"], course["total"])
                for name, course in content["courses"].items()
            },
            cores=int(content["cores"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Refused("This run was not traced: its telemetry tells of no operation.") from None
