"""Removes sweeps, phones and old data from the store; pins protect sweeps from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, delete, exists, func, select, update

from orchestrator.planning.states import RunState
from orchestrator.store.audit_log import AuditEntry, record_audit
from orchestrator.store.database import Database, count_rows
from orchestrator.store.operator_change import (
    Actor,
    ChangeText,
    OperatorChange,
    PlannedChange,
    execute_change,
)
from orchestrator.store.tables import (
    chunk,
    command_result,
    crash,
    metric_value,
    phone,
    report,
    run,
    sweep,
    trial,
)
from workloads.protocol.faults import InvalidRequest
from workloads.units import count_text

UNFINISHED = (RunState.QUEUED, RunState.LEASED)
UNNAMED_DAYS = 7  # a report may be that much later than its telemetry


@dataclass(frozen=True)
class PrunedData:
    """What a pruning removed, or would remove."""

    sweeps: tuple[str, ...]
    blobs: int  # telemetry of runs, outside of these sweeps
    blob_bytes: int


def set_pinned(db: Database, sweep_id: str, pinned: bool, actor: Actor) -> OperatorChange:
    """Protect a sweep from being removed or pruned, or end its protection."""
    verb, undo = ("pin", " --off") if pinned else ("unpin", "")

    def plan(connection: Connection) -> PlannedChange:
        same = sweep.c.id == sweep_id
        before = connection.execute(select(sweep.c.pinned).where(same)).scalar_one()
        return PlannedChange(
            {"pinned": bool(before)},
            {"pinned": pinned},
            ChangeText(
                f"{verb}ned; 'farm store prune' {'keeps' if pinned else 'may remove'} it",
                "is already pinned" if pinned else "is not pinned",
                f"farm sweep keep {sweep_id}{undo}",
            ),
            lambda: connection.execute(update(sweep).where(same).values(pinned=pinned)),
        )

    return execute_change(db, verb, sweep_id, actor, plan)


def remove_sweep(db: Database, sweep_id: str, actor: Actor) -> OperatorChange:
    """Remove a sweep that has ended, with all its results."""

    def plan(connection: Connection) -> PlannedChange:
        pinned = connection.execute(select(sweep.c.pinned).where(sweep.c.id == sweep_id)).scalar()
        left = count_rows(connection, run, run.c.sweep == sweep_id, run.c.state.in_(UNFINISHED))
        if pinned:
            raise InvalidRequest(f"{sweep_id} is pinned; first: farm sweep keep {sweep_id} --off")
        if left:
            runs_left = count_text(left, "run")
            raise InvalidRequest(
                f"{sweep_id} has {runs_left} left; first: farm sweep cancel {sweep_id}"
            )
        runs = count_rows(connection, run, run.c.sweep == sweep_id)
        reports = count_rows(connection, report, report.c.trial.in_(_trials([sweep_id])))
        counts = f"{count_text(runs, 'run')} and {count_text(reports, 'report')}"
        return PlannedChange(
            {"runs": runs, "reports": reports, "stored": True},
            {"runs": 0, "reports": 0, "stored": False},
            ChangeText(f"removed with {counts}", "is not stored", None),
            lambda: _remove(connection, [sweep_id]),
        )

    return execute_change(db, "remove", sweep_id, actor, plan)


def remove_phone(db: Database, serial: str, actor: Actor) -> OperatorChange:
    """Remove a phone without trials; a phone that is connected is announced again."""

    def plan(connection: Connection) -> PlannedChange:
        of_phone = select(trial.c.sweep).where(trial.c.phone == serial).distinct()
        sweeps = sorted(connection.execute(of_phone).scalars())
        if sweeps:
            shown = ", ".join(sweeps[:3]) + (", ..." if len(sweeps) > 3 else "")
            raise InvalidRequest(f"{serial} has trials of {shown}; first remove these sweeps")

        def apply() -> None:
            connection.execute(delete(command_result).where(command_result.c.phone == serial))
            connection.execute(delete(phone).where(phone.c.serial == serial))

        return PlannedChange(
            {"stored": True}, {"stored": False}, ChangeText("removed", "is not stored", None), apply
        )

    return execute_change(db, "remove", serial, actor, plan)


def prune(
    db: Database, telemetry_days: float, metrics_days: float, actor: Actor, now: datetime
) -> PrunedData:
    """Remove ended sweeps and telemetry that are older than these days (0: keep them)."""
    with db.write() as connection:
        sweeps = _ended_before(connection, now, metrics_days)
        if not actor.dry_run:
            _remove(connection, sweeps)
        old = set(_ended_before(connection, now, telemetry_days)) - set(sweeps)
        blobs, size = _telemetry_of(connection, sorted(old))
        if not actor.dry_run:
            connection.execute(delete(chunk).where(*_is_unnamed(now)))
        if not actor.dry_run and (sweeps or blobs):
            connection.execute(delete(chunk).where(chunk.c.digest.in_(_digests(sorted(old)))))
            removed = {"sweeps": sweeps, "telemetry": blobs, "bytes": size}
            record_audit(
                connection, AuditEntry(now, actor.name, "prune", "store", removed, {}, None)
            )
    return PrunedData(tuple(sweeps), blobs, size)


def _is_unnamed(now: datetime) -> tuple[Any, ...]:
    """Chunks that came long ago, and that no report and no result of a command names."""
    named = select(report.c.telemetry).where(report.c.telemetry.is_not(None))
    files = select(command_result.c.file).where(command_result.c.file.is_not(None))
    limit = (now - timedelta(days=UNNAMED_DAYS)).timestamp()
    old = chunk.c.received_at_s < limit
    return (old, chunk.c.digest.not_in(named), chunk.c.digest.not_in(files))


def _ended_before(connection: Connection, now: datetime, days: float) -> list[str]:
    """Return sweeps that are not pinned, have no run left, and got no report for some days."""
    if not days:
        return []
    limit = now.astimezone(UTC) - timedelta(days=days)
    of_sweep = (trial.c.sweep == sweep.c.id) & (report.c.trial == trial.c.id)
    left = exists().where(run.c.sweep == sweep.c.id, run.c.state.in_(UNFINISHED))
    newer = exists().where(of_sweep, report.c.received_at >= limit)
    query = select(sweep.c.id).where(~sweep.c.pinned, sweep.c.created_at < limit, ~left, ~newer)
    return sorted(connection.execute(query).scalars())


def _telemetry_of(connection: Connection, sweeps: Sequence[str]) -> tuple[int, int]:
    """Count the telemetry blobs of sweeps, and their bytes."""
    counts = select(
        func.count(chunk.c.digest.distinct()), func.coalesce(func.sum(func.length(chunk.c.data)), 0)
    )
    blobs, size = connection.execute(counts.where(chunk.c.digest.in_(_digests(sweeps)))).one()
    return blobs, size


def _remove(connection: Connection, sweeps: Sequence[str]) -> None:
    """Delete all rows of sweeps, dependent ones first."""
    trials = _trials(sweeps)
    connection.execute(delete(chunk).where(chunk.c.digest.in_(_digests(sweeps))))
    runs = select(run.c.id).where(run.c.sweep.in_(sweeps))
    connection.execute(delete(metric_value).where(metric_value.c.run.in_(runs)))
    for table in (report, crash, run):
        connection.execute(delete(table).where(table.c.trial.in_(trials)))
    connection.execute(delete(trial).where(trial.c.sweep.in_(sweeps)))
    connection.execute(delete(sweep).where(sweep.c.id.in_(sweeps)))


def _trials(sweeps: Sequence[str]) -> Select[Any]:
    return select(trial.c.id).where(trial.c.sweep.in_(sweeps))


def _digests(sweeps: Sequence[str]) -> Select[Any]:
    """Blobs that reports of these sweeps name, and no report of another sweep."""
    of_others = select(report.c.telemetry).where(
        report.c.trial.not_in(_trials(sweeps)), report.c.telemetry.is_not(None)
    )
    named = select(report.c.telemetry).where(report.c.trial.in_(_trials(sweeps)))
    return named.where(report.c.telemetry.not_in(of_others))
