"""Fixtures named after nouns; all of them are the real thing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.children import stop_all
from orchestrator.lab.embedded import embedded_broker, wait_for_broker
from orchestrator.store.database import Database
from workloads.lab import Lab


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
