"""Decides what follows a report: accept it, retry the run, or give up. Pure.

Blame decides. An invalid request, a runner that fails, and work that is not what its name says are
findings and are never repeated. A fault of the phone is retried at once, an unmet condition at the
end of the queue, both a bounded number of times. A fault of the lab itself never counts against a
run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.sweepfile.policy import RetryLimits
from workloads.protocol.faults import Blame
from workloads.protocol.messages import Report
from workloads.protocol.verdict import Validity


class RetryAction(StrEnum):
    """What follows for the run."""

    ACCEPT = "accept"
    RETRY = "retry"
    RETRY_LATER = "retry later"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class RetryDecision:
    """What follows for the run, why, whose attempt counter it increments, and the pause before."""

    action: RetryAction
    reason: str
    blame: Blame | None = None
    pause_s: float = 0.0


DEFAULT_LIMITS = RetryLimits()
# Pause before the next attempt, by the number of earlier attempts with the same blame.
PAUSES_S = {
    Blame.FARM: (0.0, 0.5, 2.0, 5.0, 15.0, 30.0),
    Blame.PHONE: (1.0, 10.0),  # a phone that reboots, or has a loose cable, needs a moment
    Blame.CONDITION: (1.0, 10.0),  # a disturbance may pass
}


def decide_retry(
    report: Report, attempts: Mapping[str, int], limits: RetryLimits = DEFAULT_LIMITS
) -> RetryDecision:
    """Judge a report of the current attempt; `attempts` counts earlier ones by blame."""
    if report.fault is None:
        verdict = report.verdict
        if verdict is None or verdict.validity is not Validity.VOID:
            return RetryDecision(RetryAction.ACCEPT, "")
        if verdict.deterministic:
            return RetryDecision(RetryAction.GIVE_UP, verdict.text, Blame.RUNNER)
        return _retry_bounded(Blame.CONDITION, verdict.text, attempts, limits)
    fault = report.fault
    reason = str(fault)
    if fault.blame in (Blame.REQUEST, Blame.RUNNER):
        return RetryDecision(RetryAction.GIVE_UP, reason, fault.blame)
    if fault.blame is Blame.FARM:
        return RetryDecision(RetryAction.RETRY, reason, Blame.FARM, _pause_s(Blame.FARM, attempts))
    return _retry_bounded(fault.blame, reason, attempts, limits)


def _retry_bounded(
    blame: Blame, reason: str, attempts: Mapping[str, int], limits: RetryLimits
) -> RetryDecision:
    limit = limits.phone if blame is Blame.PHONE else limits.condition
    if attempts.get(blame, 0) + 1 >= limit:
        return RetryDecision(RetryAction.GIVE_UP, f"{reason} ({limit} times)", blame)
    action = RetryAction.RETRY_LATER if blame is Blame.CONDITION else RetryAction.RETRY
    return RetryDecision(action, reason, blame, _pause_s(blame, attempts))


def _pause_s(blame: Blame, attempts: Mapping[str, int]) -> float:
    pauses = PAUSES_S[blame]
    return pauses[min(attempts.get(blame, 0), len(pauses) - 1)]
