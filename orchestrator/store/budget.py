"""Decides whether a sweep has exceeded its budget.

A share of failures is a share of all planned runs: those that fail end sooner than those that
measure, so among the first ended runs failures are too frequent. A sweep of which most runs fail
is paused long before its budget is used up.
"""

from sqlalchemy import func, select

from orchestrator.planning.states import PausedBy, RunState, SweepState
from orchestrator.store.database import Database
from orchestrator.store.operator_change import Actor, OperatorChange
from orchestrator.store.sweep_actions import pause
from orchestrator.store.tables import run, sweep
from orchestrator.sweepfile.policy import Budget, Policy
from workloads.units import count_text

ENDED_RUNS_MIN = 20  # with fewer ended runs, a share of failures means little
MOST = 0.5  # of the ended runs


def exceeded_budget(
    budget: Budget, spent_s: float, failed: int, ended: int, planned: int
) -> str | None:
    """Return the exceeded limit as text; None while none is exceeded."""
    if budget.wall_s is not None and spent_s > budget.wall_s:
        return f"the limit of {budget.wall_s:.0f} s is exceeded"
    if budget.failures is not None and failed > budget.failures:
        return f"{count_text(failed, 'run')} failed; the limit is {budget.failures}"
    share = budget.failures_share
    if share is None:
        return None
    if failed > share * planned:
        return f"{failed} of {planned} runs failed; the limit is {share:.0%}"
    if ended >= ENDED_RUNS_MIN and failed > max(share, MOST) * ended:
        return f"{failed} of the first {ended} runs failed; the limit is {share:.0%} of all"
    return None


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
