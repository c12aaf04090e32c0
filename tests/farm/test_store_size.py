"""The size of a store: at most 10 MB per 1,000 cold runs."""

import sqlite3
from contextlib import closing

import pytest

from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.submit_sweep import submit_sweep
from tests.farm.conftest import start_farm, wait_for
from workloads.lab.settings import Lab

BYTES_PER_RUN = 10_000
SWEEP = """
farm: 1
name: cold
workload: mlp-4
phones: all
conditions: {protocol: cold, cores: all8, freq: high}
matrix: {batch_size: [32, 64]}
repeat: 6
"""


@pytest.mark.slow
def test_cold_runs_take_at_most_ten_kilobytes_each(lab: Lab) -> None:
    with start_farm(lab) as farm:
        sweep = submit_sweep(farm.connection, SWEEP).sweep.id
        wait_for(lambda: find_sweep(farm.connection, sweep).finished, "all runs", 300)
        done = find_sweep(farm.connection, sweep).done
    with closing(sqlite3.connect(lab.store_file)) as store:
        trees, size = store.execute(
            "SELECT count(DISTINCT name), sum(pgsize) FROM dbstat"
        ).fetchone()
    # The last page of every table and index is hardly filled; among 1,000 runs that is nothing.
    assert done >= 60
    assert (size - 4096 * trees) / done <= BYTES_PER_RUN
