"""Decides whether a case is poison: it crashes attempts on two phones and is blocked for review.

A single crash is not sufficient, because phones, cables and agents fail for other reasons too. A
phone counts when two of its attempts at the case crashed with the phone in mid-run, or three were
lost in other ways, and the case has not succeeded on it since. When attempts at other cases crash
at the same host at the same time, another cause is likely, so such a crash weighs a third or half.
A fault that the runner itself reports (no memory, a crash) is a finding and not counted here.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.messages import Report
from workloads.protocol.stage import Stage

HARD_WEIGHT, SOFT_WEIGHT, SHARED_WEIGHT, WEIGHT_MIN = 3, 2, 1, 6
TOGETHER_S = 15.0  # the lanes of a failing host notice it one after the other
PHONES_MIN = 2  # guard: poison
_HARD_KINDS = frozenset({FaultKind.HUNG, FaultKind.RESTARTED})
_MID_RUN_STAGES = frozenset({Stage.CANARY_BEFORE, Stage.RUN, Stage.CANARY_AFTER, Stage.UNKNOWN})


@dataclass(frozen=True)
class Crash:
    """A crashed attempt: its phone, how much it counts, and the fault as text."""

    phone: str
    weight: int
    text: str
    host: str = ""
    occurred_at_s: float = 0.0


def crash_in(report: Report) -> Crash | None:
    """Return the crash that a report describes; None when nothing crashed in mid-run."""
    fault = report.fault
    if fault is None or fault.stage not in _MID_RUN_STAGES:
        return None
    if fault.blame is not Blame.PHONE and fault.kind is not FaultKind.INTERRUPTED:
        return None
    weight = HARD_WEIGHT if fault.kind in _HARD_KINDS else SOFT_WEIGHT
    return Crash(report.phone, weight, str(fault))


def poison_evidence(crashes: Iterable[Crash], others: Collection[Crash] = ()) -> dict[str, str]:
    """Return why a case is poison, as text by phone; empty while fewer than two phones agree.

    `others` are crashed attempts at other cases.
    """
    by_phone: dict[str, list[Crash]] = {}
    for crash in crashes:
        by_phone.setdefault(crash.phone, []).append(crash)
    evidence = {
        phone: f"{len(group)} attempts crashed, the last: {group[-1].text}"
        for phone, group in sorted(by_phone.items())
        if sum(_weight(crash, others) for crash in group) >= WEIGHT_MIN
    }
    return evidence if len(evidence) >= PHONES_MIN else {}


def _weight(crash: Crash, others: Collection[Crash]) -> int:
    together = any(
        other.host == crash.host and abs(other.occurred_at_s - crash.occurred_at_s) < TOGETHER_S
        for other in others
    )
    return SHARED_WEIGHT if together else crash.weight
