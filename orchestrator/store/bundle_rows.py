"""A sweep's rows as they stand, to be published and read back bit for bit.

What belongs to the lab and not to the sweep (health, fences, leases) stays behind: a bundle made of
what was read from a bundle is the same bundle.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from time import time
from typing import Any

from sqlalchemy import DateTime, LargeBinary, Select, Table, select

from orchestrator.nouns import RunState
from orchestrator.store.database import SCHEMA, Database
from orchestrator.store.tables import chunk, metric, phone, report, run, sweep, trial
from workloads.fault import Refused

# In the order in which rows may be inserted. What is told of each: columns, or all but these.
PARTS: dict[str, Table] = {
    table.name: table for table in (phone, sweep, trial, run, report, metric, chunk)
}
_OF_A_PHONE = ("serial", "host", "facts", "facts_digest")
_OWN_NUMBER = "id"  # of a run or a report: counted anew in every store
_LEASE = {"lease_until": 0.0, "not_before": 0.0}
Row = dict[str, Any]


def rows_of(db: Database, sweep_id: str, part: str) -> Iterator[Row]:
    """The rows of a part, in an order that does not depend on the store."""
    table = PARTS[part]
    with db.read() as connection:
        for row in connection.execution_options(yield_per=500).execute(_question(part, sweep_id)):
            yield {name: _told(table, name, getattr(row, name)) for name in _names(table)}


def _names(table: Table) -> list[str]:
    if table is phone:
        return list(_OF_A_PHONE)
    own = {_OWN_NUMBER} if table in (run, report) else set()
    return sorted({column.name for column in table.columns} - own - set(_LEASE))


def _question(part: str, sweep_id: str) -> Select[Any]:
    table = PARTS[part]
    mine = select(trial.c.id).where(trial.c.sweep == sweep_id)
    told = select(report.c.telemetry).where(report.c.trial.in_(mine))
    phones = select(trial.c.phone).where(trial.c.sweep == sweep_id)
    asked = {
        "phone": (phone.c.serial.in_(phones), [phone.c.serial]),
        "sweep": (sweep.c.id == sweep_id, [sweep.c.id]),
        "trial": (trial.c.sweep == sweep_id, [trial.c.id]),
        "run": (run.c.sweep == sweep_id, [run.c.trial, run.c.repeat]),
        "report": (
            report.c.trial.in_(mine),
            [report.c.trial, report.c.repeat, report.c.attempt],
        ),
        "metric": (metric.c.trial.in_(mine), [metric.c.trial, metric.c.repeat, metric.c.name]),
        "chunk": (chunk.c.digest.in_(told), [chunk.c.digest, chunk.c.part]),
    }
    where, order = asked[part]
    return select(table).where(where).order_by(*order)


def _told(table: Table, name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"  # everything is stored in UTC
    return value


def store_rows(db: Database, parts: Iterable[tuple[str, Iterable[Row]]]) -> dict[str, int]:
    """Insert the rows of a bundle, all or none; answer how many of each there were."""
    counts: dict[str, int] = {}
    with db.write() as connection:
        for part, rows in parts:
            batch: list[Row] = []
            counts[part] = 0
            for row in rows:
                batch.append(_read(part, row))
                counts[part] += 1
                if len(batch) >= 500:
                    db.insert_new(connection, PARTS[part], batch)
                    batch = []
            db.insert_new(connection, PARTS[part], batch)
    return counts


def _read(part: str, row: Mapping[str, Any]) -> Row:
    table = PARTS[part]
    if set(row) != set(_names(table)):
        raise Refused(f"a row of {part} has other columns than this farm's")
    read = {name: _stored(table, name, value) for name, value in row.items()}
    if table is phone:
        seen = datetime.fromtimestamp(0).astimezone()
        return read | {"seen_at": seen, "fence": int(time())}
    if table is run:
        if row["state"] in (RunState.QUEUED, RunState.LEASED):
            raise Refused("a run in it is not finished, and would be run here")
        return read | _LEASE
    return read


def _stored(table: Table, name: str, value: Any) -> Any:
    kind = table.columns[name].type
    if isinstance(kind, LargeBinary):
        return base64.b64decode(value, validate=True)
    if isinstance(kind, DateTime):
        return datetime.fromisoformat(value)
    return value


def schema() -> str:
    """The version of the tables that these rows are of."""
    return SCHEMA


def sweep_known(db: Database, sweep_id: str) -> bool:
    """Whether a sweep is here already."""
    with db.read() as connection:
        found = connection.execute(select(sweep.c.id).where(sweep.c.id == sweep_id)).first()
    return found is not None


def seed_of(db: Database, sweep_id: str) -> int:
    """The seed that ordered a sweep's runs."""
    with db.read() as connection:
        found = connection.execute(select(sweep.c.seed).where(sweep.c.id == sweep_id))
        return int(found.scalar_one())


def has_simulated(db: Database, sweep_id: str) -> bool:
    """Whether a single number of a sweep was simulated."""
    question = (
        select(metric.c.name)
        .join(trial, trial.c.id == metric.c.trial)
        .where(trial.c.sweep == sweep_id, metric.c.source == "simulated")
        .limit(1)
    )
    with db.read() as connection:
        return connection.execute(question).first() is not None
