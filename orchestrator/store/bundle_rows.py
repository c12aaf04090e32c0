"""The rows of one sweep, exported to a bundle and imported again bit for bit.

Values of the lab (health, fences, leases) are left out: exporting an imported bundle gives the same
bundle.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from time import time
from typing import Any

from sqlalchemy import DateTime, LargeBinary, Select, Table, select

from orchestrator.decisions.states import RunState
from orchestrator.store.database import Database
from orchestrator.store.tables import chunk, metric, phone, report, run, sweep, trial
from workloads.protocol.faults import InvalidRequest

# In the order in which rows may be inserted.
PARTS: dict[str, Table] = {
    table.name: table for table in (phone, sweep, trial, run, report, metric, chunk)
}
BATCH = 500
_PHONE_COLUMNS = ["serial", "host", "facts", "facts_digest"]
_ROW_NUMBER = "id"  # of a run or a report: every store numbers them itself
_NO_LEASE = {"lease_until": 0.0, "not_before": 0.0}
Row = dict[str, Any]


def export_rows(db: Database, sweep_id: str, part: str) -> Iterator[Row]:
    """Yield the rows of a part, in an order that does not depend on the store."""
    names = _columns(PARTS[part])
    with db.read() as connection:
        query = _query(part, sweep_id)
        for row in connection.execution_options(yield_per=BATCH).execute(query):
            yield {name: _to_json(getattr(row, name)) for name in names}


def _columns(table: Table) -> list[str]:
    if table is phone:
        return _PHONE_COLUMNS
    numbered = {_ROW_NUMBER} if table in (run, report) else set()
    return sorted({column.name for column in table.columns} - numbered - set(_NO_LEASE))


def _query(part: str, sweep_id: str) -> Select[Any]:
    trials = select(trial.c.id).where(trial.c.sweep == sweep_id)
    blobs = select(report.c.telemetry).where(report.c.trial.in_(trials))
    phones = select(trial.c.phone).where(trial.c.sweep == sweep_id)
    selections = {
        "phone": (phone.c.serial.in_(phones), [phone.c.serial]),
        "sweep": (sweep.c.id == sweep_id, [sweep.c.id]),
        "trial": (trial.c.sweep == sweep_id, [trial.c.id]),
        "run": (run.c.sweep == sweep_id, [run.c.trial, run.c.repeat]),
        "report": (
            report.c.trial.in_(trials),
            [report.c.trial, report.c.repeat, report.c.attempt],
        ),
        "metric": (metric.c.trial.in_(trials), [metric.c.trial, metric.c.repeat, metric.c.name]),
        "chunk": (chunk.c.digest.in_(blobs), [chunk.c.digest, chunk.c.part]),
    }
    where, order = selections[part]
    return select(PARTS[part]).where(where).order_by(*order)


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"  # all stored times are UTC
    return value


def import_rows(db: Database, parts: Iterable[tuple[str, Iterable[Row]]]) -> dict[str, int]:
    """Insert the rows of a bundle, all or none; return how many each part has."""
    counts: dict[str, int] = {}
    with db.write() as connection:
        for part, rows in parts:
            batch: list[Row] = []
            counts[part] = 0
            for row in rows:
                batch.append(_from_json(part, row))
                counts[part] += 1
                if len(batch) >= BATCH:
                    db.insert_new(connection, PARTS[part], batch)
                    batch = []
            db.insert_new(connection, PARTS[part], batch)
    return counts


def _from_json(part: str, row: Mapping[str, Any]) -> Row:
    table = PARTS[part]
    if set(row) != set(_columns(table)):
        raise InvalidRequest(f"the columns of part '{part}' differ from those of this version")
    values = {name: _column_value(table, name, value) for name, value in row.items()}
    if table is phone:
        never = datetime.fromtimestamp(0, UTC)
        return values | {"last_seen_at": never, "fence": int(time())}
    if table is run:
        if row["state"] in (RunState.QUEUED, RunState.LEASED):
            raise InvalidRequest("the bundle has an unfinished run, which would start here")
        return values | _NO_LEASE
    return values


def _column_value(table: Table, name: str, value: Any) -> Any:
    kind = table.columns[name].type
    if isinstance(kind, LargeBinary):
        return base64.b64decode(value, validate=True)
    if isinstance(kind, DateTime):
        return datetime.fromisoformat(value)
    return value
