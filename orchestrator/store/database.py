"""The connection to the database: engine, transactions, schema version.

Errors of SQLAlchemy and its drivers become StoreDown.
"""

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    BindParameter,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    and_,
    bindparam,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from workloads.lab.connection_url import without_password
from workloads.protocol.faults import InvalidRequest, StoreDown

Rows = Sequence[dict[str, Any]]
PlainRow = tuple[str | int | float | None, ...]
# Of SQLite, per connection. Inserting 100,000 rows with random keys stays in memory with 64 MiB;
# everything else reads pages from the cache of the system, and three services keep less memory.
CACHE, LARGE_CACHE = "cache_size=-16384", "cache_size=-65536"
CONNECT_TIMEOUT_S = 10
# The API has a connection for each of its threads.
POOL: dict[str, Any] = {"max_overflow": 75, "pool_timeout": CONNECT_TIMEOUT_S}
LOCK_TIMEOUT_S, LOCK_RETRY_S = 30.0, 0.01  # of SQLite
IDLE_S = 1.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# A server that vanishes is noticed after 25 s, a statement that hangs ends after a minute;
# options in the URL replace these.
POSTGRES_OPTIONS = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    # Without jit: compiling the scheduler's query takes longer than ten of its ticks. No spinning
    # disk: else a sweep's reports are found by reading those of all sweeps.
    "options": "-c statement_timeout=60s -c lock_timeout=30s -c jit=off -c random_page_cost=1.1",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
BULK_ROWS = 20_000  # in one statement
MIGRATION_LOCK = 0x6661726D  # "farm"
MIGRATIONS = Path(__file__).parent / "migrations"
SCHEMA, FIRST_SCHEMA = "0006", "0005"  # the newest and the oldest revision in migrations/versions
RENUMBERED = {"0001": "0005", "0002": "0006"}  # these numbers had been used before


