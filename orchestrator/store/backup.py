"""All rows of a store, for a backup and for its restoration, also into the other database.

Tables and columns are read from the store, not from the code: a backup of an older schema is
restored with that schema and then migrated.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from time import time
from typing import Any

from sqlalchemy import (
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    func,
    select,
    update,
)

from orchestrator.planning.states import RunState
from orchestrator.store.bundle_checks import Row
from orchestrator.store.bundle_rows import BATCH, to_json
from orchestrator.store.database import (
    FIRST_SCHEMA,
    RENUMBERED,
    SCHEMA,
    Database,
    schema_version,
)
from orchestrator.store.figures_view import drop_views
from orchestrator.store.tables import phone, run
from workloads.protocol.faults import InvalidRequest

VERSION_TABLE = "alembic_version"
LATER_ATTEMPTS = 1000  # more than a run gets between two backups
RowsOf = Callable[[str], Iterable[Row]]


class StoreSnapshot:
    """A store at one moment: its schema, its tables and their rows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.schema = schema_version(connection)
        self._tables = _tables(connection)

    @property
    def tables(self) -> list[str]:
        """The names of the tables, in the order in which rows may be inserted."""
        return [table.name for table in self._tables]

    def rows(self, name: str) -> Iterator[Row]:
        """Yield the rows of a table, ordered by its key."""
        table = next(each for each in self._tables if each.name == name)
        query = select(table).order_by(*table.primary_key.columns)
        result = self._connection.execution_options(yield_per=BATCH).execute(query)
        for row in result.mappings():
            yield {key: to_json(value) for key, value in row.items()}


@contextmanager
def snapshot(db: Database) -> Iterator[StoreSnapshot]:
    """Open a store for a backup: every table is read as of the same moment."""
    with db.read(in_transaction=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield StoreSnapshot(connection)


def restore_rows(db: Database, schema: str, rows_of: RowsOf, replace: bool) -> dict[str, int]:
    """Fill a store from a backup, and migrate it; all or nothing. Return the rows per table."""
    if schema > SCHEMA:
        raise InvalidRequest(
            f"the backup has schema {schema}, this version has {SCHEMA}; "
            "install the version of Farmhand that wrote it"
        )
    schema = RENUMBERED.get(schema, schema)
    if schema < FIRST_SCHEMA:
        raise InvalidRequest(f"the backup has schema {schema}, which no release of Farmhand had")
    with db.write() as connection:
        if replace:
            _drop_all(connection)
        db.upgrade(connection, schema)
        tables = _tables(connection)
        filled = [each.name for each in tables if connection.execute(select(each)).first()]
        if filled:
            raise InvalidRequest("the store is not empty; '--replace' removes everything in it")
        counts = {table.name: _insert(connection, table, rows_of(table.name)) for table in tables}
        db.upgrade(connection, SCHEMA)
        _pass_later_leases(connection)
    return counts


def _pass_later_leases(connection: Connection) -> None:
    """Continue above every lease that was given after the backup was made.

    Phones refuse a lower fence, and agents drop an attempt that they have started before. A report
    of such an attempt that is still on its way is kept as stale.
    """
    unfinished = run.c.state != RunState.DONE
    connection.execute(update(run).where(unfinished).values(attempt=run.c.attempt + LATER_ATTEMPTS))
    now = int(time())
    connection.execute(update(phone).where(phone.c.fence < now).values(fence=now))


def _tables(connection: Connection) -> list[Table]:
    metadata = MetaData()
    metadata.reflect(connection)
    return [table for table in metadata.sorted_tables if table.name != VERSION_TABLE]


def _drop_all(connection: Connection) -> None:
    drop_views(connection)
    metadata = MetaData()
    metadata.reflect(connection)
    metadata.drop_all(connection)


def _insert(connection: Connection, table: Table, rows: Iterable[Row]) -> int:
    count, batch = 0, list[Row]()
    for row in rows:
        batch.append({name: _column_value(table, name, value) for name, value in row.items()})
        if len(batch) >= BATCH:
            connection.execute(table.insert(), batch)
            count, batch = count + len(batch), []
    if batch:
        connection.execute(table.insert(), batch)
    _continue_numbers(connection, table)
    return count + len(batch)


def _column_value(table: Table, name: str, value: Any) -> Any:
    if name not in table.columns:
        raise InvalidRequest(f"the backup has an unknown column {name} in {table.name}")
    kind = table.columns[name].type
    if value is None:
        return None
    if isinstance(kind, LargeBinary):
        return base64.b64decode(value, validate=True)
    return datetime.fromisoformat(value) if isinstance(kind, DateTime) else value


def _continue_numbers(connection: Connection, table: Table) -> None:
    """Let PostgreSQL number new rows after the inserted ones; SQLite does so by itself."""
    key = table.columns.get("id")
    if connection.dialect.name != "postgresql" or key is None or not isinstance(key.type, Integer):
        return
    last = connection.execute(select(func.max(key))).scalar()
    if last is not None:
        sequence = func.pg_get_serial_sequence(f'"{table.name}"', "id")
        connection.execute(select(func.setval(sequence, last)))
