"""Hosts whose clocks are wrong, and one that is set in mid-sweep: nothing is lost, nothing doubled.

The clock is wrong for the agent's process alone, by a library of ours that stands before libc's.
"""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.conftest import HOSTS, a_farm, wait_for
from tests.farm.test_trouble import MANY, finish, submit
from workloads.lab_settings import Lab

SOURCE = Path(__file__).with_name("skew.c")
COMPILER = shutil.which("cc")
HOUR_S = 3600


def set_clock(file: Path, skew_s: int) -> None:
    with file.open("r+b" if file.exists() else "wb") as open_file:
        open_file.write(struct.pack("=q", skew_s))


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="there is no C compiler")
def test_clocks_that_are_an_hour_off_and_one_that_is_set_back(lab: Lab, tmp_path: Path) -> None:
    library = tmp_path / "skew.so"
    words = [str(COMPILER), "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(words, check=True)
    clocks = {host: tmp_path / f"{host}.skew" for host in HOSTS}
    for host, skew_s in zip(HOSTS, (HOUR_S, -HOUR_S), strict=True):
        set_clock(clocks[host], skew_s)
    before = {
        host: ("env", f"LD_PRELOAD={library}", f"FARM_SKEW={file}") for host, file in clocks.items()
    }
    with a_farm(lab, before=before) as farm:
        sweep = submit(farm, tmp_path, MANY)
        wait_for(lambda: sweep_summaries(farm.db, sweep)[0].done >= 9, "some runs are done")
        warned = (lab.root / "logs" / "scheduler.log").read_text()
        assert "the clock of host-a is +3600 s off" in warned
        assert "the clock of host-b is -3600 s off" in warned
        set_clock(clocks["host-a"], -HOUR_S // 2)
        finish(farm, sweep, {"host-a": None, "host-b": -HOUR_S})
        for serial in farm.idle():
            assert len(farm.jobs(serial)) == 6, "no run was made again"
