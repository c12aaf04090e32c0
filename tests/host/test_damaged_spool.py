"""A spool that is damaged: the agent renames it and starts with a new one."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.spool import Spool
from tests.builders import a_run


def write_garbage(path: Path) -> None:
    """Write a file that is not a database."""
    path.write_bytes(b"\x00garbage" * 1000)


def write_other_tables(path: Path) -> None:
    """Write a database with the tables of something else."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE parcel (x TEXT)")
        file.commit()


def write_bad_ids(path: Path) -> None:
    """Write a spool whose parcels have ids and bodies of other kinds."""
    Spool(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("INSERT INTO parcel (id, body) VALUES ('report:nothing', x'00ff')")
        file.commit()


def cut_in_half(path: Path) -> None:
    """Write a spool, and lose its second half."""
    spool = Spool(path)
    for number in range(200):
        spool.record_start(a_run(number), "x" * 500)
    spool.close()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("damage", [write_garbage, write_other_tables, write_bad_ids, cut_in_half])
def test_a_damaged_spool_is_replaced(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = tmp_path / "spool.db"
    damage(path)
    spool = Spool(path)
    assert spool.record_start(a_run(), "{}")
    assert (spool.unconfirmed_ids(), spool.interrupted_jobs()) == ([], ["{}"])
    spool.close()
    assert [file.name for file in tmp_path.glob("spool.db.damaged-*")]


def test_a_good_spool_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool = Spool(path)
    spool.record_start(a_run(), "{}")
    spool.close()
    again = Spool(path)
    assert not again.record_start(a_run(), "{}")
    again.close()
    assert not list(tmp_path.glob("spool.db.damaged-*"))
