"""Bad luck, with real processes: nothing is lost, nothing counts twice, phones are put back."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from orchestrator.decisions.states import RunState
from orchestrator.store.leases import LeasedRun, leased_runs
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import LEASE_S, Farm, a_farm, wait_for
from tests.farm.judge import NO_SKEW, Skews, breaches
from workloads.lab_settings import Lab

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
    """Submit a sweep and answer its id."""
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    sent = farm.command("sweep", "submit", file, "--json")
    assert sent.returncode == 0, sent.stderr
    return str(json.loads(sent.stdout)["sweep"])


def lease_of(farm: Farm, serial: str) -> list[LeasedRun]:
    """The lease on a phone, if there is one."""
    return [each for each in leased_runs(farm.db) if each.phone == serial]


def finish(farm: Farm, sweep: str, skew_s: Skews = NO_SKEW) -> None:
    """Wait until a sweep has finished, without a failure, each run stored once."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "the sweep finishes", 120)
    summary = sweep_summaries(farm.db, sweep)[0]
    assert (summary.total, 0) == (summary.done, summary.failed)
    wait_for(lambda: len(farm.idle()) == len(farm.phones()), "every phone is put back")
    wait_for(lambda: not farm.spooled(), "every parcel is confirmed", 90)
    assert breaches(farm, sweep, skew_s) == []


def test_an_agent_killed_in_mid_run(own_farm: Farm, tmp_path: Path) -> None:
    serial = next(name for name in own_farm.idle() if name.startswith("VM16T"))
    host = own_farm.phone(serial).host
    before = own_farm.clocks(serial)
    sweep = submit(own_farm, tmp_path, LONG)
    wait_for(lambda: own_farm.phone(serial).status.stage == "run", "the run starts")
    wait_for(lambda: len(own_farm.jobs(serial)) == 1, "the phone runs it")
    pinned = own_farm.clocks(serial)
    assert pinned != before, "the clocks were pinned"

    agent = own_farm.children[f"agent-{host}"]
    os.kill(agent.pid, signal.SIGKILL)
    killed = time.monotonic()
    wait_for(lambda: not agent.alive, "the agent is dead")
    wait_for(lambda: not lease_of(own_farm, serial), "its lease runs out")
    assert time.monotonic() - killed < 2 * LEASE_S, "a lost agent is noticed within the lease"
    agent.start()

    finish(own_farm, sweep)
    wait_for(lambda: own_farm.phone(serial).status.state == "idle", "the phone is idle")
    first = {}
    for write in own_farm.witness(serial, "sysfs_write"):
        first.setdefault(write["path"], write["old"])
    assert first == own_farm.clocks(serial), "every node has the value it had before the farm came"
    assert len(own_farm.jobs(serial)) == 3, "two runs, and the one that was cut"


@pytest.mark.slow  # by default, all of it in one history: test_soak.py
def test_a_broker_killed_and_wiped_in_mid_sweep(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done >= 6, "some runs are done")

    broker = own_farm.children["broker"]
    os.kill(broker.pid, signal.SIGKILL)
    wait_for(lambda: not broker.alive, "the broker is dead")
    shutil.rmtree(own_farm.lab.root / "broker" / "appendonlydir")
    broker.start()

    finish(own_farm, sweep)


@pytest.mark.slow  # by default, all of it in one history: test_soak.py
def test_a_scheduler_and_an_ingest_worker_killed_in_mid_sweep(
    own_farm: Farm, tmp_path: Path
) -> None:
    sweep = submit(own_farm, tmp_path, MANY)
    wait_for(lambda: sweep_summaries(own_farm.db, sweep)[0].done >= 3, "some runs are done")
    for name in ("ingest", "scheduler"):
        os.kill(own_farm.children[name].pid, signal.SIGKILL)
        wait_for(lambda name=name: not own_farm.children[name].alive, f"{name} is dead")
        own_farm.children[name].start()
    finish(own_farm, sweep)
    for serial in own_farm.idle():
        assert len(own_farm.jobs(serial)) == 6, "no run was made again"


def test_a_lab_stopped_in_mid_sweep_leaves_no_lease_and_every_phone_as_it_was(
    lab: Lab, tmp_path: Path
) -> None:
    with a_farm(lab) as farm:
        sweep = submit(farm, tmp_path, MANY)
        wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= 3, "some runs are done")
    left = sweep_summaries(farm.db, sweep)[0].runs
    assert RunState.LEASED not in left
    assert left[RunState.QUEUED] > 0
    serials = [phone.serial for phone in known_phones(farm.db)]
    for serial in serials:
        first: dict[str, str] = {}
        for write in farm.witness(serial, "sysfs_write"):
            first.setdefault(write["path"], write["old"])
        assert first == farm.clocks(serial)
