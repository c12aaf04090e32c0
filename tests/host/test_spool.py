"""The spool: what was promised to it is still there after a crash."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.spool import Spool
from tests.builders import a_phone, a_run, a_sighting
from workloads.fault import FarmTrouble

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_begins_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    assert [True, False] == [spool.begin(a_run(), "job"), spool.begin(a_run(), "job")]
    assert spool.begin(a_run(attempt=2), "job"), "a new attempt is a new run"


def test_parcels_wait_until_they_are_confirmed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    parcels = [a_sighting(a_phone(name)) for name in ("PH1", "PH2", "PH3")]
    spool.add(parcels)
    spool.confirm([parcels[1].parcel])
    assert [parcels[0].parcel, parcels[2].parcel] == spool.waiting()
    spool.close()
    assert [parcels[0].parcel, parcels[2].parcel] == Spool(tmp_path / "spool.db").waiting()


def test_lanes_that_write_at_once_all_get_their_word(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    began: list[bool] = []
    threads = [
        threading.Thread(target=lambda n=n: began.append(spool.begin(a_run(n % 10), "job")))
        for n in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 10 == sum(began)


def test_what_was_begun_before_a_kill_is_known_afterwards(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from agent.spool import Spool;"
        "from tests.builders import a_run;"
        "spool = Spool(Path(sys.argv[1])); spool.begin(a_run(1), 'the job');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    file = tmp_path / "spool.db"
    subprocess.run([sys.executable, "-c", program, str(file)], cwd=ROOT, check=False)
    spool = Spool(file)
    assert ["the job"] == spool.interrupted()
    spool.end(a_run(1), [])
    assert [] == spool.interrupted()


FULL_DISK = """
import resource, sys
from pathlib import Path
from agent.spool import Spool
from tests.builders import a_phone, a_run, a_sighting
from workloads.fault import FarmTrouble

spool = Spool(Path(sys.argv[1]))
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
kept = 0
try:
    while kept < 10_000:
        spool.add([a_sighting(a_phone(f"PH{kept}"))])
        kept += 1
except FarmTrouble as error:
    print(error)
try:
    spool.begin(a_run(), "job " * 50_000)
except FarmTrouble:
    print("still full")
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
assert spool.begin(a_run(), "job")
assert kept == len(spool.waiting()) > 10
print("all there")
"""


def test_a_disk_that_is_full_is_said_and_survived(tmp_path: Path) -> None:
    """What does not fit is refused in a sentence, what was kept is kept, and then it goes on."""
    words = [sys.executable, "-c", FULL_DISK, str(tmp_path / "spool.db")]
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    first, *rest = made.stdout.splitlines()
    assert "the spool failed: " in first, made.stderr
    assert ["still full", "all there"] == rest, made.stderr


def test_a_broken_spool_is_one_sentence_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "spool.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(FarmTrouble, match="the spool .* cannot be used"):
        Spool(tmp_path / "spool.db")


def test_a_closed_spool_does_not_keep_anybody_waiting(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    spool.close()
    with pytest.raises(FarmTrouble, match="closed"):
        spool.begin(a_run(), "job")
