"""Hosts with wrong clocks, one of them changed during a sweep: no run is lost or repeated.

A preloaded library (skew.c) changes the clock of the agent's process alone.
"""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import HOSTS, start_farm, wait_for
from tests.farm.test_trouble import MANY, finish, submit
from workloads.lab.settings import Lab

SOURCE = Path(__file__).with_name("skew.c")
COMPILER = shutil.which("cc")
HOUR_S = 3600


def set_clock(file: Path, skew_s: int) -> None:
    """Set the error of a clock, also while an agent reads it."""
    with file.open("r+b" if file.exists() else "wb") as open_file:
        open_file.write(struct.pack("=q", skew_s))


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="there is no C compiler")
def test_wrong_clocks_and_one_that_is_set_back(lab: Lab, tmp_path: Path) -> None:
    library = tmp_path / "skew.so"
    command = [str(COMPILER), "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    clocks = {host: tmp_path / f"{host}.skew" for host in HOSTS}
    for host, skew_s in zip(HOSTS, (HOUR_S, -HOUR_S), strict=True):
        set_clock(clocks[host], skew_s)
    wrappers = {
        host: ("env", f"LD_PRELOAD={library}", f"FARM_SKEW={file}") for host, file in clocks.items()
    }
    with start_farm(lab, wrappers=wrappers) as farm:
        sweep = submit(farm, tmp_path, MANY)
        wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= 9, "some runs are done")
        log = (lab.root / "logs" / "scheduler.log").read_text()
        assert "the clock of host-a is +3600 s off" in log
        assert "the clock of host-b is -3600 s off" in log
        set_clock(clocks["host-a"], -HOUR_S // 2)
        finish(farm, sweep, {"host-a": None, "host-b": -HOUR_S})
        for serial in farm.idle_phones():
            assert len(farm.jobs(serial)) == 6, "a run was repeated"
