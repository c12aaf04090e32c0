"""`farm watch` while broker or store is down: shows the outage, answers keys, and reconnects."""

import time

import pytest
from sqlalchemy import create_engine, text

from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import wait_for_broker
from orchestrator.supervisor.process import stop_all
from tests.builders import a_trial
from tests.conftest import new_database
from tests.tui.conftest import QuietLab, announce_phone, queue_runs
from tests.tui.pty_screen import open_farm_screen

OUTAGE_S = 10.0


@pytest.mark.parametrize("outage_s", [3.0, pytest.param(OUTAGE_S, marks=pytest.mark.slow)])
def test_the_screen_survives_an_outage_of_the_broker(quiet_lab: QuietLab, outage_s: float) -> None:
    with open_farm_screen("watch", "--lab", quiet_lab.lab.root, columns=120) as screen:
        screen.wait("● live", "phones 4")
        stop_all([quiet_lab.broker_process])
        stopped = time.monotonic()
        screen.wait("old: the broker does not answer")
        assert "live" not in screen.text
        for key, shown in (("?", "keys and terms"), ("x", "phones 4"), ("\r", "esc closes")):
            screen.press(key)
            screen.wait(shown)
        time.sleep(max(0.0, stopped + outage_s - time.monotonic()))
        screen.wait(" s old")
        quiet_lab.broker_process.start()
        wait_for_broker(quiet_lab.lab, quiet_lab.broker_process)
        screen.wait("● live")
        screen.press("qq")
        assert screen.wait_for_end() == 0


@pytest.mark.slow
def test_the_screen_survives_an_outage_of_the_store(quiet_lab: QuietLab, postgres: str) -> None:
    url = new_database(postgres, "watched")
    db = Database(url)
    db.migrate()
    announce_phone(db, "PH0")
    queue_runs(db, [a_trial(0, "PH0")])
    db.close()
    server = create_engine(postgres, isolation_level="AUTOCOMMIT")
    disconnect = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'watched'"
    lab = quiet_lab.lab.root
    with open_farm_screen("watch", "--lab", lab, columns=120, FARM_STORE=url) as screen:
        screen.wait("● live", "phones 1")
        with server.connect() as connection:
            connection.execute(text("ALTER DATABASE watched ALLOW_CONNECTIONS false"))
            connection.execute(text(disconnect))
            stopped = time.monotonic()
            screen.wait("old: the store does not answer")
            screen.press("?")
            screen.wait("keys and terms")
            screen.press("x")
            time.sleep(max(0.0, stopped + OUTAGE_S - time.monotonic()))
            connection.execute(text("ALTER DATABASE watched ALLOW_CONNECTIONS true"))
        screen.wait("● live")
        screen.press("q")
        assert screen.wait_for_end() == 0
    server.dispose()
