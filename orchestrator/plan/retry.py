"""What follows a report: a pure decision from blame and history.

Blame decides. A request that is wrong and a runner that fails are findings and are never made
again; a phone's trouble is tried again at once, an unmet condition at the end of the line, both a
bounded number of times; the farm's own trouble never counts against a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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


LIMITS = {Blame.PHONE: 3, Blame.CONDITION: 3}
FARM_PAUSE_S = (0.0, 0.5, 2.0, 5.0, 15.0, 30.0)


def decide(report: Report, tries: Mapping[str, int]) -> Decision:
    """Judge a report that came from the current attempt; tries counts earlier ones by blame."""
    if report.fault is None:
        verdict = report.verdict
        if verdict is None or verdict.standing is not Standing.VOID:
            return Decision(Next.DONE, "")
        return _bounded(Blame.CONDITION, "; ".join(verdict.reasons), tries)
    fault = report.fault
    why = f"{fault.kind} while {fault.stage}: {fault.text}"
    if fault.blame in (Blame.REQUEST, Blame.RUNNER):
        return Decision(Next.NEVER, why, fault.blame)
    if fault.blame is Blame.FARM:
        earlier = tries.get(Blame.FARM, 0)
        pause = FARM_PAUSE_S[min(earlier, len(FARM_PAUSE_S) - 1)]
        return Decision(Next.AGAIN, why, Blame.FARM, pause)
    return _bounded(fault.blame, why, tries)


def _bounded(blame: Blame, why: str, tries: Mapping[str, int]) -> Decision:
    if tries.get(blame, 0) + 1 >= LIMITS[blame]:
        return Decision(Next.NEVER, f"{why} ({LIMITS[blame]} times)", blame)
    return Decision(Next.LATER if blame is Blame.CONDITION else Next.AGAIN, why, blame)
