"""Power rails: what the meters of a phone or a computer show over a run, as energy. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from agent.collect.cpu_usage import WHOLE_MARK
from agent.collect.readings import Readings, Span
from agent.phone.power_meters import METERS_MAX, ODPM_CHANNEL, RailMeter
from agent.phone.power_stats import RailTotals, rail_totals_series, resolution_j
from workloads.protocol.telemetry import RAIL, CumulativeSeries, Series, sampled

PART_POWER_MAX_W = 2000.0
RAIL_ROUNDING_MAX = 0.1  # of a rail's energy in the run
Points = list[tuple[int, float]]


def sampled_meter_nodes(meter: RailMeter) -> tuple[str, ...]:
    """The entries of a meter in the runner's list of nodes."""
    if not meter.rail:
        return (f"{meter.path}{WHOLE_MARK}",)
    return (meter.path, meter.current_path) if meter.current_path else (meter.path,)


def rail_series(readings: Readings, meters: Iterable[RailMeter]) -> dict[str, Series]:
    """The energy of every rail in joules: counted, or samples of its power."""
    series: dict[str, Series] = {}
    for meter in meters:
        if not meter.rail:
            series |= _listed_series(readings, meter)
        elif meter.restarts_at_uj:
            series[meter.rail] = counted_energy(readings, meter)
        else:
            series[meter.rail] = sampled(power_points(readings, meter))
    usable = {rail: values for rail, values in series.items() if len(values.t_ns) > 1}
    return {f"{RAIL}{rail}": values for rail, values in sorted(usable.items())[:METERS_MAX]}


def reported_rail_series(totals: Sequence[RailTotals]) -> dict[str, Series]:
    """The energy of every rail of the power statistics, without those that are rounded away."""
    series = {
        rail: values
        for rail, values in rail_totals_series(totals).items()
        if resolution_j(values.total[-1])
        <= RAIL_ROUNDING_MAX * (values.total[-1] - values.total[0])
    }
    return {f"{RAIL}{rail}": values for rail, values in sorted(series.items())[:METERS_MAX]}


def counted_energy(readings: Readings, meter: RailMeter) -> CumulativeSeries:
    """The energy of a counter since its first reading, in joules; it may start again in between.

    A counter that was reset is not used: the step would be the power of a whole data centre.
    """
    counts = readings.series(meter.path)
    total_j = [0.0] if counts else []
    for (start_ns, before), (end_ns, after) in pairwise(counts):
        step_uj = after - before if after >= before else after - before + meter.restarts_at_uj
        if not 0 <= step_uj * 1e3 <= PART_POWER_MAX_W * (end_ns - start_ns):
            return CumulativeSeries([], [])
        total_j.append(total_j[-1] + step_uj / 1e6)
    return CumulativeSeries([t_ns for t_ns, _ in counts], total_j)


def _listed_series(readings: Readings, meter: RailMeter) -> dict[str, Series]:
    """The rails of a node that lists several; a counter that goes back is not used."""
    counted_j: dict[str, Points] = {}
    for t_ns, value in zip(readings.t_ns, readings.column(meter.path), strict=False):
        for rail, micro in ODPM_CHANNEL.findall(value) if isinstance(value, str) else ():
            counted_j.setdefault(rail, []).append((t_ns, int(micro) / 1e6))
    return {
        rail: CumulativeSeries([t_ns for t_ns, _ in points], [joules for _, joules in points])
        for rail, points in counted_j.items()
        if all(later >= sooner for (_, sooner), (_, later) in pairwise(points))
    }


def power_points(readings: Readings, meter: RailMeter) -> Points:
    """The watts of a rail, from its power in mW, or from mV and mA."""
    if not meter.current_path:
        return [(t_ns, milliwatts / 1e3) for t_ns, milliwatts in readings.series(meter.path)]
    volts, amperes = readings.numbers(meter.path), readings.numbers(meter.current_path)
    rows: Sequence[tuple[int, int | None, int | None]] = list(
        zip(readings.t_ns, volts, amperes, strict=False)
    )
    return [(t, mv * ma / 1e6) for t, mv, ma in rows if mv is not None and ma is not None]


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
