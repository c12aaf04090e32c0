"""Pauses sweeps that have used up their budget."""

from sqlalchemy import func, select

from orchestrator.decisions.budget import exceeded_budget
from orchestrator.decisions.states import PausedBy, RunState, SweepState
from orchestrator.store.database import Database
from orchestrator.store.operator_change import Actor, OperatorChange
from orchestrator.store.sweep_actions import pause
from orchestrator.store.tables import run, sweep
from orchestrator.sweepfile.policy import Policy

BUDGET = Actor("budget")


def pause_overspent(db: Database, now: float) -> list[OperatorChange]:
    """Pause every active sweep whose budget is used up."""
    started = (sweep.c.state == SweepState.ACTIVE, sweep.c.started_at_s.is_not(None))
    with db.read() as connection:
        rows = connection.execute(
            select(sweep.c.id, sweep.c.policy, sweep.c.started_at_s).where(*started)
        ).all()
        readable = [row for row in rows if isinstance(row.policy, dict)]
        limited = {row.id: row for row in readable if row.policy.get("budget")}
        counts = connection.execute(
            select(run.c.sweep, run.c.state, func.count())
            .where(run.c.sweep.in_(limited))
            .group_by(run.c.sweep, run.c.state)
        ).all()
    count_of = {(name, state): count for name, state, count in counts}
    changes = []
    for name, row in limited.items():
        if not count_of.get((name, RunState.QUEUED)):
            continue
        failed = count_of.get((name, RunState.FAILED), 0)
        ended = failed + count_of.get((name, RunState.DONE), 0)
        budget = Policy.model_validate(row.policy).budget
        planned = sum(count for (sweep_id, _), count in count_of.items() if sweep_id == name)
        exceeded = exceeded_budget(budget, now - row.started_at_s, failed, ended, planned)
        if exceeded is not None:
            reason = f"budget used up: {exceeded}"
            changes.append(pause(db, name, BUDGET, reason, PausedBy.BUDGET))
    return changes
