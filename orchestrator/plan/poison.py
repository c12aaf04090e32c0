"""Poison: a case that kills attempts on two phones is held until somebody has looked.

One death proves little, because phones, cables and agents die of other things too. So a phone
counts when two of its attempts at the case went down with it in mid-run, or three were lost in
other ways, and the case has not come through on it since. When other cases die at the same host in
the same moment, whatever killed them all was hardly this one: such a death counts a third or half.
What a runner says of itself (no memory, a crash) is a finding and no death.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from workloads.fault import Blame
from workloads.messages import Report

HARD, SOFT, SHARED, ENOUGH = 3, 2, 1, 6
TOGETHER_S = 15.0  # lanes of a host that dies notice it one after the other
PHONES = 2
_HARD_KINDS = frozenset({"Hung", "Restarted"})
_IN_MID_RUN = frozenset({"canary", "run", "running", "canary_after"})


@dataclass(frozen=True)
class Casualty:
    """An attempt that died: on which phone, how much that says, and in words."""

    phone: str
    weight: int
    what: str
    host: str = ""
    at_s: float = 0.0


@dataclass(frozen=True)
class Elsewhere:
    """An attempt at another case that died."""

    host: str
    at_s: float


def casualty_of(report: Report) -> Casualty | None:
    """The death that a report tells of; None when nobody died in mid-run."""
    fault = report.fault
    if fault is None or fault.stage not in _IN_MID_RUN:
        return None
    if fault.blame is not Blame.PHONE and fault.kind != "Interrupted":
        return None
    weight = HARD if fault.kind in _HARD_KINDS else SOFT
    return Casualty(report.phone, weight, f"{fault.kind} while {fault.stage}: {fault.text}")


def lost_with_its_lease(phone: str) -> Casualty:
    """The death of an attempt that was never heard of again."""
    return Casualty(phone, SOFT, "the lease ran out")


def evidence(dead: Iterable[Casualty], elsewhere: Collection[Elsewhere] = ()) -> dict[str, str]:
    """Why a case is poison, by phone, in words; empty while two phones do not agree."""
    by_phone: dict[str, list[Casualty]] = {}
    for each in dead:
        by_phone.setdefault(each.phone, []).append(each)
    killed = {
        phone: f"{len(found)} attempts died, at last: {found[-1].what}"
        for phone, found in sorted(by_phone.items())
        if sum(_weight(each, elsewhere) for each in found) >= ENOUGH
    }
    return killed if len(killed) >= PHONES else {}


def _weight(dead: Casualty, elsewhere: Collection[Elsewhere]) -> int:
    together = any(
        other.host == dead.host and abs(other.at_s - dead.at_s) < TOGETHER_S for other in elsewhere
    )
    return SHARED if together else dead.weight
