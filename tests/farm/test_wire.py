"""A faulty connection to the broker, on PostgreSQL with a store that is stopped as well."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from orchestrator.planning.states import ReportStatus
from orchestrator.store.sweep_queries import sweep_summaries
from orchestrator.store.tables import report
from tests.conftest import new_database, postgres_server, store_url_of
from tests.farm.conftest import HOSTS, LEASE_S, SETTINGS, Farm, start_farm, wait_for
from tests.farm.faulty_proxy import FaultRates, FaultyProxy
from tests.farm.test_trouble import MANY, finish, submit
from workloads.lab.settings import Lab


@pytest.mark.slow  # test_soak.py has these faults one by one
def test_faulty_messages_a_host_cut_off_and_a_stopped_store(
    broker_url: str, tmp_path: Path
) -> None:
    """Messages are lost, late, doubled or replayed in both directions."""
    rates = FaultRates(lost=0.1, late=0.1, doubled=0.2, replayed=0.2)
    proxy = FaultyProxy(broker_url, HOSTS, rates, late_s=2 * LEASE_S)
    with proxy.running(), postgres_server() as server:
        store = new_database(store_url_of(server), "farm")
        settings = f'{SETTINGS}[broker]\nurl = "{proxy.open_port("central")}"\n'
        settings += f'[store]\nurl = "{store}"\n'
        agents = {host: ("--broker", proxy.open_port(host)) for host in HOSTS}
        with start_farm(Lab.read(tmp_path / "elsewhere", {}), settings, options=agents) as farm:
            sweep = submit(farm, tmp_path, MANY)
            wait_for_runs(farm, sweep, 6)
            proxy.block("host-a")
            time.sleep(2 * LEASE_S)
            proxy.unblock("host-a")
            wait_for_runs(farm, sweep, 12)
            proxy.cut_connections()
            stop_postgres(server)
            wait_for(lambda: farm.spooled_parcels() > 0, "finished runs are in the spool")
            time.sleep(2 * LEASE_S)
            server.ensure_postgres_running()
            finish(farm, sweep)
    assert proxy.counts.keys() == {"lost", "late", "doubled", "replayed"}


@pytest.mark.slow
def test_a_host_without_replies_then_a_blocked_host_then_a_slow_connection(
    broker_url: str, tmp_path: Path
) -> None:
    """Heartbeats of a host without replies arrive, but its jobs are lost on their way to it."""
    proxy = FaultyProxy(broker_url, HOSTS, FaultRates(), late_s=0.0)
    with proxy.running():
        settings = f'{SETTINGS}[broker]\nurl = "{proxy.open_port("central")}"\n'
        agents = {host: ("--broker", proxy.open_port(host)) for host in HOSTS}
        with start_farm(Lab.read(tmp_path / "elsewhere", {}), settings, options=agents) as farm:
            sweep = submit(farm, tmp_path, MANY.replace("repeat: 3", "repeat: 8"))
            wait_for_runs(farm, sweep, 6)
            proxy.block_replies("host-a")
            time.sleep(5 * LEASE_S)
            proxy.unblock("host-a")
            wait_for_runs(farm, sweep, 24)
            proxy.block("host-b")
            time.sleep(60)
            proxy.unblock("host-b")
            wait_for_runs(farm, sweep, 48)
            proxy.delay_max_s = LEASE_S
            for _ in range(5):
                time.sleep(LEASE_S)
                proxy.cut_connections()
            proxy.delay_max_s = 0.0
            finish(farm, sweep)
            assert all(process.alive for process in farm.processes.values())


@pytest.mark.slow
def test_a_cut_of_two_leases_costs_no_finished_run(broker_url: str, tmp_path: Path) -> None:
    """Each phone of the host ends a run during each cut; none of these reports is too late."""
    proxy = FaultyProxy(broker_url, HOSTS, FaultRates(), late_s=0.0)
    with proxy.running():
        settings = f'{SETTINGS}[broker]\nurl = "{proxy.open_port("central")}"\n'
        agents = {host: ("--broker", proxy.open_port(host)) for host in HOSTS}
        with start_farm(Lab.read(tmp_path / "elsewhere", {}), settings, options=agents) as farm:
            sweep = submit(farm, tmp_path, MANY.replace("repeat: 3", "repeat: 6"))
            for cut in range(1, 4):
                wait_for_runs(farm, sweep, 8 * cut)
                proxy.block("host-a")
                wait_for(lambda: farm.spooled_parcels() > 0, "a run has ended during the cut")
                time.sleep(2 * LEASE_S)
                proxy.unblock("host-a")
            finish(farm, sweep)
            with farm.db.read() as connection:
                stale = select(func.count()).where(report.c.status == ReportStatus.STALE)
                assert connection.execute(stale).scalar_one() == 0


def wait_for_runs(farm: Farm, sweep: str, count: int) -> None:
    """Wait until a number of runs is done."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= count, f"{count} runs are done")


def stop_postgres(server: Any) -> None:
    """Stop a PostgreSQL server immediately, without waiting for commits."""
    os.kill(server.get_pid(), signal.SIGQUIT)
    wait_for(lambda: not server.get_postmaster_info().is_running(), "PostgreSQL is stopped")
