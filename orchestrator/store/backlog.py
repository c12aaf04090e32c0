"""The backlog: sweeps go in, all of one in one transaction or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select, update

from orchestrator.nouns import PlannedRun, RunState, Trial
from orchestrator.store import tables
from orchestrator.store.database import Database
from orchestrator.store.tables import phone, run, trial


@dataclass(frozen=True)
class Submitted:
    """What a submission added; a sweep that was submitted before adds what is missing."""

    sweep: str
    new_trials: int
    new_runs: int
    all_runs: int


def submit(
    db: Database,
    sweep: Mapping[str, object],
    trials: Sequence[Trial],
    planned: Sequence[PlannedRun],
) -> Submitted:
    """Store a sweep and its runs, unless they are there already."""
    phone_of = {item.id: item.phone for item in trials}
    row = {**sweep, "created_at": datetime.now(UTC)}
    with db.write() as connection:
        db.insert_new(connection, tables.sweep, [row])
        _take_over_wishes(connection, sweep)
        new_trials = db.insert_and_count(
            connection, trial, [_trial_row(row, item) for item in trials]
        )
        last = connection.execute(select(func.coalesce(func.max(run.c.rank), 0))).scalar_one()
        new_runs = db.insert_and_count(
            connection,
            run,
            [
                {
                    "trial": item.trial,
                    "repeat": item.repeat,
                    "sweep": row["id"],
                    "phone": phone_of[item.trial],
                    "block": item.block,
                    "position": item.position,
                    "rank": last + 1 + item.position,
                    "state": RunState.QUEUED,
                    "attempt": 0,
                    "host": "",
                    "lease_until": 0.0,
                    "not_before": 0.0,
                    "tries": {},
                    "note": "",
                    "places": list(item.places),
                    "chosen": None if len(item.places) > 1 else 0,
                }
                for item in planned
            ],
        )
    return Submitted(str(row["id"]), new_trials, new_runs, len(planned))


def _take_over_wishes(connection: Connection, wanted: Mapping[str, object]) -> None:
    """A sweep that is submitted again keeps its runs; how it is carried out may have changed."""
    names = ("policy", "owner", "priority", "deadline")
    wishes = {name: wanted[name] for name in names if name in wanted}
    same = tables.sweep.c.id == wanted["id"]
    if wishes:
        connection.execute(update(tables.sweep).where(same).values(**wishes))


def _trial_row(sweep: Mapping[str, object], item: Trial) -> dict[str, object]:
    return {
        "id": item.id,
        "sweep": sweep["id"],
        "phone": item.phone,
        "case": item.case.model_dump(mode="json"),
        "case_digest": item.case.digest,
        "condition": item.condition.model_dump(mode="json"),
        "condition_digest": item.condition.digest,
    }


def known_facts(db: Database) -> dict[str, str]:
    """Every phone the store has met, with the digest of its facts."""
    with db.read() as connection:
        return dict(connection.execute(select(phone.c.serial, phone.c.facts_digest)).all())
