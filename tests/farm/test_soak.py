"""Sweeps under injected faults: the history satisfies every invariant."""

import os
import time
from pathlib import Path

import pytest

from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import Farm, start_farm, wait_for
from tests.farm.fault_injector import FaultInjector
from tests.farm.history_check import violations
from tests.farm.test_trouble import submit
from workloads.lab.settings import Lab

SHORT = """\
farm: 1
name: short-chaos
workload: mlp-4
phones: all
matrix: {batch_size: [32, 64]}
conditions: {cores: big2, freq: mid, start_temp_max_c: any}
repeat: 3
"""
# FARM_SOAK: phones per model (six models), trials per phone, seconds of faults.
PHONES, TRIALS, SECONDS = map(int, os.environ.get("FARM_SOAK", "8,209,600").split(","))
LONG = """\
farm: 1
name: soak
workload: mlp-1
phones: all
matrix: {{batch_size: {sizes}}}
conditions: {{cores: big2, freq: mid, start_temp_max_c: any, steps_min: 1, time_min: 0s}}
repeat: 1
"""


def check_history(farm: Farm, sweep: str, seconds: float) -> None:
    """Wait for the end of a sweep, and check every invariant of its history."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "the sweep ends", seconds)
    wait_for(lambda: len(farm.idle_phones()) == len(farm.phones()), "every phone is restored", 60)
    wait_for(lambda: not farm.spooled_parcels(), "every parcel is confirmed", 90)
    assert violations(farm, sweep) == []


def test_a_sweep_under_injected_faults_has_a_clean_history(
    own_farm: Farm, tmp_path: Path, seed: int
) -> None:
    sweep = submit(own_farm, tmp_path, SHORT)
    injector = FaultInjector(own_farm, seed)
    injector.run(until=lambda: bool(injector.injected))
    check_history(own_farm, sweep, 120)
    assert sweep_summaries(own_farm.db, sweep)[0].done > 0


@pytest.mark.slow
def test_fifty_phones_under_ten_minutes_of_faults(lab: Lab, tmp_path: Path, seed: int) -> None:
    sizes = list(range(1, TRIALS + 1))
    with start_farm(lab, count=PHONES) as farm:
        sweep = submit(farm, tmp_path, LONG.format(sizes=sizes))
        started = time.monotonic()
        injector = FaultInjector(farm, seed)
        injector.run(until=lambda: time.monotonic() - started > SECONDS)
        check_history(farm, sweep, 7200)
        summary = sweep_summaries(farm.db, sweep)[0]
        duration_s = time.monotonic() - started
    assert summary.total == TRIALS * PHONES * 6
    print(  # noqa: T201 - the soak's figures are its result
        f"{summary.total} runs on {PHONES * 6} phones in {duration_s:.0f} s: {summary.done} done, "
        f"{summary.failed} failed, {len(injector.injected)} faults"
    )
