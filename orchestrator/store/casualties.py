"""Attempts that died, by case: kept as evidence, and what it is enough for is done at once."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select, update

from orchestrator.nouns import RunState
from orchestrator.plan.poison import TOGETHER_S, Casualty, Elsewhere, evidence
from orchestrator.store.database import Database
from orchestrator.store.queries import aware
from orchestrator.store.tables import casualty, phone, run, trial
from workloads.messages import Event, RunId
from workloads.text import safe_text


def note_death(
    db: Database, connection: Connection, at: RunId, case_digest: str, dead: Casualty
) -> Event | None:
    """Keep a death; if it is the one too many, hold the case's other runs and say so."""
    row = {
        "trial": at.trial,
        "repeat": at.repeat,
        "attempt": at.attempt,
        "case_digest": case_digest,
        "phone": dead.phone,
        "weight": dead.weight,
        "what": safe_text(dead.what, 400),
        "at": datetime.now(UTC),
        "forgiven": False,
    }
    if not db.insert_and_count(connection, casualty, [row]):
        return None
    why = evidence(*_deaths(connection, case_digest))
    return _hold(connection, case_digest, why) if why else None


def _deaths(connection: Connection, case_digest: str) -> tuple[list[Casualty], list[Elsewhere]]:
    """The deaths that speak against a case, and those of other cases since the first of them."""
    question = (
        select(casualty, phone.c.host)
        .join(phone, phone.c.serial == casualty.c.phone)
        .order_by(casualty.c.at)
    )
    of_case = (casualty.c.case_digest == case_digest, ~casualty.c.forgiven)
    mine = connection.execute(question.where(*of_case)).all()
    since = mine[0].at - timedelta(seconds=TOGETHER_S)
    others = (casualty.c.case_digest != case_digest, casualty.c.at >= since)
    return [
        Casualty(each.phone, each.weight, each.what, each.host, aware(each.at).timestamp())
        for each in mine
    ], [
        Elsewhere(each.host, aware(each.at).timestamp())
        for each in connection.execute(question.where(*others))
    ]


def _hold(connection: Connection, case_digest: str, why: dict[str, str]) -> Event:
    words = "; ".join(f"{phone}: {what}" for phone, what in why.items())
    note = f"poisoned: it kills attempts on {len(why)} phones ({words})"
    trials = select(trial.c.id).where(trial.c.case_digest == case_digest)
    held = connection.execute(
        update(run)
        .where(run.c.state == RunState.QUEUED, run.c.trial.in_(trials))
        .values(state=RunState.HELD, note=note)
    ).rowcount
    text = f"case {case_digest[:12]} is {note}; {held} runs are held until a retry"
    return Event(at=datetime.now(UTC), kind="poisoned", text=text)


def absolve(connection: Connection, came_through: Collection[tuple[str, str]]) -> None:
    """A case that came through on a phone did not kill it: its deaths there had other causes."""
    digests = {case_digest for case_digest, _ in came_through}
    suspects = connection.execute(
        select(casualty.c.case_digest, casualty.c.phone)
        .where(casualty.c.case_digest.in_(digests), ~casualty.c.forgiven)
        .distinct()
    ).all()
    for case_digest, serial in suspects:
        if (case_digest, serial) in came_through:
            same = (casualty.c.case_digest == case_digest, casualty.c.phone == serial)
            connection.execute(update(casualty).where(*same).values(forgiven=True))


def forgive(connection: Connection, sweep_id: str) -> None:
    """Forget the deaths of every case that a sweep holds back: somebody has looked."""
    held = (
        select(trial.c.case_digest)
        .join(run, run.c.trial == trial.c.id)
        .where(run.c.sweep == sweep_id, run.c.state.in_((RunState.HELD, RunState.FAILED)))
    )
    connection.execute(
        update(casualty).where(casualty.c.case_digest.in_(held)).values(forgiven=True)
    )
