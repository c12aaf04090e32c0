"""The worst day of a lab on PostgreSQL: a bad wire to the broker, and a store that is stopped."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from orchestrator.store.queries import sweep_summaries
from tests.conftest import a_postgres, new_database, url_of
from tests.farm.conftest import HOSTS, LEASE_S, SETTINGS, Farm, a_farm, wait_for
from tests.farm.postman import Odds, Postman
from tests.farm.test_trouble import MANY, finish, submit
from workloads.lab import Lab


def test_lost_late_doubled_and_old_messages_a_host_cut_off_and_a_store_stopped(
    broker_url: str, tmp_path: Path
) -> None:
    """Each message has its fate, both ways; a host hears nothing; then the store is gone."""
    odds = Odds(lost=0.1, late=0.1, doubled=0.2, again=0.2)
    postman = Postman(broker_url, HOSTS, odds, late_s=2 * LEASE_S)
    with postman.at_work(), a_postgres(tmp_path) as server:
        store = new_database(url_of(server), "farm")
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
    assert {"lost", "late", "doubled", "again"} == {kind for kind, count in postman.done.items()}


def are_done(farm: Farm, sweep: str, count: int) -> None:
    """Wait for so many runs."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= count, f"{count} runs are done")


def stop(server: Any) -> None:
    """End a PostgreSQL server at once, whatever is being committed."""
    os.kill(server.get_pid(), signal.SIGQUIT)
    wait_for(lambda: not server.get_postmaster_info().is_running(), "it is down")
