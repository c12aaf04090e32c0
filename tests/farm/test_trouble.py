"""Killed processes: no run is lost or counted twice, and phones are restored."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from orchestrator.planning.states import RunState
from orchestrator.store.leases import LeasedRun, leased_runs
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import PROCESSES, Farm, node_name, start_farm, wait_for
from tests.farm.history_check import NO_SKEW, Skews, violations
from workloads.lab.settings import Lab

LONG = """\
farm: 1
name: long
workload: mlp-4
phones: [VM16T*]
matrix: {protocol: [endurance]}
conditions: {cores: big2, freq: mid}
repeat: 2
"""
MANY = """\
farm: 1
name: many
workload: mlp-4
phones: all
matrix: {batch_size: [32, 64]}
conditions: {cores: big2, freq: mid}
repeat: 3
"""


def submit(farm: Farm, tmp_path: Path, text: str) -> str:
    """Submit a sweep and return its id."""
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    result = farm.command("sweep", "submit", file, "--json")
    assert result.returncode == 0, result.stderr
    return str(json.loads(result.stdout)["sweep"])


def lease_of(farm: Farm, serial: str) -> list[LeasedRun]:
    """Return the lease on a phone, if there is one."""
    return [lease for lease in leased_runs(farm.db) if lease.phone == serial]


def finish(farm: Farm, sweep: str, skew_s: Skews = NO_SKEW) -> None:
    """Wait for the end of a sweep; check that no run failed, and every invariant."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "the sweep finishes", 120)
    summary = sweep_summaries(farm.db, sweep)[0]
    assert (summary.done, summary.failed) == (summary.total, 0)
    wait_for(lambda: len(farm.idle_phones()) == len(farm.phones()), "every phone is restored")
    wait_for(lambda: not farm.spooled_parcels(), "every parcel is confirmed", 90)
    assert violations(farm, sweep, skew_s) == []


def original_clocks(farm: Farm, serial: str) -> dict[str, str]:
    """Return the value that every written kernel node had before its first write."""
    values: dict[str, str] = {}
    for write in farm.journal(serial, "sysfs_write"):
        if not write["path"].endswith(PROCESSES):
            values.setdefault(node_name(write["path"]), write["old"])
    return values


@pytest.mark.slow  # test_soak.py has this fault among others
def test_an_agent_killed_during_a_run(own_farm: Farm, tmp_path: Path) -> None:
    serial = next(name for name in own_farm.idle_phones() if name.startswith("VM16T"))
    host = own_farm.phone(serial).host
    before = own_farm.clocks(serial)
    sweep = submit(own_farm, tmp_path, LONG)
    wait_for(lambda: own_farm.phone(serial).status.stage == "run", "the run starts")
    wait_for(lambda: len(own_farm.jobs(serial)) == 1, "the phone runs it")
    assert own_farm.clocks(serial) != before, "the clocks were not pinned"

    agent = own_farm.processes[f"agent-{host}"]
    os.kill(agent.pid, signal.SIGKILL)
    wait_for(lambda: not agent.alive, "the agent is dead")
    wait_for(lambda: not lease_of(own_farm, serial), "its lease expires")
    log = own_farm.lab.log_file("scheduler").read_text()
    assert re.search(rf"lease expired run=\S+ phone={serial} host={host}\b", log)
    agent.start()

    finish(own_farm, sweep)
    wait_for(lambda: own_farm.phone(serial).status.state == "idle", "the phone is idle")
    assert own_farm.clocks(serial) == original_clocks(own_farm, serial)
    assert len(own_farm.jobs(serial)) == 3, "two runs, and the interrupted one"


@pytest.mark.slow  # test_soak.py has this fault among others
def test_a_broker_killed_and_wiped_during_a_sweep(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done >= 6, "some runs are done")

    broker = own_farm.processes["broker"]
    os.kill(broker.pid, signal.SIGKILL)
    wait_for(lambda: not broker.alive, "the broker is dead")
    shutil.rmtree(own_farm.lab.root / "broker" / "appendonlydir")
    broker.start()

    finish(own_farm, sweep)


@pytest.mark.slow  # test_soak.py has this fault among others
def test_a_scheduler_and_an_ingest_worker_killed_during_a_sweep(
    own_farm: Farm, tmp_path: Path
) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done >= 3, "some runs are done")
    for name in ("ingest", "scheduler"):
        os.kill(own_farm.processes[name].pid, signal.SIGKILL)
        wait_for(lambda name=name: not own_farm.processes[name].alive, f"{name} is dead")
        own_farm.processes[name].start()
    finish(own_farm, sweep)
    for serial in own_farm.idle_phones():
        assert len(own_farm.jobs(serial)) == 6, "a run was repeated"


def test_a_lab_stopped_during_a_sweep_leaves_no_lease_and_restores_every_phone(
    lab: Lab, tmp_path: Path
) -> None:
    with start_farm(lab) as farm:
        sweep = submit(farm, tmp_path, MANY)
        wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= 3, "some runs are done")
    runs = sweep_summaries(farm.db, sweep)[0].runs
    assert RunState.LEASED not in runs
    assert runs[RunState.QUEUED] > 0
    for phone in known_phones(farm.db):
        assert farm.clocks(phone.serial) == original_clocks(farm, phone.serial)
