"""Outages of broker and store: running runs finish, their reports are spooled and later stored."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import LEASE_S, Farm, wait_for
from tests.farm.fault_injector import locked
from tests.farm.test_trouble import MANY, finish, submit


def wait_for_six_runs(farm: Farm, sweep: str) -> None:
    """Wait until six runs are done."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= 6, "six runs are done")


def wait_for_spool(farm: Farm) -> None:
    """Wait until a report is spooled because it cannot be delivered."""
    wait_for(lambda: farm.spooled_parcels() > 0, "finished runs are in the spool")


@contextmanager
def full_disk(farm: Farm, *names: str) -> Iterator[None]:
    """Make every write of some processes fail, as on a full or read-only disk."""
    pids = [farm.processes[name].pid for name in names]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard_limit) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard_limit))
    yield
    for pid, limit in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


@pytest.mark.slow  # test_soak.py has a shorter outage among other faults
def test_a_broker_outage_of_a_minute(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for_six_runs(own_farm, sweep)
    broker = own_farm.processes["broker"]
    os.kill(broker.pid, signal.SIGKILL)
    wait_for(lambda: not broker.alive, "the broker is dead")
    wait_for_spool(own_farm)
    time.sleep(60)
    before = sweep_summaries(own_farm.db, sweep)[0].done
    broker.start()
    wait_for(
        lambda: sweep_summaries(own_farm.db, sweep)[0].done > before, "runs continue at once", 5
    )
    finish(own_farm, sweep)
    for serial in own_farm.idle_phones():
        assert len(own_farm.jobs(serial)) == 6, "a run was repeated"


@pytest.mark.slow
def test_a_broker_without_memory(own_farm: Farm, tmp_path: Path) -> None:
    """A broker without memory answers, but refuses every message; senders retry."""
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for_six_runs(own_farm, sweep)
    broker: Any = redis.Redis.from_url(own_farm.lab.broker_url)
    broker.config_set("maxmemory", 1)
    wait_for_spool(own_farm)
    time.sleep(3 * LEASE_S)
    broker.config_set("maxmemory", 0)
    broker.close()
    finish(own_farm, sweep)
    assert all(process.alive for process in own_farm.processes.values())


@pytest.mark.slow  # test_soak.py has this fault among others
def test_a_locked_store(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for_six_runs(own_farm, sweep)
    with locked(own_farm):
        wait_for_spool(own_farm)
        time.sleep(40)  # longer than SQLite waits for a lock
        before = sweep_summaries(own_farm.db, sweep)[0].done
    wait_for(
        lambda: sweep_summaries(own_farm.db, sweep)[0].done > before, "runs continue at once", 5
    )
    finish(own_farm, sweep)
    for serial in own_farm.idle_phones():
        assert len(own_farm.jobs(serial)) == 6, "a run was repeated"


@pytest.mark.slow
def test_a_store_whose_disk_is_full(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for_six_runs(own_farm, sweep)
    with full_disk(own_farm, "scheduler", "ingest"):
        wait_for_spool(own_farm)
        time.sleep(2 * LEASE_S)
        before = sweep_summaries(own_farm.db, sweep)[0].done
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done > before, "runs continue", 15)
    finish(own_farm, sweep)
    assert all(process.alive for process in own_farm.processes.values())


@pytest.mark.slow
def test_a_host_whose_disk_is_full(own_farm: Farm, tmp_path: Path) -> None:
    """A host that cannot write its spool starts no run; a started run is repeated."""
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for_six_runs(own_farm, sweep)
    with full_disk(own_farm, "agent-host-a"):
        time.sleep(5 * LEASE_S)
    finish(own_farm, sweep)
    assert all(process.alive for process in own_farm.processes.values())
