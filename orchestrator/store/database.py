"""The connection to the database: engine, transactions, schema version.

Errors of SQLAlchemy and its drivers become StoreDown.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
)

from workloads.protocol.faults import InvalidRequest, StoreDown

Rows = Sequence[dict[str, Any]]
PlainRow = tuple[str | int | float | None, ...]
CACHE = "cache_size=-65536"  # 64 MiB: inserting 100,000 rows with random keys stays in memory
MIGRATIONS = Path(__file__).parent / "migrations"
SCHEMA = "0001"  # the newest revision in migrations/versions


class Database:
    """One engine; every use of it is a transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._engine = _create_engine(url)
        except (ArgumentError, ImportError, ValueError) as error:
            raise InvalidRequest(f"the store's URL cannot be used: {error}") from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that may write; it is committed as a whole or not at all."""
        with _translate_errors(self.url), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that reads and never waits for a writer."""
        options = {"farm_reader": True}
        with _translate_errors(self.url), self._engine.connect() as connection:
            yield connection.execution_options(**options)

    def insert_new(self, connection: Connection, table: Table, rows: Rows) -> None:
        """Insert the rows whose keys are not in the table yet."""
        if rows:
            connection.execute(_insert_new(connection, table), list(rows))

    def insert_and_count(self, connection: Connection, table: Table, rows: Rows) -> int:
        """Insert the rows whose keys are not in the table yet, and count them."""
        if not rows:
            return 0
        statement = _insert_new(connection, table).returning(*table.primary_key.columns)
        return len(connection.execute(statement, list(rows)).all())

    def bulk_insert_new(
        self, connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[PlainRow]
    ) -> None:
        """Insert very many rows whose keys are not in the table yet: plain values, JSON as text.

        The rows go to the driver without SQLAlchemy's processing, which takes ten times as long.
        """
        mark = "%s" if connection.dialect.name == "postgresql" else "?"
        quote = connection.dialect.identifier_preparer.quote
        names, marks = ", ".join(map(quote, columns)), ", ".join([mark] * len(columns))
        # Names come from our own tables, values go through the driver.
        text = f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        if rows:
            connection.exec_driver_sql(text, list(rows))

    def migrate(self) -> None:
        """Create the tables, or bring them to the current version."""
        from alembic import command
        from alembic.config import Config

        if self.url.startswith("sqlite:///"):
            Path(self.url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        with self.write() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def check(self) -> None:
        """Refuse a store that is missing or has another schema version."""
        path = Path(self.url.removeprefix("sqlite:///"))
        if self.url.startswith("sqlite:///") and not path.exists():
            raise StoreDown(f"there is no store at {path}; start the lab with 'farm up'")
        query = "SELECT version_num FROM alembic_version"
        try:
            with self.read() as connection:
                version = connection.exec_driver_sql(query).scalar()
        except ProgrammingError as error:
            raise StoreDown("the store has no tables yet; start the lab with 'farm up'") from error
        if version != SCHEMA:
            raise InvalidRequest(
                f"the store has schema {version}, this version needs {SCHEMA}; run 'farm up'"
            )

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def as_utc(moment: datetime) -> datetime:
    """Add the time zone that SQLite does not store; all stored times are UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _insert_new(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def _create_engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": 30})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin in _begin, not in the driver
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", CACHE):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A writer that starts as a reader can be refused halfway; taking the lock first cannot.
        reader = connection.get_execution_options().get("farm_reader")
        connection.exec_driver_sql("BEGIN" if reader else "BEGIN IMMEDIATE")

    return engine


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise StoreDown(f"the store at {_without_password(url)} failed: {error.orig}") from error
    except DatabaseError as error:
        if "malformed" in str(error.orig) or "not a database" in str(error.orig):
            raise StoreDown(f"the store at {_without_password(url)}: {error.orig}") from error
        raise


def _without_password(url: str) -> str:
    from sqlalchemy import make_url

    return make_url(url).render_as_string(hide_password=True)
