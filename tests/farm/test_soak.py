"""Whatever is broken meanwhile, the history is clean: so say the store and the phones."""

import os
import time
from pathlib import Path

import pytest

from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import Farm, a_farm, wait_for
from tests.farm.judge import breaches
from tests.farm.nemesis import Nemesis
from tests.farm.test_trouble import submit
from workloads.lab_settings import Lab

SHORT = """\
farm: 1
name: short-chaos
workload: mlp-4
phones: all
matrix: {batch_size: [32, 64]}
conditions: {cores: big2, freq: mid, start_temp_max_c: any}
repeat: 4
"""
# FARM_SOAK: phones of each of six models, trials of each phone, seconds of trouble.
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


def judged(farm: Farm, sweep: str, seconds: float) -> None:
    """Wait for the end of a sweep, and hold its history against every promise."""
    wait_for(lambda: sweep_summaries(farm.db, sweep)[0].finished, "the sweep ends", seconds)
    wait_for(lambda: len(farm.idle()) == len(farm.phones()), "every phone is put back", 60)
    wait_for(lambda: not farm.spooled(), "every parcel is confirmed", 90)
    assert breaches(farm, sweep) == []


def test_whatever_is_broken_meanwhile_the_history_is_clean(own_farm: Farm, tmp_path: Path) -> None:
    sweep = submit(own_farm, tmp_path, SHORT)
    nemesis = Nemesis(own_farm, seed=1)
    nemesis.strike(until=lambda: bool(nemesis.done))
    judged(own_farm, sweep, 120)
    assert sweep_summaries(own_farm.db, sweep)[0].done > 0


@pytest.mark.slow
def test_a_lab_of_fifty_phones_under_ten_minutes_of_trouble(lab: Lab, tmp_path: Path) -> None:
    sizes = list(range(1, TRIALS + 1))
    with a_farm(lab, count=PHONES) as farm:
        sweep = submit(farm, tmp_path, LONG.format(sizes=sizes))
        began = time.monotonic()
        nemesis = Nemesis(farm, seed=int(os.environ.get("FARM_SOAK_SEED", "1")))
        nemesis.strike(until=lambda: time.monotonic() - began > SECONDS)
        judged(farm, sweep, 7200)
        summary = sweep_summaries(farm.db, sweep)[0]
        took = time.monotonic() - began
    assert summary.total == TRIALS * PHONES * 6
    print(  # noqa: T201 - the soak's figures are its result
        f"{summary.total} runs on {PHONES * 6} phones in {took:.0f} s: {summary.done} done, "
        f"{summary.failed} failed, {len(nemesis.done)} faults"
    )
