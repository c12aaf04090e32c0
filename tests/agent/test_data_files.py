"""Data files on their way to a phone: once, checked, or refused with what to do."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.phone import Phone
from agent.run.data import install_data
from agent.run.runner import Ask
from tests.agent.jobs import a_job
from workloads.catalogue import bind
from workloads.fault import Blame, Refused
from workloads.phone import CoreSet

CONTENT = b"farmhand-data 1\ncolumn index 0 0\nend\n"
DIGEST = sha256(CONTENT).hexdigest()


def test_a_data_file_is_pushed_once(phone: Phone, tmp_path: Path) -> None:
    """It is known by its digest, also by the next run."""
    (tmp_path / DIGEST).write_bytes(CONTENT)
    path = install_data(phone, DIGEST, tmp_path)
    assert phone.pull(path, 1000) == CONTENT
    (tmp_path / DIGEST).unlink()
    assert install_data(phone, DIGEST, tmp_path) == path


def test_a_file_that_is_not_what_it_says_goes_nowhere(phone: Phone, tmp_path: Path) -> None:
    """Nor does one that is not there."""
    other = "cd" * 32
    with pytest.raises(Refused, match="not on this host; bring it with 'farm workload data'"):
        install_data(phone, other, tmp_path)
    (tmp_path / other).write_bytes(CONTENT)
    with pytest.raises(Refused, match="is not the file of that digest"):
        install_data(phone, other, tmp_path)


def test_a_run_finds_its_file(phone: Phone, desk: Desk) -> None:
    """The runner is told where it lies; without it the run is refused before the phone cools."""
    case = bind("lenet", {}, DIGEST)
    job = a_job(phone.known.serial, 7).model_copy(update={"case": case})
    desk.shelf.mkdir(parents=True)
    (desk.shelf / DIGEST).write_bytes(CONTENT)
    assert attempt(job, phone, desk).report.fault is None
    ask = Ask("/r", case, CoreSet(name="all1", cpus=(0,)), job.condition.launch, (), data="/d")
    assert "--data /d" in " ".join(ask.command().words)
    assert "--data" not in replace(ask, data=None).command().words
    strange = bind("lenet", {}, "cd" * 32)
    job = a_job(phone.known.serial, 8).model_copy(update={"case": strange})
    fault = attempt(job, phone, desk).report.fault
    assert fault is not None
    assert (fault.blame, fault.stage) == (Blame.REQUEST, "prepare")
