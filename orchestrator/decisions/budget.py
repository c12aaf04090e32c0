"""Decides whether a sweep has exceeded its budget. Pure.

A share of failures is a share of all planned runs: those that fail end sooner than those that
measure, so among the first ended runs failures are too frequent. A sweep of which most runs fail
is paused long before its budget is used up.
"""

from orchestrator.sweepfile.policy import Budget
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
