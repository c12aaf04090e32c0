"""The schema: the migrations build exactly the tables of the code."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlmodel import SQLModel

from orchestrator.store import tables
from orchestrator.store.database import MIGRATIONS, SCHEMA, Database
from workloads.protocol.faults import InvalidRequest, StoreDown


def test_migrations_build_exactly_the_tables(store: Database) -> None:
    assert tables
    with store.read() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, SQLModel.metadata) == []


def test_the_newest_revision_is_the_required_one() -> None:
    newest = max(path.name for path in (MIGRATIONS / "versions").glob("0*.py"))
    assert newest.startswith(f"{SCHEMA}_")


def test_migrating_twice_changes_nothing(store: Database) -> None:
    store.migrate()
    store.check()


def test_a_missing_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreDown, match="there is no store at .*start the lab with 'farm up'"):
        Database(f"sqlite:///{tmp_path / 'none.db'}").check()


def test_a_file_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "farm.db"
    file.write_bytes(b"these are not the tables you are looking for" * 100)
    with pytest.raises(StoreDown, match="not a database"):
        Database(f"sqlite:///{file}").check()


def set_schema(store: Database, number: str, *statements: str) -> None:
    with store.write() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{number}'")
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_a_store_of_another_version_is_refused(store: Database) -> None:
    set_schema(store, "9999")
    for refuse in (store.check, store.migrate):  # what one of them advises is no other refusal
        with pytest.raises(InvalidRequest, match="schema 9999.*install the version"):
            refuse()


@pytest.mark.parametrize("number", ["0001", "0002", "0003", "0004"])
def test_tables_that_no_release_had_are_refused_under_every_number(
    store: Database, number: str
) -> None:
    set_schema(store, number, "DROP TABLE notice_delivery", "DROP TABLE notice")
    with pytest.raises(InvalidRequest, match="run 'farm store migrate'"):
        store.check()
    with pytest.raises(InvalidRequest, match=f"schema {number}.*install the version"):
        store.migrate()


def test_the_present_tables_keep_their_rows_under_their_new_number(store: Database) -> None:
    set_schema(store, "0002")
    store.migrate()
    store.check()
    assert store.schema() == SCHEMA
