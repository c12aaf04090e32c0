"""Broker or store away for a while: what runs is finished and kept, and then everything goes on."""

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
from tests.farm.nemesis import locked
from tests.farm.test_trouble import MANY, finish, submit


def some_runs_are_done(farm: Farm, sweep: str) -> None:
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= 6, "some runs are done")


def runs_are_spooled(farm: Farm) -> None:
    """Agents go on without anybody to report to, and keep what they have."""
    wait_for(lambda: farm.spooled() > 0, "what was running is finished and spooled")


@contextmanager
def full_disk(farm: Farm, *names: str) -> Iterator[None]:
    """Let every write of some processes fail, as on a disk that is full or has turned read-only."""
    pids = [farm.children[name].pid for name in names]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, most) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
    yield
    for pid, limit in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


@pytest.mark.slow  # shorter, and among others, in test_soak.py
def test_a_broker_that_is_away_for_a_minute(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    some_runs_are_done(own_farm, sweep)
    broker = own_farm.children["broker"]
    os.kill(broker.pid, signal.SIGKILL)
    wait_for(lambda: not broker.alive, "the broker is dead")
    runs_are_spooled(own_farm)
    time.sleep(60)
    before = sweep_summaries(own_farm.db, sweep)[0].done
    broker.start()
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done > before, "it goes on at once", 5)
    finish(own_farm, sweep)
    for serial in own_farm.idle():
        assert len(own_farm.jobs(serial)) == 6, "what had been run was not run again"


@pytest.mark.slow
def test_a_broker_without_memory(own_farm: Farm, tmp_path: Path) -> None:
    """It answers, and takes nothing: whoever wants to tell it something waits."""
    sweep = submit(own_farm, tmp_path, MANY)
    some_runs_are_done(own_farm, sweep)
    broker: Any = redis.Redis.from_url(own_farm.lab.broker_url)
    broker.config_set("maxmemory", 1)
    runs_are_spooled(own_farm)
    time.sleep(3 * LEASE_S)
    broker.config_set("maxmemory", 0)
    broker.close()
    finish(own_farm, sweep)
    assert all(child.alive for child in own_farm.children.values())


@pytest.mark.slow  # among others, in test_soak.py
def test_a_locked_store(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    some_runs_are_done(own_farm, sweep)
    with locked(own_farm):
        runs_are_spooled(own_farm)
        time.sleep(40)  # longer than SQLite waits for a lock
        before = sweep_summaries(own_farm.db, sweep)[0].done
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done > before, "it goes on at once", 5)
    finish(own_farm, sweep)
    for serial in own_farm.idle():
        assert len(own_farm.jobs(serial)) == 6, "what had been run was not run again"


@pytest.mark.slow
def test_a_store_whose_disk_is_full(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    some_runs_are_done(own_farm, sweep)
    with full_disk(own_farm, "scheduler", "ingest"):
        runs_are_spooled(own_farm)
        time.sleep(2 * LEASE_S)
        before = sweep_summaries(own_farm.db, sweep)[0].done
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done > before, "it goes on", 15)
    finish(own_farm, sweep)
    assert all(child.alive for child in own_farm.children.values())


@pytest.mark.slow
def test_a_host_whose_disk_is_full(own_farm: Farm, tmp_path: Path) -> None:
    """Without a place for its notes it begins nothing; what it had begun is made again."""
    sweep = submit(own_farm, tmp_path, MANY)
    some_runs_are_done(own_farm, sweep)
    with full_disk(own_farm, "agent-host-a"):
        time.sleep(5 * LEASE_S)
    finish(own_farm, sweep)
    assert all(child.alive for child in own_farm.children.values())
