"""Runs every test of the store on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store.database import Database
from tests.conftest import new_database


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated store on either database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'farm.db'}"
    else:
        url = new_database(request.getfixturevalue("postgres"), tmp_path.name)
    database = Database(url)
    database.migrate()
    yield database
    database.close()
