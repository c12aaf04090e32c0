"""PostgreSQL that ends connections at any moment, as when it fails over."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from orchestrator.planning.states import RunState
from orchestrator.store import leases, phone_queries
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from tests.builders import a_report
from tests.conftest import new_database
from tests.leasing import lease_next
from tests.store import three_phones
from workloads.protocol.faults import StoreDown
from workloads.protocol.messages import Job

ENDS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
REPEATS = 12


def end_connections(url: str, stop: threading.Event) -> None:
    """End all connections to a database, again and again."""
    engine, rng = create_engine(url, isolation_level="AUTOCOMMIT"), random.Random(1)
    with engine.connect() as connection:
        while not stop.wait(rng.uniform(0.0, 0.2)):
            connection.execute(text(f"{ENDS} AND datname = current_database()"))
    engine.dispose()


def repeat_until_done(action: Callable[[], Any], lost: list[str]) -> Any:
    """Repeat an action as a service does: only an outage of the store is expected."""
    while True:
        try:
            return action()
        except StoreDown as error:
            lost.append(str(error))


@pytest.mark.slow
def test_runs_are_stored_once_while_connections_are_cut(postgres: str) -> None:
    url = new_database(postgres, "cut_connections")
    store = Database(url)
    store.migrate()
    three_phones.announce_phones(store)
    three_phones.submit(store, repeat=REPEATS)
    stop, lost = threading.Event(), list[str]()
    cutter = threading.Thread(target=end_connections, args=(url, stop))
    cutter.start()
    now, done = 2e9, 0
    try:
        while done < REPEATS * len(three_phones.PHONES):
            now += 60
            repeat_until_done(lambda at=now: leases.expire(store, at, set(), set()), lost)
            jobs: list[tuple[str, Job]] = repeat_until_done(
                lambda at=now: lease_next(store, three_phones.HOSTS, 30, now=at), lost
            )
            reports = [a_report(job) for _, job in jobs]
            repeat_until_done(lambda sent=reports: store_parcels(store, "host-a", sent), lost)
            repeat_until_done(lambda: phone_queries.known_phones(store), lost)
            done = repeat_until_done(lambda: three_phones.counts(store), lost)[RunState.DONE]
    finally:
        stop.set()
        cutter.join()
    assert len(lost) > 5, "nothing was cut"
    with store.read() as connection:
        rows = connection.execute(
            text(
                "SELECT trial, repeat, count(*) FROM report WHERE status = 'accepted' GROUP BY 1, 2"
            )
        ).all()
    store.close()
    assert len(rows) == REPEATS * len(three_phones.PHONES)
    assert {row[2] for row in rows} == {1}
