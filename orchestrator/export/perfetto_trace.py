"""A run on one timeline, in the trace event format that Perfetto and chrome://tracing open.

Traced operations and windows of steps are slices; clocks, temperatures, power and load are
counters. The mean step has its own track, at the start of the trace: its operations carry the
power, load and clocks that were attributed to them. Times are microseconds of the phone's own
clock since the first event.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.op_telemetry import op_rows
from workloads.lab.process_identity import software_version
from workloads.protocol.telemetry import SampledSeries, Series, Telemetry
from workloads.text import safe_text

STEPS, OPERATIONS, MEAN_STEP = 1, 2, 3
Event = dict[str, Any]


def build_trace(run: MeasuredRun, telemetry: Telemetry) -> dict[str, Any]:
    """Return the trace of a run as a JSON object."""
    start = _start_ns(telemetry)
    sources = sorted({str(metric.provenance) for metric in run.metrics.values()})
    events = [*_names(run), *_windows(telemetry, start), *_operations(telemetry, start)]
    events += [*_mean_step(telemetry), *_counters(telemetry, start), *_rates(telemetry, start)]
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "farmhand": software_version(),
            "sweep": run.sweep,
            "run": f"{run.trial}.{run.repeat}.{run.attempt}",
            "block": run.block,
            "position": run.position,
            "phone": safe_text(run.facts.model),
            "workload": run.case.label,
            "condition": run.condition.label,
            "verdict": run.verdict.validity.value,
            "source": ", ".join(sources),
            "clock": "the phone's clock, since the first event",
        },
        "traceEvents": events,
    }


def write_trace(run: MeasuredRun, telemetry: Telemetry) -> bytes:
    """Return the trace of a run as the content of a file."""
    return json.dumps(build_trace(run, telemetry), allow_nan=False, separators=(",", ":")).encode()


def _start_ns(telemetry: Telemetry) -> int:
    columns = (telemetry.windows.t_ns, telemetry.readings.t_ns)
    moments = [*(trace[1] for trace in telemetry.traces), *(t_ns[0] for t_ns in columns if t_ns)]
    return min(moments, default=0)


def _names(run: MeasuredRun) -> Iterator[Event]:
    phone = safe_text(f"{run.facts.model} ({run.phone}): {run.case.label}, {run.condition.label}")
    yield {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": phone}}
    tracks = {
        STEPS: "steps",
        OPERATIONS: "operations (traced steps)",
        MEAN_STEP: "mean step, with attributed power, load and clocks",
    }
    for thread, name in tracks.items():
        yield {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}}


def _slice(name: str, thread: int, begin_us: float, duration_us: float, **args: Any) -> Event:
    return {
        "ph": "X",
        "pid": 1,
        "tid": thread,
        "name": name,
        "ts": begin_us,
        "dur": max(0.0, duration_us),
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
        begin_us = (span.start_ns - start) / 1e3
        duration_us = (span.end_ns - span.start_ns) / 1e3
        args = {"step": span.step, "kind": safe_text(kind)}
        yield _slice(safe_text(name), OPERATIONS, begin_us, duration_us, **args)


def _mean_step(telemetry: Telemetry) -> Iterator[Event]:
    begin_us = 0.0
    for op in op_rows(telemetry):
        attributed = {
            "readings": op.readings,
            "method": op.method.value,
            "power_w": op.power_w,
            "power_error_w": op.power_error_w,
            "util_pct": op.util_pct,
            "gpu_util_pct": op.gpu_util_pct,
            "memory_mb": op.memory_mb,
            **{f"cpu{cpu}_pct": pct for cpu, pct in sorted(op.core_util_pct.items())},
            **{f"policy{policy}_mhz": mhz for policy, mhz in sorted(op.clock_mhz.items())},
            **{f"rail_{safe_text(rail)}_w": w for rail, w in sorted(op.rails_w.items())},
        }
        known = {name: value for name, value in attributed.items() if value is not None}
        yield _slice(safe_text(op.name), MEAN_STEP, begin_us, op.ms * 1e3, **known)
        begin_us += op.ms * 1e3


def _counters(telemetry: Telemetry, start: int) -> Iterator[Event]:
    """Yield clocks and temperatures as they were read."""
    for path, column in telemetry.readings.columns.items():
        counter = _counter_of(path)
        if counter is None:
            continue
        name, unit, scale = counter
        for t_ns, value in zip(telemetry.readings.t_ns, column, strict=False):
            if isinstance(value, int):
                yield _counter_event(name, unit, (t_ns - start) / 1e3, value * scale)


def _counter_of(path: str) -> tuple[str, str, float] | None:
    """Return the counter of a sysfs node: its name, its unit, and the factor to that unit."""
    parts = path.split("/")
    if path.endswith("/scaling_cur_freq"):
        return f"clock {parts[-2]}", "mhz", 0.001
    if "/thermal_zone" in path and path.endswith("/temp"):
        return f"temperature {parts[-2]}", "c", 0.001
    if "/cooling_device" in path and path.endswith("/cur_state"):
        return f"throttle {parts[-2]}", "state", 1.0
    return None


def _rates(telemetry: Telemetry, start: int) -> Iterator[Event]:
    """Yield power and load: the slopes of cumulative series, as means between two samples."""
    kinds = {
        "energy_j": ("power", "w"),
        "busy_s": ("busy cores", "cores"),
        "gpu_busy_s": ("busy GPU", "share"),
    }
    for name, series in telemetry.series.items():
        rail = name.removeprefix("rail_j.")
        counter = kinds.get(name) or ((f"rail {safe_text(rail)}", "w") if rail != name else None)
        if counter is not None:
            for t_ns, rate in slopes_per_second(series):
                yield _counter_event(*counter, (t_ns - start) / 1e3, rate)


def slopes_per_second(series: Series) -> Iterator[tuple[int, float]]:
    """Yield the rate of a series at each sample: as sampled, or as the slope to the next."""
    if isinstance(series, SampledSeries):
        yield from zip(series.t_ns, series.rate, strict=True)
        return
    for (begin, before), (end, after) in pairwise(zip(series.t_ns, series.total, strict=True)):
        if end > begin:
            yield begin, (after - before) * 1e9 / (end - begin)


def _counter_event(name: str, unit: str, t_us: float, value: float) -> Event:
    return {"ph": "C", "pid": 1, "name": name, "ts": t_us, "args": {unit: value}}
