"""An infected computer that was enrolled as a host: honest hosts lose nothing.

The slow test repeats sweeps with and without the attacks in turns, for half an hour or
FARM_HOSTILE_S seconds, and prints how many runs honest hosts did in both.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store.phone_queries import known_phones
from tests.farm.conftest import HOSTS, SETTINGS, Farm, start_farm, wait_for
from tests.farm.hostile_host import NAME, HostileHost, enrol
from tests.farm.test_trouble import finish, submit
from workloads.lab.settings import Lab

SECONDS = float(os.environ.get("FARM_HOSTILE_S", "1800"))
SWEEP = """\
farm: 1
name: honest
workload: mlp-4
phones: all
matrix: {{batch_size: [32, 64]}}
conditions: {{cores: big2, freq: mid, start_temp_max_c: any}}
repeat: {repeat}
"""


@pytest.fixture
def shared_farm(lab: Lab) -> Iterator[Farm]:
    """A lab of two honest hosts and one that is not."""
    with start_farm(lab, f"{SETTINGS}hosts = {json.dumps(HOSTS)}\n") as farm:
        enrol(farm)
        yield farm


def accepted_of(farm: Farm, host: str) -> int:
    """Count the accepted reports of a host."""
    query = f"SELECT count(*) FROM report WHERE host = '{host}' AND status = 'accepted'"
    with farm.db.read() as connection:
        return int(connection.exec_driver_sql(query).scalar() or 0)


def check_nothing_is_lost(farm: Farm, sweep: str, pids: dict[str, int]) -> None:
    """Check the history of a sweep, the owners of all phones, and that no process has ended."""
    finish(farm, sweep)
    assert accepted_of(farm, NAME) == 0
    assert {phone.host for phone in known_phones(farm.db)} == set(HOSTS)
    assert {phone.health for phone in known_phones(farm.db)} == {"good"}
    assert {name: process.pid for name, process in farm.processes.items()} == pids
    assert all(process.alive for process in farm.processes.values())


def test_a_host_that_lies_about_everything_costs_no_run(
    shared_farm: Farm, tmp_path: Path, seed: int
) -> None:
    pids = {name: process.pid for name, process in shared_farm.processes.items()}
    sweep = submit(shared_farm, tmp_path, SWEEP.format(repeat=2))
    with HostileHost(shared_farm, seed) as hostile:
        wait_for(lambda: hostile.rounds > 0, "every attack was tried")
        check_nothing_is_lost(shared_farm, sweep, pids)
        told = shared_farm.command("doctor").stdout
        assert NAME in told
    kinds = {"claim", "take_over", "send_chunks", "send_nonsense", "touch_keys", "fill"}
    assert kinds <= set(hostile.tried), hostile.tried
    assert hostile.refused["touch_keys"] == hostile.tried["touch_keys"]


@pytest.mark.slow
def test_honest_hosts_beside_a_hostile_one(shared_farm: Farm, tmp_path: Path, seed: int) -> None:
    pids = {name: process.pid for name, process in shared_farm.processes.items()}
    took: dict[bool, list[float]] = {False: [], True: []}
    tried, refused = Counter[str](), Counter[str]()
    ends_at = time.monotonic() + SECONDS
    for turn in range(1_000_000):
        started, attacked = time.monotonic(), turn % 2 == 1
        sweep = submit(shared_farm, tmp_path, SWEEP.format(repeat=5).replace("honest", f"h{turn}"))
        if attacked:
            with HostileHost(shared_farm, seed + turn) as hostile:
                check_nothing_is_lost(shared_farm, sweep, pids)
            tried, refused = tried + hostile.tried, refused + hostile.refused
        else:
            check_nothing_is_lost(shared_farm, sweep, pids)
        took[attacked].append(time.monotonic() - started)
        if attacked and time.monotonic() > ends_at:
            break
    assert tried["forge"] > 0
    share = sum(took[False]) / sum(took[True])  # as many sweeps with it as without it
    print(  # noqa: T201 - the figures are the result
        f"{len(took[True])} sweeps of 60 runs with and as many without attacks: {share:.0%} of the "
        f"rate; tried {dict(tried)}; refused by the broker {dict(refused)}"
    )
