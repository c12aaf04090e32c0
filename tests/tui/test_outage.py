"""Broker and store gone for ten seconds: the screen says so, answers its keys, and comes back."""

import time

import pytest
from sqlalchemy import create_engine, text

from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import wait_for_broker
from orchestrator.supervisor.process import stop_all
from tests.builders import a_trial
from tests.conftest import new_database
from tests.tui.conftest import QuietLab, meet, queue
from tests.tui.pty_screen import glass

GONE_S = 10.0


@pytest.mark.parametrize("gone_s", [5.0, pytest.param(GONE_S, marks=pytest.mark.slow)])
def test_a_broker_that_is_gone_is_told_and_waited_for(quiet_lab: QuietLab, gone_s: float) -> None:
    with glass("watch", "--lab", quiet_lab.lab.root, columns=120) as screen:
        screen.wait("● live", "phones 4")
        stop_all([quiet_lab.child])
        gone = time.monotonic()
        screen.wait("old: the broker does not answer", seconds=10)
        assert "live" not in screen.text
        for key, words in (("?", "keys and terms"), ("x", "phones 4"), ("\r", "esc closes")):
            screen.press(key)
            screen.wait(words, seconds=2)
        time.sleep(max(0.0, gone + gone_s - time.monotonic()))
        screen.wait(" s old", seconds=5)
        quiet_lab.child.start()
        wait_for_broker(quiet_lab.lab, quiet_lab.child)
        screen.wait("● live", seconds=10)
        screen.press("qq")
        assert screen.ended() == 0


@pytest.mark.slow
def test_a_store_that_is_gone_for_ten_seconds_is_told_and_waited_for(
    quiet_lab: QuietLab, postgres: str
) -> None:
    url = new_database(postgres, "watched")
    db = Database(url)
    db.migrate()
    meet(db, "PH0")
    queue(db, [a_trial(0, "PH0")])
    db.close()
    server = create_engine(postgres, isolation_level="AUTOCOMMIT")
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'watched'"
    lab = quiet_lab.lab.root
    with glass("watch", "--lab", lab, columns=120, FARM_STORE=url) as screen:
        screen.wait("● live", "phones 1")
        with server.connect() as connection:
            connection.execute(text("ALTER DATABASE watched ALLOW_CONNECTIONS false"))
            connection.execute(text(end))
            gone = time.monotonic()
            screen.wait("old: the store does not answer", seconds=10)
            screen.press("?")
            screen.wait("keys and terms", seconds=2)
            screen.press("x")
            time.sleep(max(0.0, gone + GONE_S - time.monotonic()))
            connection.execute(text("ALTER DATABASE watched ALLOW_CONNECTIONS true"))
        screen.wait("● live", seconds=10)
        screen.press("q")
        assert screen.ended() == 0
    server.dispose()
