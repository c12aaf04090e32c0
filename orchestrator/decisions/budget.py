"""Decides whether a sweep has exceeded its budget. Pure."""

from orchestrator.sweepfile.policy import Budget

ENDED_RUNS_MIN = 10  # with fewer ended runs, a share of failures means little


def exceeded_budget(budget: Budget, spent_s: float, failed: int, ended: int) -> str | None:
    """Return the exceeded limit as text; None while none is exceeded."""
    if budget.wall_s is not None and spent_s > budget.wall_s:
        return f"the limit of {budget.wall_s:.0f} s is exceeded"
    if budget.failures is not None and failed > budget.failures:
        return f"{failed} runs failed; the limit is {budget.failures}"
    share = failed / ended if ended >= ENDED_RUNS_MIN else 0.0
    if budget.failures_share is not None and share > budget.failures_share:
        return f"{failed} of {ended} runs failed; the limit is {budget.failures_share:.0%}"
    return None
