"""Rules of the verdict on the evidence: time stamps, readings, processor time, power. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from math import gcd
from statistics import fmean, median

from agent.collect.cpu_usage import (
    CYCLES,
    FIRST_THREAD,
    OWN_STAT,
    STAT,
    TICKS_PER_SECOND,
    core_ticks,
    parse_scheduled_ns,
)
from agent.collect.thread_affinity import TASKS
from agent.judge.run_observation import RunObservation
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import Source
from workloads.protocol.verdict import Reason, ReasonCode
from workloads.text import safe_text

WINDOWS_MIN = 15
TICK_MAX = 0.01  # of a window
READINGS_MIN, SECONDS_MIN = 10, 2.0
LOST_MAX = 0.1  # of the readings
OWN_TIME_MIN = 0.96  # like the share that others may take of the run's cores
SETTLED = 0.2  # of a run; gauges filter what they show
POWER_PARTS, POWER_PARTS_MIN, POINTS_MIN = 8, 2, 40
POWER_CHANGE_MAX = 0.12


def check_time_stamps(run: RunObservation) -> Iterator[Reason]:
    """The clock of the time stamps counts much finer than a window."""
    lengths = [window.ns for window in run.output.windows]
    different = sorted(set(lengths))
    if len(lengths) < WINDOWS_MIN or len(different) < 2:
        return
    tick_ns = gcd(*(longer - shorter for shorter, longer in pairwise(different)))
    limit_ns = TICK_MAX * median(lengths)
    if tick_ns > limit_ns:
        yield Reason.suspect(
            ReasonCode.TIME_STAMPS_COARSE, tick_ms=tick_ns / 1e6, limit=limit_ns / 1e6
        )


def check_readings(run: RunObservation) -> Iterator[Reason]:
    """What the other rules rely on could be read over the whole run, and moved."""
    timed = run.readings.within(run.span)
    total = len(timed.t_ns)
    if total < READINGS_MIN:
        return
    for path in (STAT, OWN_STAT, TASKS, CYCLES, *run.probe.clock_nodes):
        column = timed.column(path)
        # An unrooted phone may hide it from every run; what was shown before the first step stays.
        if all(value is None for value in run.readings.column(path)):
            continue
        lost = sum(value is None for value in column) / total
        if path == STAT and run.span_s > SECONDS_MIN and len(set(column)) == 1:
            lost = 1.0
        if lost > LOST_MAX:
            node = safe_text(path, 100)
            yield Reason.suspect(ReasonCode.READINGS_LOST, node=node, share=lost, limit=LOST_MAX)
            return
    if run.probe.facts.rooted and timed.column(STAT) and not core_ticks(timed).row.size:
        yield Reason.suspect(ReasonCode.READINGS_LOST, node=STAT, share=1.0, limit=LOST_MAX)


def check_own_time(run: RunObservation) -> Iterator[Reason]:
    """At every moment one of the run's threads worked, unless it read a batch from storage.

    A process that is frozen, or limited to a part of the time, does not: its cores are idle. Of
    several threads the first one shows it: it takes part in every operation, and the runner reports
    how long it waited for the others.
    """
    is_unknown = run.output.device is not None or not run.claimed.cost.ops
    if is_unknown or run.claimed.source is Source.HOST:
        return
    windows = run.output.windows if run.output.input is not None else []
    reading_ns = sum(window.phases_ns[0] for window in windows if window.phases_ns)
    limit = OWN_TIME_MIN * (1 - reading_ns / 1e9 / max(run.span_s, 1e-9))
    share = min(_worked_shares(run), default=1.0)
    if share < limit:
        yield Reason.suspect(ReasonCode.CPU_TIME_LOW, share=share, limit=limit)


def _worked_shares(run: RunObservation) -> Iterator[float]:
    """The share of the time in which the process had the processor, and its first thread work."""
    timed, done = run.readings.within(run.span), run.claimed.done
    ticks = ((t_ns, ticks * 1e9 / TICKS_PER_SECOND) for t_ns, ticks in timed.series(OWN_STAT))
    scheduled = zip(timed.t_ns, timed.parsed(FIRST_THREAD, parse_scheduled_ns), strict=False)
    known = ((t_ns, float(ns)) for t_ns, ns in scheduled if ns is not None)
    process, first = _growth(list(ticks)), _growth(list(known))
    if process is not None:
        yield process
    if first is not None and done.waited_ns is not None and run.output.resume is None:
        yield first + done.waited_ns / max(done.ns, 1)


def _growth(points: Sequence[tuple[int, float]]) -> float | None:
    """By how much a counter of ns grew per ns; None with too few readings."""
    if len(points) < READINGS_MIN or points[-1][0] - points[0][0] <= SECONDS_MIN * 1e9:
        return None
    (start_ns, before), (end_ns, after) = points[0], points[-1]
    return (after - before) / (end_ns - start_ns)


def check_power(run: RunObservation) -> Iterator[Reason]:
    """The power of a cold run did not change while the work was constant."""
    start_ns, end_ns = run.measured_span
    settled_ns = start_ns + round(SETTLED * (end_ns - start_ns))
    watts = [power_w for t_ns, power_w in run.power.points if settled_ns <= t_ns <= end_ns]
    is_expected = run.condition.protocol is not Protocol.COLD or run.has_reported_limit
    if is_expected or run.power.is_slow or len(watts) < POINTS_MIN:
        return
    edges = [len(watts) * part // POWER_PARTS for part in range(POWER_PARTS + 1)]
    means = [fmean(watts[first:end]) for first, end in pairwise(edges)]
    usual_w = median(means)
    changes = [mean / usual_w - 1 for mean in means]
    for direction, parts in groupby(range(POWER_PARTS), key=lambda part: _sign(changes[part])):
        stretch = list(parts)
        if direction and len(stretch) >= POWER_PARTS_MIN:
            share = (1 - SETTLED) * len(stretch) / POWER_PARTS
            at_s = (settled_ns - run.span[0]) / 1e9
            at_s += (end_ns - settled_ns) / 1e9 * stretch[0] / POWER_PARTS
            change = max((changes[part] for part in stretch), key=abs)
            limit = POWER_CHANGE_MAX
            yield Reason.suspect(
                ReasonCode.POWER_CHANGED, change=change, share=share, limit=limit, at_s=at_s
            )
            return


def _sign(change: float) -> int:
    return (change > POWER_CHANGE_MAX) - (change < -POWER_CHANGE_MAX)
