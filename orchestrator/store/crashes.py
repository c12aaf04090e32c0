"""Crashed attempts by case. A case with enough crashes is poisoned: its queued runs are blocked."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select, update

from orchestrator.decisions.poison import TOGETHER_S, Crash, poison_evidence
from orchestrator.decisions.states import RunState
from orchestrator.store.database import as_utc, insert_and_count
from orchestrator.store.tables import crash, phone, run, trial
from workloads.protocol.messages import Event, EventKind, RunId
from workloads.text import safe_text


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
