"""Spool: the durable state of an agent (started runs, unconfirmed parcels) in one SQLite file.

A run is written here before it starts and its report before it is sent; both stay until the centre
confirms. Writes are committed in groups: one fsync serves every lane that wrote in between.
"""

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from workloads.protocol.faults import FarmTrouble
from workloads.protocol.messages import (
    AnyParcel,
    BadMessage,
    Chunk,
    Report,
    RunId,
    decode_parcel,
    is_parcel_id,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS started (
    run TEXT PRIMARY KEY, job TEXT NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
    at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS parcel (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, body TEXT NOT NULL);
"""

STARTED_KEPT_S = 7 * 86400  # an older message cannot be delivered any more

log = logging.getLogger("farm.spool")

SpoolWrite = Callable[[sqlite3.Connection], Any]


class DamagedSpool(FarmTrouble):
    """the spool is damaged; the agent renames it and starts with a new one"""


class Spool:
    """Durable state with one writer thread; every call returns after its commit."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = _open_or_replace(path)
        self._writes: queue.SimpleQueue[tuple[SpoolWrite, Future[Any]] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="spool", daemon=True)
        self._writer.start()
        self._reader = _open_database(path)  # sending does not wait for commits
        self._reading = threading.Lock()
        oldest = (time.time() - STARTED_KEPT_S,)
        statement = "DELETE FROM started WHERE ended = 1 AND at < ?"
        self._apply(lambda connection: connection.execute(statement, oldest).rowcount)

    def record_start(self, run: RunId, job: str) -> bool:
        """Record that a run starts; False if it was started before."""
        statement = "INSERT INTO started (run, job, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        row = (str(run), job, time.time())
        count = self._apply(lambda connection: connection.execute(statement, row).rowcount)
        return bool(count)  # guard: job-starts-once

    def record_end(self, run: RunId, parcels: Sequence[Report | Chunk]) -> None:
        """Record that a run has ended, with its report and telemetry."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE started SET ended = 1, job = '' WHERE run = ?", (str(run),))
            _insert(connection, parcels)

        self._apply(write)

    def add_parcels(self, parcels: Sequence[AnyParcel]) -> None:
        """Store parcels that belong to no run."""
        self._apply(lambda connection: _insert(connection, parcels))

    def interrupted_jobs(self) -> list[str]:
        """The jobs of runs that were started and never ended: their agent died."""
        statement = "SELECT job FROM started WHERE ended = 0 ORDER BY at"  # guard: interrupted-job
        rows = self._apply(lambda connection: connection.execute(statement).fetchall())
        return [row[0] for row in rows]

    def unconfirmed_ids(self) -> list[str]:
        """The ids of all unconfirmed parcels, oldest first."""
        statement = "SELECT id FROM parcel ORDER BY seq"
        rows = self._apply(lambda connection: connection.execute(statement).fetchall())
        return [row[0] for row in rows]

    def parcel_bodies(self, ids: Sequence[str]) -> dict[str, str]:
        """The bodies of those parcels that are still unconfirmed."""
        placeholders = ",".join("?" * len(ids))
        statement = f"SELECT id, body FROM parcel WHERE id IN ({placeholders}) ORDER BY seq"
        try:
            with self._reading:
                return dict(self._reader.execute(statement, tuple(ids)).fetchall())
        except sqlite3.Error as error:
            raise FarmTrouble(f"the spool cannot be read: {error}") from error

    def delete_confirmed(self, ids: Sequence[str]) -> None:
        """Delete parcels that the centre has stored."""
        rows = [(parcel_id,) for parcel_id in ids]
        statement = "DELETE FROM parcel WHERE id = ?"
        self._apply(lambda connection: connection.executemany(statement, rows))

    def delete_unreadable(self) -> None:
        """Delete parcels of another version of the messages; they would be refused forever.

        Phones are announced again anyway, and the lease of a report's run expires.
        """
        unreadable = []
        for parcel_id in self.unconfirmed_ids():
            for body in self.parcel_bodies([parcel_id]).values():
                try:
                    decode_parcel(body)
                except BadMessage as error:
                    log.warning("deleted a parcel that cannot be sent: %s id=%s", error, parcel_id)
                    unreadable.append(parcel_id)
        self.delete_confirmed(unreadable)

    def close(self) -> None:
        """Finish pending writes and close the file."""
        self._writes.put(None)
        self._writer.join()
        with self._reading:
            self._reader.close()

    def _apply(self, write: SpoolWrite) -> Any:
        if not self._writer.is_alive():
            raise FarmTrouble("the spool is closed")
        done: Future[Any] = Future()
        self._writes.put((write, done))
        return done.result()

    def _write(self) -> None:
        connection = self._file
        while (first := self._writes.get()) is not None:
            batch: list[tuple[SpoolWrite, Future[Any]] | None] = [first]
            while not self._writes.empty():
                batch.append(self._writes.get())
            _commit(connection, [item for item in batch if item is not None])
            if None in batch:
                break
        connection.close()


def _open_or_replace(path: Path) -> sqlite3.Connection:
    """Open the file; rename one that is damaged or no spool, so that the agent can work."""
    try:
        connection = _open_database(path)
        if _is_usable(connection):
            return connection
        connection.close()
    except DamagedSpool as error:
        log.debug("%s", error)
    aside = path.with_name(f"{path.name}.damaged-{time.time():.0f}")
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    log.error("the spool was damaged; its unconfirmed reports are lost file=%s", aside)
    connection = _open_database(path)
    connection.executescript(_SCHEMA)
    return connection


def _is_usable(connection: sqlite3.Connection) -> bool:
    """Create missing tables; return whether everything in the file can be used."""
    try:
        connection.executescript(_SCHEMA)
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        connection.execute("SELECT run, job, ended, at FROM started LIMIT 1")
        rows = connection.execute("SELECT id, typeof(body) FROM parcel").fetchall()
    except sqlite3.DatabaseError:
        return False
    return result == "ok" and all(kind == "text" and is_parcel_id(name) for name, kind in rows)


def _open_database(path: Path) -> sqlite3.Connection:
    """Open the file; a broken one fails here, before anything starts."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.OperationalError as error:  # no rights, no space
        raise FarmTrouble(f"the spool {path} cannot be opened: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DamagedSpool(f"the spool {path} is damaged: {error}") from error
    return connection


def _commit(
    connection: sqlite3.Connection, batch: Sequence[tuple[SpoolWrite, Future[Any]]]
) -> None:
    """Apply a batch in one transaction; the callers get their results after the commit."""
    results: list[Any] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        results = [write(connection) for write, _ in batch]
        if connection.in_transaction:
            connection.execute("COMMIT")
    except Exception as error:  # noqa: BLE001 - every caller gets the error, and the thread survives
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        for _, done in batch:
            done.set_exception(FarmTrouble(f"the spool cannot be written: {error}"))
        return
    for (_, done), result in zip(batch, results, strict=True):
        done.set_result(result)


def _insert(connection: sqlite3.Connection, parcels: Sequence[AnyParcel]) -> None:
    rows = [(parcel.parcel_id, parcel.model_dump_json()) for parcel in parcels]
    connection.executemany("INSERT OR REPLACE INTO parcel (id, body) VALUES (?, ?)", rows)
