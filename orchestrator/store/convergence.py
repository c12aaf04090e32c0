"""Early stopping: after an accepted report, skip the runs that a trial no longer needs."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from orchestrator.decisions.median_interval import Interval
from orchestrator.decisions.states import ReportStatus, RunState
from orchestrator.decisions.stop_rule import StopCause, decide_stop
from orchestrator.store.metric_codes import name_code
from orchestrator.store.tables import metric_value, report, run, trial
from orchestrator.store.trial_queries import cell_of
from orchestrator.sweepfile.policy import Policy, StopRule
from workloads.protocol.messages import Event, EventKind
from workloads.protocol.verdict import Validity

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
        select(metric_value.c.value)
        .join(run, run.c.id == metric_value.c.run)
        .join(report, same)
        .where(run.c.trial == row.trial, metric_value.c.name == name_code(name))
        .where(report.c.status == ReportStatus.ACCEPTED, report.c.validity == Validity.VALID)
        .order_by(run.c.repeat)
    )
    return list(connection.execute(query).scalars())


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
