"""A bad wire to the broker, on PostgreSQL with a store that is stopped as well."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store.sweep_queries import sweep_summaries
from tests.conftest import new_database, postgres_server, store_url_of
from tests.farm.conftest import HOSTS, LEASE_S, SETTINGS, Farm, a_farm, wait_for
from tests.farm.faulty_proxy import Odds, Postman
from tests.farm.test_trouble import MANY, finish, submit
from workloads.lab_settings import Lab


def test_lost_late_doubled_and_old_messages_a_host_cut_off_and_a_store_stopped(
    broker_url: str, tmp_path: Path
) -> None:
    """Each message has its fate, both ways; a host hears nothing; then the store is gone."""
    odds = Odds(lost=0.1, late=0.1, doubled=0.2, again=0.2)
    postman = Postman(broker_url, HOSTS, odds, late_s=2 * LEASE_S)
    with postman.at_work(), postgres_server(tmp_path) as server:
        store = new_database(store_url_of(server), "farm")
        settings = f'{SETTINGS}[broker]\nurl = "{postman.door("middle")}"\n'
        settings += f'[store]\nurl = "{store}"\n'
        agents = {host: ("--broker", postman.door(host)) for host in HOSTS}
        with a_farm(Lab.read(tmp_path / "elsewhere", {}), settings, options=agents) as farm:
            sweep = submit(farm, tmp_path, MANY)
            are_done(farm, sweep, 6)
            postman.silence("host-a")
            time.sleep(2 * LEASE_S)
            postman.speak("host-a")
            are_done(farm, sweep, 12)
            postman.cut()
            stop(server)
            wait_for(lambda: farm.spooled() > 0, "what was running is finished and spooled")
            time.sleep(2 * LEASE_S)
            server.ensure_postgres_running()
            finish(farm, sweep)
    assert {kind for kind, count in postman.done.items()} == {"lost", "late", "doubled", "again"}


@pytest.mark.slow
def test_a_host_that_is_heard_and_hears_nothing_then_a_minute_of_silence_and_a_bad_link(
    broker_url: str, tmp_path: Path
) -> None:
    """One way only: its heartbeats arrive, while jobs that it takes get lost on their way to it."""
    postman = Postman(broker_url, HOSTS, Odds(), late_s=0.0)
    with postman.at_work():
        settings = f'{SETTINGS}[broker]\nurl = "{postman.door("middle")}"\n'
        agents = {host: ("--broker", postman.door(host)) for host in HOSTS}
        with a_farm(Lab.read(tmp_path / "elsewhere", {}), settings, options=agents) as farm:
            sweep = submit(farm, tmp_path, MANY.replace("repeat: 3", "repeat: 8"))
            are_done(farm, sweep, 6)
            postman.withhold_answers("host-a")
            time.sleep(5 * LEASE_S)
            postman.speak("host-a")
            are_done(farm, sweep, 24)
            postman.silence("host-b")
            time.sleep(60)
            postman.speak("host-b")
            are_done(farm, sweep, 48)
            postman.dawdling_s = LEASE_S
            for _ in range(5):
                time.sleep(LEASE_S)
                postman.cut()
            postman.dawdling_s = 0.0
            finish(farm, sweep)
            assert all(child.alive for child in farm.children.values())


def are_done(farm: Farm, sweep: str, count: int) -> None:
    """Wait for so many runs."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= count, f"{count} runs are done")


def stop(server: Any) -> None:
    """End a PostgreSQL server at once, whatever is being committed."""
    os.kill(server.get_pid(), signal.SIGQUIT)
    wait_for(lambda: not server.get_postmaster_info().is_running(), "it is down")
