"""Writes metrics as numbers: names and origins are stored once, values with their numbers.

A run has about fifty metrics; with names and provenance in every row they took a third of a store.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, ScalarSelect, Table, select

from orchestrator.store.database import Database, insert_new
from orchestrator.store.tables import metric_name, metric_origin, metric_value
from workloads.protocol.messages import Report
from workloads.protocol.metrics import Metric

NO_MODEL, NO_ERROR = "", -1.0

Key = tuple[Any, ...]
_KEYS = {
    metric_name.name: (metric_name.c.name,),
    metric_origin.name: (
        *(metric_origin.c.source, metric_origin.c.model),
        *(metric_origin.c.error_rel, metric_origin.c.grade),
    ),
}


def name_code(name: str) -> ScalarSelect[Any]:
    """Return the number of a metric, as part of a query."""
    return select(metric_name.c.id).where(metric_name.c.name == name).scalar_subquery()


def insert_metrics(
    db: Database, connection: Connection, reports: Sequence[tuple[int, Report]]
) -> None:
    """Store the metrics of accepted reports, each with the id of its run.

    The caller has locked the runs. A run is accepted once and a report has a metric once, so the
    rows are new: letting PostgreSQL look for conflicts takes as long as the insert.
    """
    metrics = [(run, metric) for run, report in reports for metric in report.metrics]
    if not metrics:
        return
    keys = [_origin(metric) for _, metric in metrics]
    names = _codes(db, connection, metric_name, {(metric.name,) for _, metric in metrics})
    origins = _codes(db, connection, metric_origin, set(keys))
    rows = [
        (run, names[metric.name,], metric.value, origins[key])
        for (run, metric), key in zip(metrics, keys, strict=True)
    ]
    _insert_numbers(connection, rows)


def _insert_numbers(connection: Connection, rows: Sequence[tuple[int, int, float, int]]) -> None:
    """Insert rows of metric values; to PostgreSQL as one array per column."""
    into = f"INSERT INTO {metric_value.name} (run, name, value, origin)"
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"{into} VALUES (?, ?, ?, ?)", list(rows))
        return
    arrays = [f"{{{','.join(map(repr, values))}}}" for values in zip(*rows, strict=True)]
    casts = "%s::INTEGER[], %s::INTEGER[], %s::FLOAT[], %s::INTEGER[]"
    connection.exec_driver_sql(f"{into} SELECT * FROM unnest({casts})", tuple(arrays))


def _origin(metric: Metric) -> Key:
    source = metric.provenance
    error_rel = NO_ERROR if source.error_rel is None else source.error_rel
    return str(source.source), source.model or NO_MODEL, error_rel, metric.grade


def _codes(db: Database, connection: Connection, table: Table, keys: Collection[Key]) -> Any:
    """Return the number of each key; new keys are added.

    Only what is committed is remembered, so it is read through another connection.
    """
    known = db.codes.setdefault(table.name, {})
    if all(key in known for key in keys):
        return known
    with db.read() as reader:
        known |= _stored(reader, table)
    new = [key for key in keys if key not in known]
    if not new:
        return known
    columns = [column.name for column in _KEYS[table.name]]
    insert_new(connection, table, [dict(zip(columns, key, strict=True)) for key in sorted(new)])
    return known | _stored(connection, table)


def _stored(connection: Connection, table: Table) -> dict[Key, int]:
    rows = connection.execute(select(table.c.id, *_KEYS[table.name]))
    return {tuple(key): code for code, *key in rows}
