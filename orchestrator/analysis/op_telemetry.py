"""Joins the operations of a step with the sensors: power, utilisation, clocks and memory of each.

An operation that lasts for several sampling periods is resolved by the readings inside it. Shorter
ones are resolved by regression: steps repeat, so over hundreds of steps the readings fall on
different operations, and a least-squares fit separates them. A counter is fitted to the share of
each operation between two readings; a sampled rate is fitted to the operations within the averaging
time of the sensor, which is estimated, too. Every row states its method, how many readings fell
inside the operation, and the standard error of its power.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from workloads.protocol.telemetry import (
    BUSY,
    CLOCK,
    CORE,
    ENERGY,
    GPU_BUSY,
    GPU_CLOCK,
    MEMORY,
    RAIL,
    CumulativeSeries,
    SampledSeries,
    Series,
    Telemetry,
)

RESOLVING = (ENERGY, BUSY, GPU_BUSY)  # the first of them that shows an operation names its method
GROUP_SHARE = 0.005  # operations with a smaller share of a step are fitted together
PERIODS_MIN = 2.0  # sampling periods within an operation that is resolved by its readings
INTERVALS_MIN, INTERVALS_PER_OP = 8, 8
READINGS_MIN = 3  # inside an operation that is resolved by them
INSTANT_NS = 1000.0  # a sample counts for the operation that runs when it is taken
ERROR_MAX = 0.25  # of the mean rate of the step; a less certain value is not given
DISTINCT = 0.95  # a fit leaves less than this share of the variance, or it shows nothing
SCATTER_MIN = 0.5  # of the mean rate: how much operations differ from each other at least
WHOLLY = 0.98  # share of a reading's time that has to lie within (traced) steps
AVERAGING_PERIODS = (0.0, 0.25, 0.5, 1.0, 2.0)  # tried averaging times of a sensor
FIT_ROUNDS = 4
EXACT_VARIANCE = 0.9

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
# start and step length in ns, number of steps, shares of the operations, 1 if traced
Piece = tuple[float, float, int, Array, float]


class OpMethod(StrEnum):
    """How the sensors were attributed to an operation."""

    READINGS = "readings"  # the operation lasts for several sampling periods
    REGRESSION = "regression"  # separated by a fit over many steps
    GROUP = "group"  # too short to be separated from its neighbours: has their common value
    NONE = "none"  # no sensor, or too few readings


@dataclass(frozen=True)
class OpRow:
    """Means of an operation over a run; None where nothing was sampled."""

    name: str
    kind: str
    steps: int  # traced steps
    ms: float
    share: float
    readings: int  # that fell inside the operation, in all steps of the run
    method: OpMethod
    energy_mj: float | None
    power_w: float | None
    power_error_w: float | None  # standard error
    util_pct: float | None  # of the run's cores
    core_util_pct: Mapping[int, float]
    gpu_util_pct: float | None
    clock_mhz: Mapping[int, float]
    gpu_clock_mhz: float | None
    memory_mb: float | None
    rails_w: Mapping[str, float]


def op_rows(run: Telemetry, wanted: Container[str] | None = None) -> tuple[OpRow, ...]:
    """Return one row per traced operation; of some series only, because each fit takes time."""
    if not run.spans:
        return ()
    timeline = StepTimeline.of(run)
    fits = {
        name: fit_series(timeline, series)
        for name, series in run.series.items()
        if wanted is None or name in wanted
    }
    times = next((series.t_ns for series in run.series.values()), ())
    readings = timeline.count_inside(np.asarray(times, dtype=float))
    return tuple(_row(run, timeline, fits, readings, index) for index in range(len(timeline.ops)))


@dataclass(frozen=True)
class StepTimeline:
    """When each operation ran: pieces of the run in which steps have the same length and shares."""

    ops: tuple[int, ...]  # indices of the traced operations, in the order of execution
    starts: Array  # of each piece, in ns
    step_ns: Array  # length of a step in each piece
    steps: Array  # number of steps of each piece
    shares: Array  # piece x operation; sums to at most 1
    mean_ns: Array  # per operation, over the traced steps
    traced_steps: tuple[int, ...]  # per operation
    exact: Array  # 1 for a piece that is a traced step

    @classmethod
    def of(cls, run: Telemetry) -> "StepTimeline":
        """Build the timeline from windows and traces; traced steps have their exact times."""
        by_step: dict[int, dict[int, tuple[int, int]]] = {}
        for span in run.spans:
            by_step.setdefault(span.step, {})[span.op] = (span.start_ns, span.end_ns)
        ops = tuple(sorted({span.op for span in run.spans}))
        counts = tuple(sum(op in times for times in by_step.values()) for op in ops)
        totals = np.array(
            [sum(t[op][1] - t[op][0] for t in by_step.values() if op in t) for op in ops],
            dtype=float,
        )
        mean_ns = totals / np.maximum(np.array(counts), 1)
        usual = mean_ns / max(mean_ns.sum(), 1.0)
        pieces = list(_pieces(run, by_step, ops, usual))
        return cls(
            ops,
            np.array([piece[0] for piece in pieces], dtype=float),
            np.array([piece[1] for piece in pieces], dtype=float),
            np.array([piece[2] for piece in pieces], dtype=float),
            np.array([piece[3] for piece in pieces], dtype=float).reshape(len(pieces), len(ops)),
            mean_ns,
            counts,
            np.array([piece[4] for piece in pieces], dtype=float),
        )

    @cached_property
    def _ends(self) -> Array:
        return self.starts + self.step_ns * self.steps

    @cached_property
    def _before(self) -> Array:
        """Time in each operation before each piece, with a last row for the end."""
        inside = self.shares * (self.step_ns * self.steps)[:, None]
        return np.vstack([np.zeros(len(self.ops)), np.cumsum(inside, axis=0)])

    @cached_property
    def _offsets(self) -> Array:
        """Where in a step each operation starts, as a share, per piece."""
        return np.cumsum(self.shares, axis=1) - self.shares

    @cached_property
    def resolution_ns(self) -> float:
        """How far the start of an operation in an untraced step may be off."""
        untraced = self.exact == 0
        if not untraced.any():
            return 0.0
        step_ns, steps = self.step_ns[untraced], self.steps[untraced]
        usual = float(np.median(step_ns))
        spread = float(np.std((step_ns - usual) * np.sqrt(steps))) if len(steps) > 4 else usual
        # Both ends of a piece are known, so the largest deviation is in its middle.
        drift = spread * float(np.median(np.sqrt(steps))) / 2
        return 3.0 * max(drift, 0.01 * usual)

    @property
    def span(self) -> tuple[float, float]:
        """The start of the first and the end of the last piece."""
        return (self.starts[0], self._ends[-1]) if len(self.starts) else (0.0, 0.0)

    @cached_property
    def _known_times(self) -> dict[bytes, Array]:
        """Results of time_until: the series of a run share their moments."""
        return {}

    def time_until(self, t_ns: Array) -> Array:
        """Return the ns spent in each operation before each moment: moment x operation."""
        moments = t_ns.tobytes()
        if moments not in self._known_times:
            self._known_times[moments] = self._time_until(t_ns)
        return self._known_times[moments]

    def _time_until(self, t_ns: Array) -> Array:
        index = np.clip(np.searchsorted(self.starts, t_ns, side="right") - 1, 0, None)
        inside = np.clip(t_ns - self.starts[index], 0.0, (self._ends - self.starts)[index])
        steps = inside / np.maximum(self.step_ns[index], 1.0)
        whole = np.floor(steps)
        part = np.clip((steps - whole)[:, None] - self._offsets[index], 0.0, self.shares[index])
        in_piece = (whole[:, None] * self.shares[index] + part) * self.step_ns[index][:, None]
        return self._before[index] + in_piece

    def exact_share(self, start_ns: Array, end_ns: Array) -> Array:
        """Return the share of each interval that lies within traced steps."""
        inside = np.concatenate([[0.0], np.cumsum(self.exact * self.step_ns * self.steps)])

        def until(t_ns: Array) -> Array:
            index = np.clip(np.searchsorted(self.starts, t_ns, side="right") - 1, 0, None)
            part = np.clip(t_ns - self.starts[index], 0.0, (self._ends - self.starts)[index])
            return np.asarray(inside[index] + part * self.exact[index])

        return (until(end_ns) - until(start_ns)) / np.maximum(end_ns - start_ns, 1.0)

    def count_inside(self, t_ns: Array) -> Array:
        """Return how many moments fell inside each operation."""
        if not len(self.starts):
            return np.zeros(len(self.ops))
        start, end = self.span
        moments = t_ns[(t_ns >= start) & (t_ns < end)]
        index = np.searchsorted(self.starts, moments, side="right") - 1
        inside = moments - self.starts[index]
        fraction = (inside / np.maximum(self.step_ns[index], 1.0)) % 1.0
        offsets, shares = self._offsets[index], self.shares[index]
        hit = (fraction[:, None] >= offsets) & (fraction[:, None] < offsets + shares)
        hit &= (moments < self._ends[index])[:, None]
        return np.asarray(hit.sum(axis=0), dtype=float)


def _pieces(
    run: Telemetry,
    by_step: Mapping[int, Mapping[int, tuple[int, int]]],
    ops: Sequence[int],
    usual: Array,
) -> "list[Piece]":
    """Split windows at their traced steps."""
    pieces: list[Piece] = []
    windows = run.windows
    for first, count, start, length in zip(
        windows.first, windows.n, windows.t_ns, windows.ns, strict=True
    ):
        moment, step = float(start), first
        for traced in sorted(step for step in by_step if first <= step < first + count):
            times = by_step[traced]
            begin = min(t for t, _ in times.values())
            end = max(t for _, t in times.values())
            if begin < moment or end > start + length:
                continue  # the clock of a trace never leaves its window
            if traced > step:
                pieces.append(
                    (moment, (begin - moment) / (traced - step), traced - step, usual, 0.0)
                )
            shares = np.array([times[op][1] - times[op][0] if op in times else 0 for op in ops])
            pieces.append((begin, float(end - begin), 1, shares / max(end - begin, 1), 1.0))
            moment, step = float(end), traced + 1
        rest = first + count - step
        if rest > 0 and start + length > moment:
            pieces.append((moment, (start + length - moment) / rest, rest, usual, 0.0))
    return pieces


@dataclass(frozen=True)
class SeriesFit:
    """The rate of a quantity during each operation, with standard errors; NaN where unknown."""

    rate: Array
    error: Array
    method: tuple[OpMethod, ...]


def fit_series(timeline: StepTimeline, series: Series) -> SeriesFit:
    """Attribute a series to the operations of a timeline."""
    fit = _fit_groups(timeline, series)
    if len(series.t_ns) < INTERVALS_MIN or not len(timeline.starts):
        return fit
    # What is too even for a fit, or too long for one, is still seen by the readings inside.
    long = timeline.mean_ns >= PERIODS_MIN * float(np.median(np.diff(series.t_ns)))
    missing = [op for op in np.flatnonzero(long) if fit.method[op] is not OpMethod.READINGS]
    if not missing:
        return fit
    rate, error, method = fit.rate.copy(), fit.error.copy(), list(fit.method)
    rates, shares = _readings(timeline, series)
    for op in missing:
        inside = rates[shares[:, op] > WHOLLY]
        if len(inside) >= READINGS_MIN:
            rate[op], method[op] = inside.mean(), OpMethod.READINGS
            error[op] = inside.std(ddof=1) / len(inside) ** 0.5
    return SeriesFit(rate, error, tuple(method))


def _readings(timeline: StepTimeline, series: Series) -> tuple[Array, Array]:
    """Return the rate at each reading, and the share of each operation in what it has seen."""
    if isinstance(series, CumulativeSeries):
        t_ns, total = _changes(series)
        lengths = np.maximum(np.diff(t_ns), 1.0)
        spent = np.diff(timeline.time_until(t_ns), axis=0) / lengths[:, None]
        return np.diff(total) / lengths * 1e9, spent
    moments = np.asarray(series.t_ns, dtype=float)
    spent = timeline.time_until(moments) - timeline.time_until(moments - INSTANT_NS)
    return np.asarray(series.rate, dtype=float), spent / INSTANT_NS


def _fit_groups(timeline: StepTimeline, series: Series) -> SeriesFit:
    """Fit the rates of groups of operations that are long enough to be told apart."""
    count = len(timeline.ops)
    nothing = SeriesFit(np.full(count, np.nan), np.full(count, np.nan), (OpMethod.NONE,) * count)
    if len(series.t_ns) < INTERVALS_MIN or not len(timeline.starts):
        return nothing
    shortest_ns = GROUP_SHARE * float(timeline.mean_ns.sum())
    fine = _groups(timeline, shortest_ns)
    coarse = _groups(timeline, max(timeline.resolution_ns, shortest_ns))
    # The operations of traced steps have exact times. In other steps they are interpolated, so only
    # groups of them can be told apart. A sensor that averages over more than a traced step is not
    # explained by the readings within traced steps: then all readings explain it better.
    exact = _fit(timeline, fine, series, exact_only=True)
    every = _fit(timeline, coarse, series, exact_only=False)
    resolution_ns = 2 * max(timeline.resolution_ns, shortest_ns)
    while exact is None and every is None and max(coarse) > 0:  # too few readings: larger groups
        coarse = _groups(timeline, resolution_ns)
        every = _fit(timeline, coarse, series, exact_only=False)
        resolution_ns *= 2
    groups, fit = fine, exact
    if exact is None or (every is not None and every.variance < EXACT_VARIANCE * exact.variance):
        groups, fit = coarse, every
    if fit is None:
        return nothing
    return SeriesFit(fit.rate[groups], fit.error[groups], _methods(timeline, groups, series, fit))


def _fit(
    timeline: StepTimeline, groups: Sequence[int], series: Series, exact_only: bool
) -> "GroupFit | None":
    if isinstance(series, CumulativeSeries):
        return _fit_counter(timeline, groups, series, exact_only)
    period_ns = float(np.median(np.diff(series.t_ns)))
    best: GroupFit | None = None
    for periods in AVERAGING_PERIODS:
        fit = _fit_rates(timeline, groups, series, periods * period_ns, exact_only)
        if fit is not None and (best is None or fit.variance < 0.98 * best.variance):
            best = fit
    return best


class GroupFit(NamedTuple):
    """Rates of groups of operations with standard errors, and the variance that is left."""

    rate: Array
    error: Array
    variance: float
    distinct: bool = False  # whether the readings depend on the operation at all


def _methods(
    timeline: StepTimeline, groups: Sequence[int], series: Series, fit: GroupFit
) -> tuple[OpMethod, ...]:
    long = timeline.mean_ns >= PERIODS_MIN * float(np.median(np.diff(series.t_ns)))
    sizes = np.bincount(groups)

    def method(op: int, group: int) -> OpMethod:
        if np.isnan(fit.rate[group]):
            return OpMethod.NONE
        if sizes[group] > 1 or not fit.distinct:
            return OpMethod.GROUP
        return OpMethod.READINGS if long[op] else OpMethod.REGRESSION

    return tuple(method(op, group) for op, group in enumerate(groups))


def _groups(timeline: StepTimeline, resolution_ns: float) -> list[int]:
    """Number the groups of consecutive operations that are long enough to be distinguished."""
    groups: list[int] = []
    number, length = 0, 0.0
    for op, mean_ns in enumerate(timeline.mean_ns):
        groups.append(number)
        length += float(mean_ns)
        next_is_long = op + 1 < len(timeline.mean_ns) and timeline.mean_ns[op + 1] >= resolution_ns
        if length >= resolution_ns or next_is_long:
            number, length = number + 1, 0.0
    if 0 < length < resolution_ns and number:  # the last ones join the group before them
        groups = [min(group, number - 1) for group in groups]
    return groups


def _by_group(times: Array, groups: Sequence[int]) -> Array:
    """Add the columns of the operations of each group."""
    starts = np.searchsorted(groups, range(groups[-1] + 1))  # groups are consecutive operations
    return np.asarray(np.add.reduceat(times, starts, axis=1))


def _fit_counter(
    timeline: StepTimeline, groups: Sequence[int], series: CumulativeSeries, exact_only: bool
) -> GroupFit | None:
    """Fit the increase between two readings to the share of each operation in that time."""
    t_ns, total = _changes(series)
    start, end = timeline.span
    keep = (t_ns >= start) & (t_ns <= end)
    t_ns, total = t_ns[keep], total[keep]
    if len(t_ns) < INTERVALS_MIN:
        return None
    lengths = np.diff(t_ns)
    shares = np.diff(_by_group(timeline.time_until(t_ns), groups), axis=0) / lengths[:, None]
    rates = np.diff(total) / lengths * 1e9
    weights = lengths
    if exact_only:
        weights = lengths * (timeline.exact_share(t_ns[:-1], t_ns[1:]) > WHOLLY)
    return _solve(shares, rates, weights)


def _changes(series: CumulativeSeries) -> tuple[Array, Array]:
    """Return the moments at which a counter had grown: it may be updated less often than read."""
    t_ns = np.asarray(series.t_ns, dtype=float)
    total = np.asarray(series.total, dtype=float)
    grew = np.concatenate([[True], np.diff(total) > 0])
    # A quantity that rests, such as the busy time of an idle core, is not a slow counter.
    return (t_ns[grew], total[grew]) if grew.sum() > len(t_ns) / 4 else (t_ns, total)


def _fit_rates(
    timeline: StepTimeline,
    groups: Sequence[int],
    series: SampledSeries,
    averaging_ns: float,
    exact_only: bool,
) -> GroupFit | None:
    """Fit samples of a rate to the operations within the averaging time before each sample."""
    start, end = timeline.span
    t_ns, rates = np.asarray(series.t_ns, dtype=float), np.asarray(series.rate, dtype=float)
    width = max(averaging_ns, INSTANT_NS)
    keep = (t_ns - width >= start) & (t_ns <= end)
    if keep.sum() < INTERVALS_MIN:
        return None
    moments = t_ns[keep]
    spent = timeline.time_until(moments) - timeline.time_until(moments - width)
    weights = np.ones(len(moments))
    if exact_only:
        weights *= timeline.exact_share(moments - width, moments) > WHOLLY
    return _solve(_by_group(spent / width, groups), rates[keep], weights)


def _solve(shares: Array, rates: Array, weights: Array) -> GroupFit | None:
    """Solve rates = shares x rate of each group, by ridge regression."""
    count = shares.shape[1]
    # Readings between two windows belong to no operation.
    usable = (shares.sum(axis=1) > WHOLLY) & (weights > 0)
    shares, rates, weights = shares[usable], rates[usable], weights[usable]
    if len(rates) < max(INTERVALS_MIN, INTERVALS_PER_OP * count):
        return None
    mean = float(np.average(rates, weights=weights))
    scale = np.sqrt(weights / weights.mean())[:, None]
    matrix, target = shares * scale, (rates - mean) * scale[:, 0]
    normal, moment = matrix.T @ matrix, matrix.T @ target
    # Rates of operations scatter around that of the step; how far, and how noisy the readings are,
    # is estimated from the readings. What they do not determine stays at the mean of the step.
    penalty = penalty_min = 1e-9 * float(np.trace(normal)) / count
    for _ in range(FIT_ROUNDS):
        inverse = np.linalg.inv(normal + penalty * np.eye(count))
        solution = inverse @ moment
        residual = target - matrix @ solution
        variance = float(residual @ residual) / max(len(target) - count, 1)
        scatter = float(np.mean(solution**2 + np.diag(inverse) * variance))
        # Readings without any noise, such as the load of a simulated GPU, would need none.
        penalty = max(variance / max(scatter, (SCATTER_MIN * mean) ** 2, 1e-300), penalty_min)
    constant = float(target @ target) / max(len(target) - 1, 1)
    if variance > DISTINCT * constant:
        # The readings do not depend on the operation: all are alike, or the sensor averages over
        # more than a step. Either way the mean of the step is all that is known.
        error = (constant / len(target)) ** 0.5
        return GroupFit(np.full(count, mean), np.full(count, error), constant)
    errors = np.sqrt(np.maximum(np.diag(inverse) * variance, 0.0))
    solution = np.where(errors > ERROR_MAX * abs(mean), np.nan, solution + mean)
    return GroupFit(solution, errors, variance, distinct=True)


def _row(
    run: Telemetry,
    timeline: StepTimeline,
    fits: Mapping[str, SeriesFit],
    readings: Array,
    index: int,
) -> OpRow:
    op = timeline.ops[index]
    name, kind = run.ops[op] if op < len(run.ops) else (f"operation {op}", "")
    mean_ns = float(timeline.mean_ns[index])

    def rate(series: str) -> float | None:
        fit = fits.get(series)
        value = float(fit.rate[index]) if fit is not None else np.nan
        return None if np.isnan(value) else max(value, 0.0)

    def rates(prefix: str) -> dict[str, float]:
        values = {s.removeprefix(prefix): rate(s) for s in fits if s.startswith(prefix)}
        return {key: value for key, value in values.items() if value is not None}

    power = fits.get(ENERGY)
    methods = [fits[s].method[index] for s in (*RESOLVING, *fits) if s in fits]
    method = next((known for known in methods if known is not OpMethod.NONE), OpMethod.NONE)
    power_w, busy, gpu = rate(ENERGY), rate(BUSY), rate(GPU_BUSY)
    gpu_khz = rate(GPU_CLOCK)
    return OpRow(
        name=name,
        kind=kind,
        steps=timeline.traced_steps[index],
        ms=mean_ns / 1e6,
        share=mean_ns / max(float(timeline.mean_ns.sum()), 1.0),
        readings=int(readings[index]),
        method=method,
        energy_mj=None if power_w is None else power_w * mean_ns / 1e6,
        power_w=power_w,
        power_error_w=None if power is None or power_w is None else float(power.error[index]),
        # The kernel counts in ticks of 10 ms, so a busy core may exceed 100 % slightly.
        util_pct=None if busy is None else min(100.0, 100 * busy / run.cores),
        core_util_pct={int(cpu): min(100.0, 100 * value) for cpu, value in rates(CORE).items()},
        gpu_util_pct=None if gpu is None else min(100.0, 100 * gpu),
        clock_mhz={int(policy): khz / 1000 for policy, khz in rates(CLOCK).items()},
        gpu_clock_mhz=None if gpu_khz is None else gpu_khz / 1000,
        memory_mb=rate(MEMORY),
        rails_w=rates(RAIL),
    )
