"""Budgets: a sweep that has used up what it may use is paused, and that is written down."""

from sqlalchemy import func, select

from orchestrator.nouns import RunState, SweepState
from orchestrator.plan.policy import Policy
from orchestrator.plan.spending import overspent
from orchestrator.store import control
from orchestrator.store.control import By, Change
from orchestrator.store.database import Database
from orchestrator.store.tables import run, sweep

BUDGET = By("its budget")
_ENDED = (RunState.DONE, RunState.FAILED)


def pause_overspent(db: Database, now: float) -> list[Change]:
    """Pause every active sweep whose budget is used up."""
    begun = (sweep.c.state == SweepState.ACTIVE, sweep.c.begun_at.is_not(None))
    with db.read() as connection:
        rows = connection.execute(
            select(sweep.c.id, sweep.c.policy, sweep.c.begun_at).where(*begun)
        ).all()
        limited = {row.id: row for row in rows if row.policy.get("budget")}
        counts = connection.execute(
            select(run.c.sweep, run.c.state, func.count())
            .where(run.c.sweep.in_(limited), run.c.state.in_((*_ENDED, RunState.QUEUED)))
            .group_by(run.c.sweep, run.c.state)
        ).all()
    of = {(name, state): count for name, state, count in counts}
    changes = []
    for name, row in limited.items():
        if not of.get((name, RunState.QUEUED)):
            continue
        failed = of.get((name, RunState.FAILED), 0)
        ended = failed + of.get((name, RunState.DONE), 0)
        budget = Policy.model_validate(row.policy).budget
        why = overspent(budget, now - row.begun_at, failed, ended)
        if why is not None:
            changes.append(control.pause(db, name, BUDGET, f"{control.USED_UP}: {why}"))
    return changes
