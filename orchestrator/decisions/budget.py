"""Whether a sweep has used up what it may use: a pure decision."""

from orchestrator.plan.policy import Budget

SHARE_FROM = 10  # ended runs: before that, a share says nothing


def overspent(budget: Budget, spent_s: float, failed: int, ended: int) -> str | None:
    """Say what is used up, in words; None while nothing is."""
    if budget.wall_s is not None and spent_s > budget.wall_s:
        return f"its {budget.wall_s:.0f} s are over"
    if budget.failures is not None and failed > budget.failures:
        return f"{failed} runs failed, and no more than {budget.failures} may"
    share = failed / ended if ended >= SHARE_FROM else 0.0
    if budget.failures_share is not None and share > budget.failures_share:
        return f"{failed} of {ended} runs failed, and no more than {budget.failures_share:.0%} may"
    return None
