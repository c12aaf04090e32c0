"""Metrics that studies compute from telemetry: shares of operations, steady clock, body heat."""

from collections.abc import Iterator, Set
from statistics import mean, median

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.op_telemetry import RESOLVING, OpMethod, op_rows
from workloads.protocol.metrics import METRICS, Provenance
from workloads.protocol.telemetry import CLOCK, CORE, GPU_BUSY, Telemetry, part_rates

# Joining operations with readings takes a second per run, so it is done for those who ask.
OP_METRICS = frozenset({"op_share", "op_resolved_share", "op_energy_share"})
SHARES = (
    OP_METRICS
    | {"device_copy_share", "device_compute_share", "compute_share"}
    | {name for name, kind in METRICS.items() if kind.is_share}
)
TELEMETRY_METRICS = OP_METRICS | {"first_step_ratio", "settled_clock_share", "body_rise_c"}
TelemetryMetric = tuple[dict[str, str | int], str, float, Provenance]
_MINUTE_NS = 60_000_000_000
_TEN_S_NS = 10_000_000_000
_GOVERNOR_NS = 2_000_000_000  # after this time the governor has reacted to the load
TRACED_STEPS = 3  # as many as the TX2 study shows
TRACE_PART_NS = 10_000_000  # its interval of 10 ms
TRACE_NS = 1465 * 1_000_000_000  # length of the thermal trace of EMDL'21


def telemetry_metrics(
    run: MeasuredRun, telemetry: Telemetry, wanted: Set[str] = TELEMETRY_METRICS
) -> Iterator[TelemetryMetric]:
    """Yield what the telemetry of a run adds to its report."""
    counted = {name: metric for name, metric in run.metrics.items() if run.counts(name)}
    if time := counted.get("step_ms") or counted.get("last_minute_step_ms"):
        energy = counted.get("energy_per_step_mj")
        if wanted & OP_METRICS:
            yield from _op_shares(telemetry, time.provenance, energy.provenance if energy else None)
        yield from _first_step_ratio(telemetry, time.provenance)
    if clock := counted.get("pinned_clock_share") or counted.get("time_to_throttle_s"):
        yield from _settled_clock_share(telemetry, clock.provenance)
    if temperature := counted.get("start_temp_c"):
        yield from _body_rise(run, telemetry, temperature.provenance)


def trace_of_steps(telemetry: Telemetry) -> dict[str, list[tuple[float, float]]]:
    """Return how busy the GPU and each core were over a few steps: (ms, percent) by name."""
    windows = telemetry.windows
    if not windows.n:
        return {}
    start = windows.t_ns[0]
    step_ns = windows.ns[0] / max(windows.n[0], 1)
    span = (start, start + round(TRACED_STEPS * step_ns))
    names = {GPU_BUSY: "GPU"} | {
        name: f"cpu{name.removeprefix(CORE)}" for name in telemetry.series if name.startswith(CORE)
    }
    traced = {}
    for name, shown in sorted(names.items(), key=lambda item: (item[0] != GPU_BUSY, item[1])):
        series = telemetry.series.get(name)
        rates = part_rates(series, span, TRACE_PART_NS) if series and len(series.t_ns) > 1 else []
        part_ms = (span[1] - span[0]) / 1e6 / max(len(rates), 1)
        points = [((n + 0.5) * part_ms, min(100 * rate, 100.0)) for n, rate in enumerate(rates)]
        if points:
            traced[shown] = points
    return traced


def _op_shares(
    telemetry: Telemetry, time: Provenance, energy: Provenance | None
) -> Iterator[TelemetryMetric]:
    """Yield the share of every kind of operation in a step's time and energy."""
    shares: dict[str, float] = {}
    joules: dict[str, float] = {}
    ops = op_rows(telemetry, RESOLVING)
    if not ops:
        return
    for op in ops:
        shares[op.kind] = shares.get(op.kind, 0.0) + op.share
        if op.energy_mj is not None:
            joules[op.kind] = joules.get(op.kind, 0.0) + op.energy_mj
    for kind, share in shares.items():
        yield {"op_kind": kind}, "op_share", share, time
    resolved = (OpMethod.READINGS, OpMethod.REGRESSION)
    yield {}, "op_resolved_share", sum(op.share for op in ops if op.method in resolved), time
    total = sum(joules.values())
    for kind, part in joules.items():
        if energy is not None and total > 0:
            yield {"op_kind": kind}, "op_energy_share", part / total, energy


def _first_step_ratio(telemetry: Telemetry, provenance: Provenance) -> Iterator[TelemetryMetric]:
    """Yield the first window over the median window: 1 if the warm-up was long enough.

    A step of 50 ms or more, as in the study, is a window by itself.
    """
    times = [step_ms for step_ms in telemetry.windows.step_ms if step_ms is not None]
    if len(times) > 2 and (usual := median(times)) > 0:
        yield {}, "first_step_ratio", times[0] / usual, provenance


def _settled_clock_share(telemetry: Telemetry, provenance: Provenance) -> Iterator[TelemetryMetric]:
    """Yield the fastest cores' clock in the last minute over their clock at the start."""
    rates = []
    for name, series in telemetry.series.items():
        t_ns = series.t_ns
        if name.startswith(CLOCK) and len(t_ns) > 2 and t_ns[-1] - t_ns[0] > _MINUTE_NS:
            first = series.between(t_ns[0] + _GOVERNOR_NS, t_ns[0] + _GOVERNOR_NS + _TEN_S_NS)
            last = series.between(t_ns[-1] - _MINUTE_NS, t_ns[-1])
            if first and last:
                rates.append((first / 10, last / 60))
    if rates:
        first, last = max(rates)
        yield {}, "settled_clock_share", last / first, provenance


def _body_rise(
    run: MeasuredRun, telemetry: Telemetry, provenance: Provenance
) -> Iterator[TelemetryMetric]:
    """Yield the rise of the body's temperature over the study's trace, or until the end."""
    readings, zone = telemetry.readings, run.facts.body_zone
    if zone is None or zone.path not in readings.columns:
        return
    values = [
        float(value)
        for t_ns, value in zip(readings.t_ns, readings.columns[zone.path], strict=False)
        if isinstance(value, int | float) and t_ns - readings.t_ns[0] <= TRACE_NS
    ]
    if len(values) >= 10:
        rise = mean(values[-5:]) - mean(values[:5])
        yield {}, "body_rise_c", rise * zone.scale, provenance
