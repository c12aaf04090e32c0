"""A run on one timeline, in the trace event format that Perfetto and chrome://tracing open.

Traced operations and windows of steps are slices, clocks, temperatures, power and load are
counters. All of it is on the phone's own clock, from the first moment on, in microseconds.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from orchestrator.nouns import MeasuredRun
from workloads.text import safe_text
from workloads.timeline import spans_of

STEPS, OPERATIONS = 1, 2
Event = dict[str, Any]


def trace_of(run: MeasuredRun, told: Mapping[str, Any]) -> dict[str, Any]:
    """The trace of a run, as a JSON object."""
    moments = _moments(told)
    start = min(moments) if moments else 0
    events = [*_names(run), *_windows(told, start), *_operations(told, start)]
    events += [*_counters(told, start), *_rates(told, start)]
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "sweep": run.sweep,
            "run": f"{run.trial}.{run.repeat}.{run.attempt}",
            "block": run.block,
            "position": run.position,
            "phone": safe_text(run.facts.model),
            "workload": run.case.label,
            "condition": run.condition.label,
            "verdict": run.verdict.standing.value,
            "source": _source(run),
            "clock": "the phone's own, from the first moment that is told",
        },
        "traceEvents": events,
    }


def write_trace(run: MeasuredRun, told: Mapping[str, Any]) -> bytes:
    """The trace as a file."""
    return json.dumps(trace_of(run, told), allow_nan=False, separators=(",", ":")).encode()


def _source(run: MeasuredRun) -> str:
    return ", ".join(sorted({str(metric.provenance) for metric in run.metrics.values()}))


def _moments(told: Mapping[str, Any]) -> list[int]:
    traces = [trace[1] for trace in told.get("traces", [])]
    columns = (told.get("windows", {}).get("t_ns", []), told.get("readings", {}).get("t_ns", []))
    return [*traces, *(column[0] for column in columns if column)]


def _names(run: MeasuredRun) -> Iterator[Event]:
    phone = safe_text(f"{run.facts.model} ({run.phone}): {run.case.label}, {run.condition.label}")
    yield {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": phone}}
    for thread, name in ((STEPS, "steps"), (OPERATIONS, "operations (traced steps)")):
        yield {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}}


def _slice(name: str, thread: int, begin_us: float, lasts_us: float, **args: Any) -> Event:
    return {
        "ph": "X",
        "pid": 1,
        "tid": thread,
        "name": name,
        "ts": begin_us,
        "dur": max(0.0, lasts_us),
        "args": args,
    }


def _windows(told: Mapping[str, Any], start: int) -> Iterator[Event]:
    windows = told.get("windows", {})
    columns = [windows.get(name, []) for name in ("first", "n", "t_ns", "ns")]
    for first, n, t_ns, ns in zip(*columns, strict=False):
        name = f"step {first}" if n == 1 else f"steps {first} to {first + n - 1}"
        step_ms = ns / n / 1e6 if n else None
        yield _slice(name, STEPS, (t_ns - start) / 1e3, ns / 1e3, steps=n, step_ms=step_ms)


def _operations(told: Mapping[str, Any], start: int) -> Iterator[Event]:
    ops = told.get("ops", {})
    names, kinds = ops.get("name", []), ops.get("kind", [])
    for span in spans_of(told.get("traces", [])):
        name = safe_text(names[span.op]) if span.op < len(names) else f"operation {span.op}"
        kind = safe_text(kinds[span.op]) if span.op < len(kinds) else ""
        begin, lasts = (span.start_ns - start) / 1e3, (span.end_ns - span.start_ns) / 1e3
        yield _slice(name, OPERATIONS, begin, lasts, step=span.step, kind=kind)


def _counters(told: Mapping[str, Any], start: int) -> Iterator[Event]:
    """Clocks and temperatures, as they were read."""
    readings = told.get("readings", {})
    moments = readings.get("t_ns", [])
    for path, column in zip(readings.get("paths", []), readings.get("columns", []), strict=False):
        named = _counter_of(path)
        if named is None:
            continue
        name, unit, scale = named
        for t_ns, value in zip(moments, column, strict=False):
            if isinstance(value, int):
                yield _count(name, unit, (t_ns - start) / 1e3, value * scale)


def _counter_of(path: str) -> tuple[str, str, float] | None:
    """What a node is called on the timeline, its unit, and the factor to it."""
    parts = path.split("/")
    if path.endswith("/scaling_cur_freq"):
        return f"clock {parts[-2]}", "mhz", 0.001
    if "/thermal_zone" in path and path.endswith("/temp"):
        return f"temperature {parts[-2]}", "c", 0.001
    if "/cooling_device" in path and path.endswith("/cur_state"):
        return f"throttle {parts[-2]}", "state", 1.0
    return None


def _rates(told: Mapping[str, Any], start: int) -> Iterator[Event]:
    """Power and load, as the slopes of what adds up: between two looks it is their mean."""
    kinds = {"energy_j": ("power", "w"), "busy_s": ("busy cores", "cores")}
    for name, course in told.get("courses", {}).items():
        rail = name.removeprefix("rail_j.")
        shown = kinds.get(name) or ((f"rail {safe_text(rail)}", "w") if rail != name else None)
        if shown is not None:
            for t_ns, rate in slopes(course["t_ns"], course["total"]):
                yield _count(*shown, (t_ns - start) / 1e3, rate)


def slopes(t_ns: Sequence[int], total: Sequence[float]) -> Iterator[tuple[int, float]]:
    """How fast a course grew from each moment to the next, a second."""
    for (begin, had), (end, has) in pairwise(zip(t_ns, total, strict=True)):
        if end > begin:
            yield begin, (has - had) * 1e9 / (end - begin)


def _count(name: str, unit: str, at_us: float, value: float) -> Event:
    return {"ph": "C", "pid": 1, "name": name, "ts": at_us, "args": {unit: value}}
