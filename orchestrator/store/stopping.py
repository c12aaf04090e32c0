"""Stop when it is known: after a report its trial is judged, and spared what it needs no more."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from orchestrator.nouns import RunState
from orchestrator.plan.policy import Policy, StopRule
from orchestrator.plan.stopping import Decision, Stop, decide
from orchestrator.store import tables
from orchestrator.store.tables import ACCEPTED, report, run, sweep, trial
from workloads.condition import Condition
from workloads.measure import Standing
from workloads.messages import Event


def policies(connection: Connection, sweeps: Collection[str]) -> dict[str, Policy]:
    """How each sweep wants to be carried out."""
    rows = connection.execute(select(sweep.c.id, sweep.c.policy).where(sweep.c.id.in_(sweeps)))
    return {row.id: Policy.model_validate(row.policy) for row in rows}


def spare_known(
    connection: Connection, reported: Collection[Row[Any]], policy_of: Mapping[str, Policy]
) -> list[Event]:
    """Judge trials that have a new accepted report (a run's row each); tell which are known now."""
    events = []
    for row in reported:
        policy = policy_of[row.sweep]
        if policy.stop is None or _is_control(row, policy):
            continue
        found = decide(_values(connection, row, policy.stop), policy.stop)
        if found.stop is not None and (event := _stop(connection, row, found.stop, found)):
            events.append(event)
            _spare_controls(connection, row, policy)
    return events


def _spare_controls(connection: Connection, row: Row[Any], policy: Policy) -> None:
    """Without others beside it a control says nothing: it ends with the last trial of a phone."""
    control = policy.baseline
    if control is None:
        return
    same = (trial.c.sweep == row.sweep, trial.c.phone == row.phone)
    key = (trial.c.case_digest == control.case_digest) & (
        trial.c.condition_digest == control.condition_digest
    )
    left = (run.c.sweep == row.sweep, run.c.phone == row.phone)
    open_ = run.c.state.in_((RunState.QUEUED, RunState.LEASED))
    others = select(trial.c.id).where(*same, ~key)
    busy = select(run.c.id).where(*left, open_, run.c.trial.in_(others)).limit(1)
    if connection.execute(busy).first() is None:
        controls = select(trial.c.id).where(*same, key)
        note = "the trials that it was the control of are known"
        connection.execute(
            update(run)
            .where(*left, run.c.state == RunState.QUEUED, run.c.trial.in_(controls))
            .values(state=RunState.SPARED, note=note)
        )


def _is_control(row: Row[Any], policy: Policy) -> bool:
    """Whether the trial is one that the others are held against: it runs in every block."""
    control = policy.baseline
    return control is not None and (
        (row.case_digest, row.condition_digest) == (control.case_digest, control.condition_digest)
    )


def _values(connection: Connection, row: Row[Any], rule: StopRule) -> list[float]:
    """The trial's figure of every valid run, in the order of its repeats."""
    metric = tables.metric
    wanted = rule.metric or Condition.model_validate(row.condition).headline
    same = (metric.c.trial == report.c.trial) & (metric.c.repeat == report.c.repeat)
    question = (
        select(metric.c.value)
        .join(report, same)
        .where(metric.c.trial == row.trial, metric.c.name == wanted)
        .where(report.c.status == ACCEPTED, report.c.standing == Standing.VALID)
        .order_by(metric.c.repeat)
    )
    return list(connection.execute(question).scalars())


def _stop(connection: Connection, row: Row[Any], rule: Stop, found: Decision) -> Event | None:
    """Write down which rule stopped a trial, and spare it its other runs; None if it was known."""
    why = f"{rule}: median ± {found.half_width_rel:.1%} after {found.n} runs"
    fresh = (trial.c.id == row.trial, trial.c.stopped == "")
    marked = update(trial).where(*fresh).values(stopped=rule, stopped_why=why)
    if not connection.execute(marked).rowcount:
        return None
    waiting = (run.c.trial == row.trial, run.c.state == RunState.QUEUED)
    spared = connection.execute(
        update(run).where(*waiting).values(state=RunState.SPARED, note=why)
    ).rowcount
    text = f"{row.trial} is known ({why}); {spared} runs are spared"
    return Event(at=datetime.now(UTC), kind="known", text=text, sweep=row.sweep, phone=row.phone)
