"""Decides whether a case is poison: it crashes attempts on two phones and is blocked for review.

A single crash is not sufficient, because phones, cables and agents fail for other reasons too. A
phone counts when two of its attempts at the case crashed with the phone in mid-run, or three were
lost in other ways, and the case has not succeeded on it since. When attempts at other cases crash
at the same host at the same time, another cause is likely, so such a crash weighs a third or half.
A fault that the runner itself reports (no memory, a crash) is a finding and not counted here.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select, update

from orchestrator.planning.states import RunState
from orchestrator.store.database import as_utc, insert_and_count
from orchestrator.store.tables import crash, phone, run, trial
from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.messages import Event, EventKind, Report, RunId
from workloads.protocol.stage import Stage
from workloads.text import safe_text

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
    for item in crashes:
        by_phone.setdefault(item.phone, []).append(item)
    evidence = {
        phone: f"{len(group)} attempts crashed, the last: {group[-1].text}"
        for phone, group in sorted(by_phone.items())
        if sum(_weight(item, others) for item in group) >= WEIGHT_MIN
    }
    return evidence if len(evidence) >= PHONES_MIN else {}


def _weight(crashed: Crash, others: Collection[Crash]) -> int:
    together = any(
        other.host == crashed.host and abs(other.occurred_at_s - crashed.occurred_at_s) < TOGETHER_S
        for other in others
    )
    return SHARED_WEIGHT if together else crashed.weight


def record_crash(
    connection: Connection, attempt: RunId, case_digest: str, crashed: Crash
) -> Event | None:
    """Store a crash; if the case is poisoned with it, block the case's runs and return an event."""
    row = {
        "trial": attempt.trial,
        "repeat": attempt.repeat,
        "attempt": attempt.attempt,
        "case_digest": case_digest,
        "phone": crashed.phone,
        "weight": crashed.weight,
        "text": safe_text(crashed.text, 400),
        "occurred_at": datetime.now(UTC),
    }
    if not insert_and_count(connection, crash, [row]):
        return None
    evidence = poison_evidence(*_crashes(connection, case_digest))
    return _block_case(connection, case_digest, evidence) if evidence else None


def _crashes(connection: Connection, case_digest: str) -> list[list[Crash]]:
    """Return a case's crashes that are not cleared, and other cases' crashes since the first."""
    query = (
        select(crash, phone.c.host)
        .join(phone, phone.c.serial == crash.c.phone)
        .order_by(crash.c.occurred_at)
    )
    of_case = (crash.c.case_digest == case_digest, ~crash.c.cleared)
    own = connection.execute(query.where(*of_case)).all()
    since = own[0].occurred_at - timedelta(seconds=TOGETHER_S)
    others = (crash.c.case_digest != case_digest, crash.c.occurred_at >= since)
    return [
        [
            Crash(row.phone, row.weight, row.text, row.host, as_utc(row.occurred_at).timestamp())
            for row in rows
        ]
        for rows in (own, connection.execute(query.where(*others)).all())
    ]


def _block_case(connection: Connection, case_digest: str, evidence: dict[str, str]) -> Event:
    phones = "; ".join(f"{serial}: {text}" for serial, text in evidence.items())
    note = f"blocked: attempts crashed on {len(evidence)} phones ({phones})"
    trials = select(trial.c.id).where(trial.c.case_digest == case_digest)
    blocked = connection.execute(
        update(run)
        .where(run.c.state == RunState.QUEUED, run.c.trial.in_(trials))
        .values(state=RunState.BLOCKED, note=note)
    ).rowcount
    text = f"case {case_digest[:12]} {note}; {blocked} runs wait for 'farm sweep retry'"
    return Event(occurred_at=datetime.now(UTC), kind=EventKind.POISONED, text=text)


def clear_for_phone(connection: Connection, succeeded: Collection[tuple[str, str]]) -> None:
    """Clear the crashes of cases that have now succeeded on the same phone (case, phone)."""
    digests = {case_digest for case_digest, _ in succeeded}
    pending = connection.execute(
        select(crash.c.case_digest, crash.c.phone)
        .where(crash.c.case_digest.in_(digests), ~crash.c.cleared)
        .distinct()
    ).all()
    for case_digest, serial in pending:
        if (case_digest, serial) in succeeded:
            same = (crash.c.case_digest == case_digest, crash.c.phone == serial)
            connection.execute(update(crash).where(*same).values(cleared=True))


def clear_for_sweep(connection: Connection, sweep_id: str) -> None:
    """Clear the crashes of every case with blocked or failed runs in a sweep."""
    given_up = (
        select(trial.c.case_digest)
        .join(run, run.c.trial == trial.c.id)
        .where(run.c.sweep == sweep_id, run.c.state.in_((RunState.BLOCKED, RunState.FAILED)))
    )
    connection.execute(update(crash).where(crash.c.case_digest.in_(given_up)).values(cleared=True))
