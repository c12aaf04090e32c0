"""The spool: written parcels survive a crash."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from agent.spool import Spool
from tests.builders import a_phone, a_run, an_announcement
from workloads.protocol.faults import FarmTrouble

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_starts_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    assert [spool.record_start(a_run(), "job"), spool.record_start(a_run(), "job")] == [True, False]
    assert spool.record_start(a_run(attempt=2), "job"), "a new attempt is a new run"


def test_parcels_wait_until_they_are_confirmed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    parcels = [an_announcement(a_phone(name)) for name in ("PH1", "PH2", "PH3")]
    spool.add_parcels(parcels)
    spool.delete_confirmed([parcels[1].parcel_id])
    assert spool.unconfirmed_ids() == [parcels[0].parcel_id, parcels[2].parcel_id]
    spool.close()
    reopened = Spool(tmp_path / "spool.db")
    assert reopened.unconfirmed_ids() == [parcels[0].parcel_id, parcels[2].parcel_id]


def test_parcels_of_another_version_are_not_sent_for_ever(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    parcels = [an_announcement(a_phone(name)) for name in ("PH1", "PH2")]
    spool.add_parcels(parcels)
    spool.close()
    with closing(sqlite3.connect(tmp_path / "spool.db")) as file, file:
        change = (
            "UPDATE parcel SET body = replace(body, '\"version\":1', '\"version\":0') WHERE id = ?"
        )
        assert file.execute(change, (parcels[0].parcel_id,)).rowcount == 1
    upgraded = Spool(tmp_path / "spool.db")
    upgraded.delete_unreadable()
    assert upgraded.unconfirmed_ids() == [parcels[1].parcel_id]


def test_lanes_that_write_at_once_all_get_their_result(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    started: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda n=n: started.append(spool.record_start(a_run(n % 10), "job"))
        )
        for n in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(started) == 10


def test_runs_that_started_before_a_kill_are_known_after_it(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from agent.spool import Spool;"
        "from tests.builders import a_run;"
        "spool = Spool(Path(sys.argv[1])); spool.record_start(a_run(1), 'the job');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    file = tmp_path / "spool.db"
    subprocess.run([sys.executable, "-c", program, str(file)], cwd=ROOT, check=False)
    spool = Spool(file)
    assert spool.interrupted_jobs() == ["the job"]
    spool.record_end(a_run(1), [])
    assert spool.interrupted_jobs() == []


FULL_DISK = """
import resource, sys
from pathlib import Path
from agent.spool import Spool
from tests.builders import a_phone, a_run, an_announcement
from workloads.protocol.faults import FarmTrouble

spool = Spool(Path(sys.argv[1]))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
stored = 0
try:
    while stored < 10_000:
        spool.add_parcels([an_announcement(a_phone(f"PH{stored}"))])
        stored += 1
except FarmTrouble:
    print("full")
try:
    spool.record_start(a_run(), "job " * 50_000)
except FarmTrouble:
    print("still full")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert spool.record_start(a_run(), "job")
assert len(spool.unconfirmed_ids()) == stored > 10
print("all there")
"""


def test_a_full_disk_is_an_error_and_no_parcel_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "spool.db")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == ["full", "still full", "all there"], run.stderr


def test_a_closed_spool_fails_at_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    spool.close()
    with pytest.raises(FarmTrouble):
        spool.record_start(a_run(), "job")
