"""The rows of one sweep, exported to a bundle and imported again bit for bit.

Values of the lab (health, fences, leases) are left out: exporting an imported bundle gives the same
bundle. Metrics and joint judgements are left out as well: an import computes them from the reports.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, Table, select

from orchestrator.store.audit_log import AuditEntry, record_audit
from orchestrator.store.bundle_checks import PHONE_COLUMNS, BundleChecker, Row
from orchestrator.store.database import Database, insert_and_count, insert_new
from orchestrator.store.joint_judgements import judge_trials
from orchestrator.store.metric_codes import insert_metrics
from orchestrator.store.tables import chunk, phone, report, run, sweep, trial
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import Report

# In the order in which rows may be inserted.
PARTS: dict[str, Table] = {table.name: table for table in (phone, sweep, trial, run, report, chunk)}
BATCH = 500
_NOT_EXPORTED = {
    "run": {"id", "lease_until", "not_before"},  # every store numbers its rows itself
    "report": {"id", "judged", "judged_reasons", "judged_runs", "judged_rules"},
    "sweep": {"pinned", "notify"},
}


def export_rows(db: Database, sweep_id: str, part: str) -> Iterator[Row]:
    """Yield the rows of a part, in an order that does not depend on the store."""
    names = columns_of(part)
    with db.read(in_transaction=True) as connection:
        query = _query(part, sweep_id)
        for row in connection.execution_options(yield_per=BATCH).execute(query):
            yield {name: to_json(getattr(row, name)) for name in names}


def columns_of(part: str) -> list[str]:
    """Return the columns of a part, sorted by name."""
    if part == phone.name:
        return PHONE_COLUMNS
    return sorted({column.name for column in PARTS[part].columns} - _NOT_EXPORTED.get(part, set()))


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
            [report.c.trial, report.c.repeat, report.c.attempt, report.c.host],
        ),
        "chunk": (chunk.c.digest.in_(blobs), [chunk.c.digest, chunk.c.part]),
    }
    where, order = selections[part]
    return select(PARTS[part]).where(where).order_by(*order)


def to_json(value: Any) -> Any:
    """Return the value of a column as JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"  # all stored times are UTC
    return value


def import_rows(
    db: Database, sweep_id: str, parts: Iterable[tuple[str, Iterable[Row]]], entry: AuditEntry
) -> dict[str, int]:
    """Insert the rows of a bundle, all or none; return how many each part has."""
    checker = BundleChecker(sweep_id)
    with db.write() as connection:
        counts = dict.fromkeys(PARTS, 0)
        for part, rows in parts:
            for batch in _batches(checker, part, rows):
                counts[part] += len(batch)
                if part != trial.name:
                    insert_new(connection, PARTS[part], batch)
                elif insert_and_count(connection, trial, batch) != len(batch):
                    raise InvalidRequest("a trial of the bundle belongs to another sweep here")
                _insert_metrics(db, connection, sweep_id, checker.take_accepted())
        judge_trials(connection, checker.trials)
        if counts["sweep"] != 1:
            raise InvalidRequest(f"the bundle has {counts['sweep']} sweeps instead of one")
        record_audit(connection, entry)
    return counts


def _insert_metrics(
    db: Database, connection: Connection, sweep_id: str, reports: Sequence[Report]
) -> None:
    trials = {item.run.trial for item in reports}
    found = select(run.c.trial, run.c.repeat, run.c.id).where(run.c.trial.in_(trials))
    rows = connection.execute(found.where(run.c.sweep == sweep_id)) if reports else ()
    number = {(row.trial, row.repeat): row.id for row in rows}
    measured = [(number[item.run.trial, item.run.repeat], item) for item in reports]
    insert_metrics(db, connection, measured)


def _batches(checker: BundleChecker, part: str, rows: Iterable[Row]) -> Iterator[list[Row]]:
    names, batch = set(columns_of(part)), list[Row]()
    for row in rows:
        if set(row) != names:
            raise InvalidRequest(f"the columns of part '{part}' differ from those of this version")
        batch.append(checker.check(PARTS[part], row))
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
