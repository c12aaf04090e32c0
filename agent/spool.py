"""The spool: what an agent must not forget, in one SQLite file that survives it.

A run is written here before it starts and its report before it is sent; both stay until the centre
confirms. Writers wait for the disk together: one fsync serves every lane that asked meanwhile.
"""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from workloads.fault import FarmTrouble
from workloads.messages import AnyParcel, Chunk, Report, RunId

_SCHEMA = """
CREATE TABLE IF NOT EXISTS started (
    run TEXT PRIMARY KEY, job TEXT NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
    at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS parcel (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, body TEXT NOT NULL);
"""

REMEMBER_S = 7 * 86400  # a message that is older than this cannot be delivered any more

Change = Callable[[sqlite3.Connection], Any]


class Spool:
    """Durable memory with one writer thread; every call returns when the disk has it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = _opened(path)
        self._changes: queue.SimpleQueue[tuple[Change, Future[Any]] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="spool", daemon=True)
        self._writer.start()
        self._reader = _opened(path)  # what is sent does not wait for what is written
        self._reading = threading.Lock()
        self._apply(lambda connection: connection.executescript(_SCHEMA))
        old = (time.time() - REMEMBER_S,)
        forget = "DELETE FROM started WHERE ended = 1 AND at < ?"
        self._apply(lambda connection: connection.execute(forget, old).rowcount)

    def begin(self, run: RunId, job: str) -> bool:
        """Note that a run is about to start; False when it was started before."""
        statement = "INSERT INTO started (run, job, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        row = (str(run), job, time.time())
        count = self._apply(lambda it: it.execute(statement, row).rowcount)
        return bool(count)

    def end(self, run: RunId, parcels: Sequence[Report | Chunk]) -> None:
        """Note that a run has ended, with everything that has to be told of it."""

        def change(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE started SET ended = 1, job = '' WHERE run = ?", (str(run),))
            _insert(connection, parcels)

        self._apply(change)

    def add(self, parcels: Sequence[AnyParcel]) -> None:
        """Keep parcels that belong to no run."""
        self._apply(lambda connection: _insert(connection, parcels))

    def interrupted(self) -> list[str]:
        """The jobs of runs that were started and never ended: their agent died."""
        rows = self._apply(
            lambda it: it.execute("SELECT job FROM started WHERE ended = 0 ORDER BY at").fetchall()
        )
        return [row[0] for row in rows]

    def waiting(self) -> list[str]:
        """Ids of all parcels that are not confirmed, oldest first."""
        rows = self._apply(lambda it: it.execute("SELECT id FROM parcel ORDER BY seq").fetchall())
        return [row[0] for row in rows]

    def bodies(self, ids: Sequence[str]) -> dict[str, str]:
        """The texts of parcels that are still waiting."""
        marks = ",".join("?" * len(ids))
        statement = f"SELECT id, body FROM parcel WHERE id IN ({marks}) ORDER BY seq"
        try:
            with self._reading:
                return dict(self._reader.execute(statement, tuple(ids)).fetchall())
        except sqlite3.Error as error:
            raise FarmTrouble(f"the spool failed: {error}") from error

    def confirm(self, ids: Sequence[str]) -> None:
        """Forget parcels that the centre has stored for good."""
        rows = [(name,) for name in ids]
        self._apply(lambda it: it.executemany("DELETE FROM parcel WHERE id = ?", rows))

    def close(self) -> None:
        """Finish what is waiting and close the file."""
        self._changes.put(None)
        self._writer.join()
        with self._reading:
            self._reader.close()

    def _apply(self, change: Change) -> Any:
        if not self._writer.is_alive():
            raise FarmTrouble("the spool is closed")
        done: Future[Any] = Future()
        self._changes.put((change, done))
        return done.result()

    def _write(self) -> None:
        connection = self._file
        while (first := self._changes.get()) is not None:
            batch: list[tuple[Change, Future[Any]] | None] = [first]
            while not self._changes.empty():
                batch.append(self._changes.get())
            _commit(connection, [item for item in batch if item is not None])
            if None in batch:
                break
        connection.close()


def _opened(path: Path) -> sqlite3.Connection:
    """Open the file here, so that a broken one is known before anything starts."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error as error:
        raise FarmTrouble(f"the spool {path} cannot be used: {error}") from error
    return connection


def _commit(connection: sqlite3.Connection, batch: Sequence[tuple[Change, Future[Any]]]) -> None:
    """Apply a batch in one transaction; callers hear of it only after the commit."""
    outcomes: list[Any] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [change(connection) for change, _ in batch]
        if connection.in_transaction:
            connection.execute("COMMIT")
    except Exception as error:  # noqa: BLE001 - whoever asked must hear of it, and the writer live
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        for _, done in batch:
            done.set_exception(FarmTrouble(f"the spool failed: {error}"))
        return
    for (_, done), outcome in zip(batch, outcomes, strict=True):
        done.set_result(outcome)


def _insert(connection: sqlite3.Connection, parcels: Sequence[AnyParcel]) -> None:
    rows = [(parcel.parcel, parcel.model_dump_json()) for parcel in parcels]
    connection.executemany("INSERT OR REPLACE INTO parcel (id, body) VALUES (?, ?)", rows)
