"""The backlog: sweeps go in, all of one in one transaction or nothing."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select, update

from orchestrator.nouns import PlannedRun, RunState, Trial
from orchestrator.store import tables
from orchestrator.store.database import Database, Plain
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
    name = str(row["id"])
    with db.write() as connection:
        db.insert_new(connection, tables.sweep, [row])
        _take_over_wishes(connection, sweep)
        before = _counts(connection, name)
        last = connection.execute(select(func.coalesce(func.max(run.c.rank), 0))).scalar_one()
        db.insert_plain(connection, trial, _TRIAL, list(_trial_rows(name, trials)))
        sizes = Counter((phone_of[item.trial], item.block) for item in planned)
        runs = [
            _run_row(name, serial, last, item, alone=sizes[serial, item.block] == 1)
            for item in planned
            for serial in (phone_of[item.trial],)
        ]
        db.insert_plain(connection, run, _RUN, runs)
        after = _counts(connection, name)
    return Submitted(name, after[0] - before[0], after[1] - before[1], len(planned))


_TRIAL = ("id", "sweep", "phone", "case", "case_digest", "condition", "condition_digest")
_RUN = (
    *("trial", "repeat", "sweep", "phone", "block", "position", "rank", "places", "chosen"),
    *("state", "attempt", "host", "lease_until", "not_before", "tries", "note"),
)
_NEW_RUN = (str(RunState.QUEUED), 0, "", 0.0, 0.0, "{}", "")


def _counts(connection: Connection, sweep: str) -> tuple[int, int]:
    """Trials and runs of a sweep that are stored."""
    found = [
        connection.execute(
            select(func.count()).select_from(table).where(table.c.sweep == sweep)
        ).scalar_one()
        for table in (trial, run)
    ]
    return found[0], found[1]


def _run_row(sweep: str, phone: str, last: int, item: PlannedRun, alone: bool) -> Plain:
    chosen = 0 if alone or len(item.places) < 2 else None
    where = (item.block, item.position, last + 1 + item.position, str(list(item.places)), chosen)
    return (item.trial, item.repeat, sweep, phone, *where, *_NEW_RUN)


def _trial_rows(sweep: str, trials: Sequence[Trial]) -> Iterator[Plain]:
    """Rows of trials; cells share their case and condition, so each is written out once."""
    written: dict[int, tuple[str, str]] = {}
    for item in trials:
        for part in (item.case, item.condition):
            if id(part) not in written:
                written[id(part)] = (part.model_dump_json(), part.digest)
        case, condition = written[id(item.case)], written[id(item.condition)]
        yield (item.id, sweep, item.phone, *case, *condition)


def _take_over_wishes(connection: Connection, wanted: Mapping[str, object]) -> None:
    """A sweep that is submitted again keeps its runs; how it is carried out may have changed."""
    names = ("policy", "owner", "priority", "deadline")
    wishes = {name: wanted[name] for name in names if name in wanted}
    same = tables.sweep.c.id == wanted["id"]
    if wishes:
        connection.execute(update(tables.sweep).where(same).values(**wishes))


def known_facts(db: Database) -> dict[str, str]:
    """Every phone the store has met, with the digest of its facts."""
    with db.read() as connection:
        return dict(connection.execute(select(phone.c.serial, phone.c.facts_digest)).all())
