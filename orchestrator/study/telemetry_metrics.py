"""Figures that only a run's telemetry tells: what its operations took, how its clocks settled."""

from collections.abc import Iterator, Mapping
from statistics import mean, median
from typing import Any

from orchestrator.nouns import MeasuredRun
from workloads.fault import Refused
from workloads.measure import Provenance
from workloads.timeline import CLOCK, Course, join, telemetry_of

Figured = tuple[dict[str, str | int], str, float, Provenance]
_MINUTE_NS = 60_000_000_000
_TEN_S_NS = 10_000_000_000
_AWAKE_NS = 2_000_000_000  # the governor has noticed the load
TRACE_NS = 1465 * 1_000_000_000


def figures_told(run: MeasuredRun, told: Mapping[str, Any]) -> Iterator[Figured]:
    """What the telemetry of a run adds to its report."""
    if time := run.metrics.get("step_ms") or run.metrics.get("last_minute_step_ms"):
        energy = run.metrics.get("energy_j")
        yield from _operations(told, time.provenance, energy.provenance if energy else None)
        yield from _first_step(told, time.provenance)
    if clock := run.metrics.get("clock_held_share") or run.metrics.get("time_to_throttle_s"):
        yield from _settled_clock(told, clock.provenance)
    if heat := run.metrics.get("start_temp_c"):
        yield from _body_rise(run, told, heat.provenance)


def _operations(
    told: Mapping[str, Any], time: Provenance, energy: Provenance | None
) -> Iterator[Figured]:
    """The share of a step's time, and of its energy, that every kind of operation has."""
    try:
        ops = join(telemetry_of(told))
    except Refused:
        return
    shares: dict[str, float] = {}
    joules: dict[str, float] = {}
    for op in ops:
        shares[op.kind] = shares.get(op.kind, 0.0) + op.share
        if op.energy_mj is not None:
            joules[op.kind] = joules.get(op.kind, 0.0) + op.energy_mj
    for kind, share in shares.items():
        yield {"op_kind": kind}, "op_share", share, time
    whole = sum(joules.values())
    for kind, part in joules.items():
        if energy is not None and whole > 0:
            yield {"op_kind": kind}, "op_energy_share", part / whole, energy


def _first_step(told: Mapping[str, Any], provenance: Provenance) -> Iterator[Figured]:
    """The first step after the warm-up, by the usual one: 1 where the warm-up was long enough."""
    windows = told.get("windows", {})
    times = [
        ns / n for ns, n in zip(windows.get("ns", ()), windows.get("n", ()), strict=False) if n
    ]
    if len(times) > 2 and (usual := median(times)) > 0:
        yield {}, "first_step_ratio", times[0] / usual, provenance


def _settled_clock(told: Mapping[str, Any], provenance: Provenance) -> Iterator[Figured]:
    """The fastest cores' clock in the last minute, as a share of their first, once awake."""
    rates = []
    for name, course in told.get("courses", {}).items():
        moments = course["t_ns"]
        if name.startswith(CLOCK) and len(moments) > 2 and moments[-1] - moments[0] > _MINUTE_NS:
            whole = Course(moments, course["total"])
            first = whole.between(moments[0] + _AWAKE_NS, moments[0] + _AWAKE_NS + _TEN_S_NS)
            last = whole.between(moments[-1] - _MINUTE_NS, moments[-1])
            if first and last:
                rates.append((first / 10, last / 60))
    if rates:
        first, last = max(rates)
        yield {}, "settled_clock_share", last / first, provenance


def _body_rise(
    run: MeasuredRun, told: Mapping[str, Any], provenance: Provenance
) -> Iterator[Figured]:
    """By how much the body was warmer after as long as the study's trace, or at the end."""
    readings, zone = told.get("readings", {}), run.facts.slow_zone
    columns = dict(zip(readings.get("paths", ()), readings.get("columns", ()), strict=False))
    if zone is None or zone.path not in columns:
        return
    moments = readings.get("t_ns", ())
    seen = [
        float(value)
        for t_ns, value in zip(moments, columns[zone.path], strict=False)
        if isinstance(value, int | float) and t_ns - moments[0] <= TRACE_NS
    ]
    if len(seen) >= 10:
        rise = mean(seen[-5:]) - mean(seen[:5])
        yield {}, "body_rise_c", rise * zone.scale, provenance
