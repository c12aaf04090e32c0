"""Decides when a trial has enough runs: its median is known precisely enough.

The same values always give the same decision: each look of the grid uses only the first runs, so a
report that arrives late or twice changes nothing.

The interval is the one that tables and reports show. A trial whose runs drift does not stop because
it is narrow: its median depends on when the runs were made.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, select, update

from orchestrator.analysis.median_interval import Instability, Interval, median_interval
from orchestrator.planning.states import ReportStatus, RunState
from orchestrator.store.metric_codes import name_code
from orchestrator.store.metric_rows import doubted_families
from orchestrator.store.tables import metric_value, report, run, trial
from orchestrator.store.trial_queries import cell_of
from orchestrator.sweepfile.policy import Policy, StopRule
from workloads.protocol.messages import Event, EventKind
from workloads.protocol.metrics import metric_kind
from workloads.protocol.verdict import Validity


class StopCause(StrEnum):
    """Which rule ended the repeats of a trial."""

    WIDTH = "width"  # the interval is narrow enough
    N_MAX = "n_max"  # the maximum number of runs is reached
    BUDGET = "budget"  # the sweep has exceeded its budget


@dataclass(frozen=True)
class StopDecision:
    """Whether a trial stops, and the interval of its median so far."""

    cause: StopCause | None  # None: continue
    interval: Interval | None = None  # of the latest look; None before the first


def decide_stop(values: Sequence[float], rule: StopRule) -> StopDecision:
    """Judge a trial by its values, one per accepted run, in the order of its repeats."""
    latest: Interval | None = None
    for look in rule.grid:
        if look > len(values):
            return StopDecision(None, latest)
        latest = median_interval(values[:look], rule.confidence)
        is_narrow = latest.half_width_rel <= rule.half_width_rel
        if is_narrow and latest.unclear is not Instability.DRIFT:
            return StopDecision(StopCause.WIDTH, latest)
    return StopDecision(StopCause.N_MAX, latest)


_CAUSES = {
    StopCause.WIDTH: "target precision reached",
    StopCause.N_MAX: "maximum number of runs reached",
    StopCause.BUDGET: "budget used up",
}


def skip_converged(
    connection: Connection, accepted: Collection[Row[Any]], policy_of: Mapping[str, Policy]
) -> list[Event]:
    """Stop the trials of these newly accepted runs that have converged; return the events."""
    events = []
    for row in accepted:
        policy = policy_of[row.sweep]
        if policy.stop is None or _is_baseline(row, policy):
            continue
        decision = decide_stop(_valid_values(connection, row, policy.stop), policy.stop)
        if decision.cause is None or decision.interval is None:
            continue
        event = _stop_trial(connection, row, decision.cause, decision.interval)
        if event is not None:
            events.append(event)
            _skip_baseline(connection, row, policy)
    return events


def _skip_baseline(connection: Connection, row: Row[Any], policy: Policy) -> None:
    """Skip a phone's baseline runs once no other trial of the phone has runs left."""
    baseline = policy.baseline
    if baseline is None:
        return
    same_phone = (trial.c.sweep == row.sweep, trial.c.phone == row.phone)
    is_baseline = (trial.c.case_digest == baseline.case_digest) & (
        trial.c.condition_digest == baseline.condition_digest
    )
    own_runs = (run.c.sweep == row.sweep, run.c.phone == row.phone)
    unfinished = run.c.state.in_((RunState.QUEUED, RunState.LEASED))
    others = select(trial.c.id).where(*same_phone, ~is_baseline)
    left = select(run.c.id).where(*own_runs, unfinished, run.c.trial.in_(others)).limit(1)
    if connection.execute(left).first() is None:
        baselines = select(trial.c.id).where(*same_phone, is_baseline)
        note = "all other trials of this phone are finished"
        connection.execute(
            update(run)
            .where(*own_runs, run.c.state == RunState.QUEUED, run.c.trial.in_(baselines))
            .values(state=RunState.SKIPPED, note=note)
        )


def _is_baseline(row: Row[Any], policy: Policy) -> bool:
    """Return whether a run belongs to the baseline, which never stops early."""
    baseline = policy.baseline
    return baseline is not None and (
        (row.case_digest, row.condition_digest) == (baseline.case_digest, baseline.condition_digest)
    )


def _valid_values(connection: Connection, row: Row[Any], rule: StopRule) -> list[float]:
    """Return the stop rule's metric of every valid run of the trial, in the order of repeats."""
    name = rule.metric or cell_of(connection, row).headline
    same = (run.c.trial == report.c.trial) & (run.c.repeat == report.c.repeat)
    query = (
        select(metric_value.c.value, report.c.id, report.c.judged)
        .join(run, run.c.id == metric_value.c.run)
        .join(report, same)
        .where(run.c.trial == row.trial, metric_value.c.name == name_code(name))
        .where(report.c.status == ReportStatus.ACCEPTED)
        .order_by(run.c.repeat)
    )
    rows = connection.execute(query).all()
    odd = [key for _, key, validity in rows if validity != Validity.VALID]
    doubted, kind = doubted_families(connection, odd), metric_kind(name)
    return [
        value
        for value, key, _ in rows
        if kind is not None and kind.family not in doubted.get(key, ())
    ]


def _stop_trial(
    connection: Connection, row: Row[Any], cause: StopCause, interval: Interval
) -> Event | None:
    """Record why a trial stopped and skip its queued runs; None if it had stopped before."""
    precision = f"median ± {interval.half_width_rel:.1%} after {interval.n} runs"
    reason = f"{_CAUSES[cause]} ({precision})"
    running = (trial.c.id == row.trial, trial.c.stop_rule == "")
    stopped = update(trial).where(*running).values(stop_rule=cause, stop_reason=reason)
    if not connection.execute(stopped).rowcount:
        return None
    queued = (run.c.trial == row.trial, run.c.state == RunState.QUEUED)
    skipped = connection.execute(
        update(run).where(*queued).values(state=RunState.SKIPPED, note=reason)
    ).rowcount
    return Event(
        occurred_at=datetime.now(UTC),
        kind=EventKind.CONVERGED,
        text=f"{row.trial}: {reason}; {skipped} remaining runs skipped",
        sweep=row.sweep,
        phone=row.phone,
    )
