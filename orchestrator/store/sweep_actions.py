"""Operators' actions on a sweep: pause, resume, cancel, retry, set its priority."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, select, update

from orchestrator.planning.states import PausedBy, RunState, SweepState
from orchestrator.store import poison
from orchestrator.store.database import Database, count_rows
from orchestrator.store.finished_sweeps import reopen
from orchestrator.store.operator_change import (
    Actor,
    ChangeText,
    OperatorChange,
    PlannedChange,
    execute_change,
)
from orchestrator.store.tables import run, sweep, trial
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text
from workloads.units import count_text

WAITING = (RunState.QUEUED, RunState.BLOCKED)
GIVEN_UP = (RunState.FAILED, RunState.BLOCKED)


def pause(
    db: Database,
    sweep_id: str,
    actor: Actor,
    reason: str = "",
    paused_by: PausedBy = PausedBy.PERSON,
) -> OperatorChange:
    """Start no more runs of a sweep; running runs finish."""

    def plan(connection: Connection) -> PlannedChange:
        row = _sweep_row(connection, sweep_id)
        if row.state == SweepState.CANCELLED:
            raise InvalidRequest(f"{sweep_id} is cancelled; a cancelled sweep cannot be paused")
        if not _count(connection, sweep_id, (RunState.QUEUED, RunState.LEASED)):
            raise InvalidRequest(f"{sweep_id} is finished; no run of it is left to pause")
        waiting = count_text(_count(connection, sweep_id, WAITING), "run")
        stored_reason = reason or f"by {actor.name}"
        why = f": {safe_text(reason, 200)}" if reason else ""
        return PlannedChange(
            {"state": row.state},
            {"state": SweepState.PAUSED},
            ChangeText(
                f"paused with {waiting} queued; running runs finish{why}",
                "is already paused",
                f"farm sweep resume {sweep_id}",
            ),
            lambda: _set_state(connection, sweep_id, SweepState.PAUSED, stored_reason, paused_by),
            reason,
        )

    return execute_change(db, "pause", sweep_id, actor, plan)


def resume(db: Database, sweep_id: str, actor: Actor) -> OperatorChange:
    """Continue a paused or cancelled sweep; cancelled runs are queued again."""

    def plan(connection: Connection) -> PlannedChange:
        row = _sweep_row(connection, sweep_id)
        cancelled = _count(connection, sweep_id, (RunState.CANCELLED,))
        undo = "pause" if row.state == SweepState.PAUSED else "cancel"
        state = SweepState.ACTIVE if row.state == SweepState.FINISHED else row.state
        # A sweep that its budget has paused is resumed without that budget.
        over_budget = row.paused_by == PausedBy.BUDGET
        queued = f"; {count_text(cancelled, 'cancelled run')} queued again" if cancelled else ""
        budget = "; budget removed" if over_budget else ""

        def apply() -> None:
            _set_state(connection, sweep_id, SweepState.ACTIVE, "")
            if over_budget:
                policy = {**row.policy, "budget": {}}
                connection.execute(
                    update(sweep).where(sweep.c.id == sweep_id).values(policy=policy)
                )
            _requeue(connection, sweep_id, (RunState.CANCELLED,))
            connection.execute(
                update(run).where(run.c.sweep == sweep_id).values(cancel_requested=False)
            )

        return PlannedChange(
            {"state": state, "cancelled": cancelled},
            {"state": SweepState.ACTIVE, "cancelled": 0},
            ChangeText(
                f"resumed{queued}{budget}", "is already active", f"farm sweep {undo} {sweep_id}"
            ),
            apply,
        )

    return execute_change(db, "resume", sweep_id, actor, plan)


def cancel(db: Database, sweep_id: str, actor: Actor) -> OperatorChange:
    """Drop the queued runs of a sweep and stop the running runs; results are kept."""

    def plan(connection: Connection) -> PlannedChange:
        row = _sweep_row(connection, sweep_id)
        waiting = _count(connection, sweep_id, WAITING)
        to_stop = (run.c.sweep == sweep_id, run.c.state == RunState.LEASED, ~run.c.cancel_requested)
        running = count_rows(connection, run, *to_stop)
        if row.state != SweepState.CANCELLED and not waiting + running:
            raise InvalidRequest(f"{sweep_id} is finished; no run of it is left to cancel")
        dropped = f"; {count_text(waiting, 'queued run')} dropped" if waiting else ""
        stopped = f"; {count_text(running, 'running run')} will be stopped" if running else ""

        def apply() -> None:
            _set_state(connection, sweep_id, SweepState.CANCELLED, f"by {actor.name}")
            connection.execute(
                update(run)
                .where(run.c.sweep == sweep_id, run.c.state.in_(WAITING))
                .values(state=RunState.CANCELLED, note=f"cancelled by {actor.name}")
            )
            connection.execute(update(run).where(*to_stop).values(cancel_requested=True))

        return PlannedChange(
            {"state": row.state, "waiting": waiting, "running": running},
            {"state": SweepState.CANCELLED, "waiting": 0, "running": 0},
            ChangeText(
                f"cancelled{dropped}{stopped}",
                "is already cancelled",
                f"farm sweep resume {sweep_id}",
            ),
            apply,
        )

    return execute_change(db, "cancel", sweep_id, actor, plan)


def retry(db: Database, sweep_id: str, actor: Actor) -> OperatorChange:
    """Queue the failed and blocked runs of a sweep again; done runs stay done."""

    def plan(connection: Connection) -> PlannedChange:
        row = _sweep_row(connection, sweep_id)
        if row.state == SweepState.CANCELLED:
            raise InvalidRequest(f"{sweep_id} is cancelled; first: farm sweep resume {sweep_id}")
        counts = {str(state): _count(connection, sweep_id, (state,)) for state in sorted(GIVEN_UP)}
        shown = " and ".join(f"{count} {state}" for state, count in counts.items() if count)

        def apply() -> None:
            reopen(connection, sweep_id)
            poison.clear_for_sweep(connection, sweep_id)
            _requeue(connection, sweep_id, GIVEN_UP)

        return PlannedChange(
            counts,
            dict.fromkeys(counts, 0),
            ChangeText(
                f"{shown} run{'' if sum(counts.values()) == 1 else 's'} queued again",
                "has no failed or blocked runs",
                None,
            ),
            apply,
        )

    return execute_change(db, "retry", sweep_id, actor, plan)


def set_priority(db: Database, sweep_id: str, actor: Actor, priority: int) -> OperatorChange:
    """Give a sweep a larger or smaller share of the lab."""

    def plan(connection: Connection) -> PlannedChange:
        row = _sweep_row(connection, sweep_id)
        values = {"priority": priority, "policy": {**row.policy, "priority": priority}}
        return PlannedChange(
            {"priority": row.priority},
            {"priority": priority},
            ChangeText(
                f"priority changed from {row.priority} to {priority}",
                f"already has priority {priority}",
                f"farm sweep priority {sweep_id} {row.priority}",
            ),
            lambda: connection.execute(
                update(sweep).where(sweep.c.id == sweep_id).values(**values)
            ),
        )

    return execute_change(db, "set-priority", sweep_id, actor, plan)


def _sweep_row(connection: Connection, sweep_id: str) -> Any:
    row = connection.execute(select(sweep).where(sweep.c.id == sweep_id)).first()
    if row is None:
        raise InvalidRequest(f"there is no sweep '{sweep_id}'; 'farm sweep list' shows all")
    return row


def _count(connection: Connection, sweep_id: str, states: Collection[RunState]) -> int:
    return count_rows(connection, run, run.c.sweep == sweep_id, run.c.state.in_(states))


def _set_state(
    connection: Connection,
    sweep_id: str,
    state: SweepState,
    reason: str,
    paused_by: PausedBy | None = None,
) -> None:
    values = {"state": state, "state_reason": safe_text(reason, 400), "paused_by": paused_by}
    connection.execute(update(sweep).where(sweep.c.id == sweep_id).values(**values))


def _requeue(connection: Connection, sweep_id: str, states: Collection[RunState]) -> None:
    """Queue runs again with no failed tries; their attempts continue to count."""
    running = select(trial.c.id).where(trial.c.sweep == sweep_id, trial.c.stop_rule == "")
    connection.execute(
        update(run)
        .where(run.c.sweep == sweep_id, run.c.state.in_(states), run.c.trial.in_(running))
        .values(state=RunState.QUEUED, tries={}, note="", not_before=0.0, cancel_requested=False)
    )
