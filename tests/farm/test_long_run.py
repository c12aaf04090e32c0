"""Days of a lab in hours: cold runs in event time, with faults, an upgrade and a restored backup.

FARM_LONG_RUN has the phones per model (eight models), the runs per phone, and after how many runs a
fault is injected. The full size has 40 phones on three hosts and 20,000 runs.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store.phone_queries import known_phones
from orchestrator.store.sweep_queries import sweep_summaries
from orchestrator.supervisor.process import ServiceProcess, stop_all
from orchestrator.supervisor.services import agent_process
from orchestrator.supervisor.virtual_phones import PROFILES, agent_options
from tests.farm.conftest import SETTINGS, Farm, start_farm_with, wait_for
from tests.farm.fault_injector import FaultInjector
from tests.farm.history_check import violations
from tests.farm.test_several_hosts import old_version
from tests.farm.test_trouble import submit
from workloads.cli_options import EVENT_TIME
from workloads.lab.settings import Lab

COUNT, RUNS, RUNS_PER_FAULT = map(int, os.environ.get("FARM_LONG_RUN", "5,500,50").split(","))
MODELS = (*PROFILES, "oneplus-6", "google-pixel-5")
HOSTS_COUNT, PHONE_HOURS = 3, 24.0
SWEEP = """\
farm: 1
name: long-run
workload: mlp-4
phones: all
matrix: {{batch_size: {sizes}}}
conditions: {{cores: big2, freq: mid, time_min: 150s}}
repeat: 1
"""
PATIENCE_S = 4 * 3600.0


@pytest.fixture
def long_farm(lab: Lab, tmp_path: Path) -> Iterator[Farm]:
    """A lab whose agents are of an older version."""
    lab.root.mkdir(parents=True)
    (lab.root / "lab.toml").write_text(SETTINGS)
    older = ("env", f"PYTHONPATH={old_version(tmp_path / 'older', 1)}")
    of_lab = Lab.read(lab.root, {})
    with start_farm_with(
        of_lab, MODELS, EVENT_TIME, hosts=HOSTS_COUNT, count=COUNT, wrapper=older
    ) as farm:
        yield farm


def ended_runs(farm: Farm, sweep: str) -> int:
    summary = sweep_summaries(farm.db, sweep)[0]
    return summary.total - summary.left


def upgrade_agents(farm: Farm, addresses: list[list[str]]) -> list[ServiceProcess]:
    """Replace one agent after the other by one of this version, while the sweep runs."""
    new = []
    for number, share in enumerate(addresses):
        old = farm.processes[f"agent-host-{number}"]
        stop_all([old])
        connect = [part for address in share for part in ("--connect", address)]
        agent = agent_process(farm.lab, f"host-{number}", *agent_options(EVENT_TIME), *connect)
        agent.start()
        farm.processes[f"agent-host-{number}"] = agent
        new.append(agent)
    return new


def restore_a_backup(farm: Farm, file: Path) -> None:
    """Restore what was written before; agents work on and keep their reports."""
    stop_all([farm.processes["scheduler"], farm.processes["ingest"]])
    wait_for(lambda: farm.broker.scheduler() is None, "the scheduler has stopped")
    restored = farm.command("store", "restore", file, "--replace")
    assert restored.returncode == 0, restored.stderr
    for name in ("ingest", "scheduler"):
        farm.processes[name].start()


def phone_hours(farm: Farm) -> list[float]:
    """Return how long each phone lived by its own clock."""
    found = []
    for phone in known_phones(farm.db):
        lines = farm.journal(phone.serial, "run_start", "run_stop")
        found.append((lines[-1]["model_s"] - lines[0]["model_s"]) / 3600)
    return found


def results_waiting(farm: Farm) -> dict[str, int]:
    """Return how much of the broker's memory the results of each host take."""
    return farm.broker.host_memory([f"host-{number}" for number in range(HOSTS_COUNT)])


def memory_mb(farm: Farm) -> float:
    """Return the memory of all processes of the lab, what they share counted once."""
    total = 0
    for process in farm.processes.values():
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


@pytest.mark.slow
def test_days_of_a_lab_lose_nothing(long_farm: Farm, tmp_path: Path, seed: int) -> None:
    farm, injector = long_farm, FaultInjector(long_farm, seed)
    sweep = submit(farm, tmp_path, SWEEP.format(sizes=list(range(1, RUNS + 1))))
    total = sweep_summaries(farm.db, sweep)[0].total
    assert total > 3 * RUNS_PER_FAULT, "too few runs for an upgrade and a restored backup"
    assert total == RUNS * COUNT * len(MODELS)
    memory = [memory_mb(farm)]
    started, backup, agents = time.monotonic(), tmp_path / "backup.zip", list[ServiceProcess]()
    try:
        for number in range(1, total // RUNS_PER_FAULT):
            wait_for(
                lambda n=number: ended_runs(farm, sweep) >= n * RUNS_PER_FAULT,  # type: ignore[misc]
                "runs end",
                PATIENCE_S,
            )
            injector.inject()
            part = number * RUNS_PER_FAULT / total
            if part >= 1 / 3 and not agents:
                agents = upgrade_agents(farm, addresses_of(farm))
                assert farm.command("store", "backup", backup).returncode == 0
            if part >= 2 / 3 and backup.exists():
                restore_a_backup(farm, backup)
                backup.unlink()
        wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "it ends", PATIENCE_S)
        wait_for(lambda: len(farm.idle_phones()) == len(farm.phones()), "phones are restored")
        wait_for(lambda: not farm.spooled_parcels(), "every parcel is confirmed")
        assert violations(farm, sweep) == []
        assert [size for size in results_waiting(farm).values() if size] == []
        memory.append(memory_mb(farm))
        summary, hours = sweep_summaries(farm.db, sweep)[0], phone_hours(farm)
        assert (summary.done, summary.failed) == (total, 0)
        assert len(agents) == HOSTS_COUNT
        assert not backup.exists(), "it was restored"
    finally:
        stop_all(agents)
    if RUNS >= 500:
        assert min(hours) > PHONE_HOURS
    print(  # noqa: T201 - the figures are the result
        f"{total} runs on {len(hours)} phones and {HOSTS_COUNT} hosts in "
        f"{time.monotonic() - started:.0f} s, with {len(injector.injected)} faults, "
        f"{len(agents)} upgraded agents and a restored backup: {summary.done} done, "
        f"{summary.failed} failed; "
        f"{min(hours):.1f} to {max(hours):.1f} h by the clocks of the phones; memory of the lab "
        f"{memory[0]:.0f} MB before and {memory[1]:.0f} MB after"
    )


def addresses_of(farm: Farm) -> list[list[str]]:
    """Return the addresses of the phones, by the number of their host."""
    content = json.loads((farm.lab.root / "virtual" / "phones.json").read_text())
    addresses = [phone["address"] for phone in content]
    return [addresses[number::HOSTS_COUNT] for number in range(HOSTS_COUNT)]
