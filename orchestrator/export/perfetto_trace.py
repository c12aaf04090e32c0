"""A run on one timeline, in the trace event format that Perfetto and chrome://tracing open.

Traced operations and windows of steps are slices, clocks, temperatures, power and load are
counters. All of it is on the phone's own clock, from the first moment on, in microseconds.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from orchestrator.analysis.measurements import MeasuredRun
from workloads.protocol.telemetry import CumulativeSeries, Telemetry
from workloads.text import safe_text

STEPS, OPERATIONS = 1, 2
Event = dict[str, Any]


def build_trace(run: MeasuredRun, telemetry: Telemetry) -> dict[str, Any]:
    """The trace of a run, as a JSON object."""
    start = _start_ns(telemetry)
    events = [*_names(run), *_windows(telemetry, start), *_operations(telemetry, start)]
    events += [*_counters(telemetry, start), *_rates(telemetry, start)]
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
            "verdict": run.verdict.validity.value,
            "source": _source(run),
            "clock": "the phone's own, from the first moment that is told",
        },
        "traceEvents": events,
    }


def write_trace(run: MeasuredRun, telemetry: Telemetry) -> bytes:
    """The trace as a file."""
    return json.dumps(build_trace(run, telemetry), allow_nan=False, separators=(",", ":")).encode()


def _source(run: MeasuredRun) -> str:
    return ", ".join(sorted({str(metric.provenance) for metric in run.metrics.values()}))


def _start_ns(telemetry: Telemetry) -> int:
    columns = (telemetry.windows.t_ns, telemetry.readings.t_ns)
    moments = [*(trace[1] for trace in telemetry.traces), *(each[0] for each in columns if each)]
    return min(moments, default=0)


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


def _windows(telemetry: Telemetry, start: int) -> Iterator[Event]:
    windows = telemetry.windows
    columns = (windows.first, windows.n, windows.t_ns, windows.ns, windows.step_ms)
    for first, n, t_ns, ns, step_ms in zip(*columns, strict=True):
        name = f"step {first}" if n == 1 else f"steps {first} to {first + n - 1}"
        yield _slice(name, STEPS, (t_ns - start) / 1e3, ns / 1e3, steps=n, step_ms=step_ms)


def _operations(telemetry: Telemetry, start: int) -> Iterator[Event]:
    for span in telemetry.spans:
        known = span.op < len(telemetry.ops)
        name, kind = telemetry.ops[span.op] if known else (f"operation {span.op}", "")
        begin, lasts = (span.start_ns - start) / 1e3, (span.end_ns - span.start_ns) / 1e3
        yield _slice(
            safe_text(name), OPERATIONS, begin, lasts, step=span.step, kind=safe_text(kind)
        )


def _counters(telemetry: Telemetry, start: int) -> Iterator[Event]:
    """Clocks and temperatures, as they were read."""
    for path, column in telemetry.readings.columns.items():
        named = _counter_of(path)
        if named is None:
            continue
        name, unit, scale = named
        for t_ns, value in zip(telemetry.readings.t_ns, column, strict=False):
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


def _rates(telemetry: Telemetry, start: int) -> Iterator[Event]:
    """Power and load, as the slopes of what adds up: between two looks it is their mean."""
    kinds = {"energy_j": ("power", "w"), "busy_s": ("busy cores", "cores")}
    for name, series in telemetry.series.items():
        rail = name.removeprefix("rail_j.")
        shown = kinds.get(name) or ((f"rail {safe_text(rail)}", "w") if rail != name else None)
        if shown is not None:
            for t_ns, rate in slopes_per_second(series):
                yield _count(*shown, (t_ns - start) / 1e3, rate)


def slopes_per_second(series: CumulativeSeries) -> Iterator[tuple[int, float]]:
    """How fast a series grew from each moment to the next, per second."""
    for (begin, had), (end, has) in pairwise(zip(series.t_ns, series.total, strict=True)):
        if end > begin:
            yield begin, (has - had) * 1e9 / (end - begin)


def _count(name: str, unit: str, at_us: float, value: float) -> Event:
    return {"ph": "C", "pid": 1, "name": name, "ts": at_us, "args": {unit: value}}