class Database:
    """One engine; every use of it is a transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.codes: dict[str, dict[Any, int]] = {}  # what metric_codes.py remembers of this store
        try:
            self._engine = _create_engine(url)
            self._reader = self._engine
            if self._engine.dialect.name == "postgresql":
                self._reader = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        except ImportError as error:
            raise InvalidRequest(
                f"the store's URL cannot be used: {error}; "
                "install the driver with: pip install 'farmhand[postgres]'"
            ) from error
        except (ArgumentError, ValueError) as error:  # its text may show a part of the password
            raise InvalidRequest(
                "the store's URL cannot be used; write "
                "postgresql+psycopg://USER@HOST/NAME, and the password to store.password_file"
            ) from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that may write; it is committed as a whole or not at all."""
        with _translate_errors(self.url), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self, in_transaction: bool = False) -> Iterator[Connection]:
        """Open a connection that reads and never waits for a writer.

        On PostgreSQL each statement is its own transaction: a tick has a dozen reads, and BEGIN and
        ROLLBACK would be two more round trips each. Rows that are fetched in pieces need one.
        """
        engine = self._engine if in_transaction else self._reader
        with _translate_errors(self.url), engine.connect() as connection:
            yield connection.execution_options(farm_reader=True)

    def rows(self, query: Select[Any], values: Mapping[str, object] | None = None) -> Sequence[Any]:
        """Return all rows of a query."""
        with self.read() as connection:
            return connection.execute(query, values).all()

    def values(self, query: Select[Any]) -> list[Any]:
        """Return the first column of a query."""
        return [row[0] for row in self.rows(query)]

    def value(self, query: Select[Any]) -> Any:
        """Return the first column of the first row of a query; None without rows."""
        with self.read() as connection:
            return connection.execute(query).scalar()

    def migrate(self) -> None:
        """Create the tables, or bring them to the current version; refuse a damaged file."""
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.touch(mode=0o600)  # not for other users of this computer
            self.check_integrity()
        with self.write() as connection:
            self.upgrade(connection, SCHEMA)

    def upgrade(self, connection: Connection, schema: str) -> None:
        """Bring the tables to a schema, in a transaction that excludes other migrations.

        The transaction of SQLite has the only write lock; PostgreSQL has an advisory lock, because
        two upgrades would both see a store without tables.
        """
        from alembic import command
        from alembic.config import Config

        from orchestrator.store.figures_view import create_views, drop_views

        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            connection.exec_driver_sql("SET LOCAL lock_timeout = '10min'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        _renumber(connection)
        version = schema_version(connection)
        if version is not None and not FIRST_SCHEMA <= version <= SCHEMA:
            raise InvalidRequest(_other_version(version))
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        drop_views(connection)
        command.upgrade(config, schema)
        if schema == SCHEMA:
            create_views(connection)

    def check(self) -> None:
        """Refuse a store that is missing or has another schema version."""
        version = self.schema()
        if version is None:
            raise StoreDown("the store has no tables yet; start the lab with 'farm up'")
        if version > SCHEMA:
            raise InvalidRequest(_other_version(version))
        if version != SCHEMA:
            raise InvalidRequest(
                f"the store has schema {version}, this version needs {SCHEMA}; run 'farm "
                "store migrate'"
            )

    def schema(self) -> str | None:
        """Return the schema version; None without tables. A missing file is StoreDown."""
        if self._file is not None and not self._file.exists():
            raise StoreDown(f"there is no store at {self._file}; start the lab with 'farm up'")
        with self.read() as connection:
            return schema_version(connection)

    def check_integrity(self) -> None:
        """Refuse a damaged SQLite file; PostgreSQL checks its own files."""
        if self._file is None or not self._file.exists():
            return
        with self.read() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if found != "ok":
            raise StoreDown(
                f"the store {self._file} is damaged ({found}); restore a backup with "
                "'farm store restore'"
            )

    @property
    def _file(self) -> Path | None:
        prefix = "sqlite:///"
        return Path(self.url.removeprefix(prefix)) if self.url.startswith(prefix) else None

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _renumber(connection: Connection) -> None:
    """Give a store of the tables that have other numbers now their present number."""
    version = schema_version(connection)
    if version in RENUMBERED and inspect(connection).has_table("notice"):  # older tables lack it
        number = RENUMBERED[version]
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{number}'")


def _other_version(version: str) -> str:
    return (
        f"the store has schema {version}, this version reads {FIRST_SCHEMA} to {SCHEMA}; "
        "install the version of Farmhand that wrote it"
    )


def schema_version(connection: Connection) -> str | None:
    """Return the schema version of a store; None if it has no tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if version is None else str(version)


def insert_new(connection: Connection, table: Table, rows: Rows) -> None:
    """Insert the rows whose keys are not in the table yet."""
    if rows:
        connection.execute(_insert_new(connection, table), list(rows))


def insert_and_count(connection: Connection, table: Table, rows: Rows) -> int:
    """Insert the rows whose keys are not in the table yet, and count them."""
    if not rows:
        return 0
    statement = _insert_new(connection, table).returning(*table.primary_key.columns)
    return len(connection.execute(statement, list(rows)).all())


def bulk_insert_new(
    connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[PlainRow]
) -> None:
    """Insert very many rows whose keys are not in the table yet: plain values, JSON as text.

    The rows go to the driver without SQLAlchemy's processing, which takes ten times as long;
    to PostgreSQL as one JSON text, because a statement per row takes as long again.
    """
    quote = connection.dialect.identifier_preparer.quote
    # Names come from our own tables, values go through the driver.
    into = f"INSERT INTO {quote(table.name)} ({', '.join(map(quote, columns))})"
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        text = f"{into} VALUES ({marks}) ON CONFLICT DO NOTHING"
        connection.exec_driver_sql(f"PRAGMA {LARGE_CACHE}")
        connection.info["has_large_cache"] = True
        connection.exec_driver_sql(text, list(rows))
        return
    types = {name: str(table.c[name].type.compile(connection.dialect)) for name in columns}
    fields = ", ".join(
        f"{quote(name)} {'TEXT' if kind == 'JSON' else kind}" for name, kind in types.items()
    )
    cells = ", ".join(f"{quote(name)}::{kind}" for name, kind in types.items())
    source = f"json_to_recordset(%s::json) AS source({fields})"
    text = f"{into} SELECT {cells} FROM {source} ON CONFLICT DO NOTHING"
    for start in range(0, len(rows), BULK_ROWS):
        part = [dict(zip(columns, row, strict=True)) for row in rows[start : start + BULK_ROWS]]
        connection.exec_driver_sql(text, (json.dumps(part, allow_nan=False),))


def analyze(connection: Connection, tables: Sequence[Table]) -> None:
    """Update the statistics from which PostgreSQL plans queries, after very many new rows."""
    if connection.dialect.name == "postgresql":
        quote = connection.dialect.identifier_preparer.quote
        connection.exec_driver_sql("ANALYZE " + ", ".join(quote(item.name) for item in tables))


def count_rows(connection: Connection, table: Table, *where: Any) -> int:
    """Count the rows of a table that meet some conditions."""
    counted = select(func.count()).select_from(table).where(*where)
    return int(connection.execute(counted).scalar_one())


def is_of_runs(table: Table) -> ColumnElement[bool]:
    """Whether a row is about one of the runs that `run_keys` names.

    SQLite scans the whole table for pairs alone; for the trials it uses the index.
    """
    trials: BindParameter[Any] = bindparam("trials", expanding=True)
    runs: BindParameter[Any] = bindparam("runs", expanding=True)
    return and_(table.c.trial.in_(trials), tuple_(table.c.trial, table.c.repeat).in_(runs))


def run_keys(runs: Iterable[tuple[str, int]]) -> dict[str, object]:
    """The parameters of a query with `is_of_runs`: trials and repeats."""
    keys = sorted(set(runs))
    return {"trials": sorted({trial for trial, _ in keys}), "runs": keys}


def as_utc(moment: datetime) -> datetime:
    """Add the time zone that SQLite does not store; all stored times are UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _insert_new(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def _create_engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        given = make_url(url).query
        options = {name: value for name, value in POSTGRES_OPTIONS.items() if name not in given}
        remote = create_engine(url, connect_args=options, **POOL)
        _check_idle_connections(remote)
        return remote
    file = URL.create("sqlite", database=url.removeprefix("sqlite:///"))  # a path of any characters
    engine = create_engine(file, connect_args={"timeout": LOCK_TIMEOUT_S}, **POOL)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin in _begin, not in the driver
        _use_wal(connection)
        for pragma in ("synchronous=FULL", "foreign_keys=ON", CACHE):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "checkin")
    def _shrink(connection: Any, record: Any) -> None:
        if record.info.pop("has_large_cache", False) and connection is not None:
            connection.execute(f"PRAGMA {CACHE}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A writer that starts as a reader can be refused halfway; taking the lock first cannot.
        reader = connection.get_execution_options().get("farm_reader")
        connection.exec_driver_sql("BEGIN" if reader else "BEGIN IMMEDIATE")

    return engine


def _use_wal(connection: Any) -> None:
    """Switch a SQLite file to its write-ahead log.

    SQLite does not wait while another process switches the same file: it fails at once.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(LOCK_RETRY_S)


def _check_idle_connections(engine: Engine) -> None:
    """Replace a connection that has ended while it was idle; asking every time is a round trip."""

    @event.listens_for(engine, "checkin")
    def _note(_: Any, record: Any) -> None:
        record.info["used_at"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _check(connection: Any, record: Any, _: Any) -> None:
        if time.monotonic() - record.info.get("used_at", math.inf) < IDLE_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except PoolTimeout as error:
        raise StoreDown(f"all connections to {without_password(url)} are in use") from error
    except (OperationalError, InterfaceError) as error:
        raise StoreDown(f"the store at {without_password(url)} failed: {error.orig}") from error
    except DatabaseError as error:
        # The lowest byte of an extended code is the primary one.
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise StoreDown(f"the store at {without_password(url)}: {error.orig}") from error
        raise
