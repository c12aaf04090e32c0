"""What follows a report: a pure decision from blame and history.

Blame decides. A request that is wrong, a runner that fails and work that is not what its name says
are findings and are never made again; a phone's trouble is tried again at once, an unmet condition
at the end of the line, both a bounded number of times; the farm's own trouble never counts against
a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.plan.policy import RetryLimits
from workloads.fault import Blame
from workloads.measure import Standing
from workloads.messages import Report


class Next(StrEnum):
    """What becomes of the run."""

    DONE = "done"
    AGAIN = "again"
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True)
class Decision:
    """What becomes of the run, why, whom it counts against, and how long to wait first."""

    next: Next
    why: str
    blame: Blame | None = None
    pause_s: float = 0.0


NO_WISHES = RetryLimits()
# How long to wait before the next try, by how often it went wrong before.
PAUSES_S = {
    Blame.FARM: (0.0, 0.5, 2.0, 5.0, 15.0, 30.0),
    Blame.PHONE: (1.0, 10.0),  # a phone that reboots or hangs on a loose cable needs a moment
    Blame.CONDITION: (1.0, 10.0),  # whatever spoilt it may pass
}


def decide(report: Report, tries: Mapping[str, int], limits: RetryLimits = NO_WISHES) -> Decision:
    """Judge a report that came from the current attempt; tries counts earlier ones by blame."""
    if report.fault is None:
        verdict = report.verdict
        if verdict is None or verdict.standing is not Standing.VOID:
            return Decision(Next.DONE, "")
        why = "; ".join(verdict.reasons)
        if verdict.finding:
            return Decision(Next.NEVER, why, Blame.RUNNER)
        return _bounded(Blame.CONDITION, why, tries, limits)
    fault = report.fault
    why = f"{fault.kind} while {fault.stage}: {fault.text}"
    if fault.blame in (Blame.REQUEST, Blame.RUNNER):
        return Decision(Next.NEVER, why, fault.blame)
    if fault.blame is Blame.FARM:
        return Decision(Next.AGAIN, why, Blame.FARM, _pause_s(Blame.FARM, tries))
    return _bounded(fault.blame, why, tries, limits)


def _bounded(blame: Blame, why: str, tries: Mapping[str, int], limits: RetryLimits) -> Decision:
    most = limits.of(blame)
    if tries.get(blame, 0) + 1 >= most:
        return Decision(Next.NEVER, f"{why} ({most} times)", blame)
    following = Next.LATER if blame is Blame.CONDITION else Next.AGAIN
    return Decision(following, why, blame, _pause_s(blame, tries))


def _pause_s(blame: Blame, tries: Mapping[str, int]) -> float:
    pauses = PAUSES_S[blame]
    return pauses[min(tries.get(blame, 0), len(pauses) - 1)]
