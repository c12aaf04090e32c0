"""Data files: pushed to a phone once, checked, or refused."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.launch.launch_files import install_data_file
from agent.launch.launch_spec import LaunchSpec
from agent.phone.phone_driver import Phone
from tests.agent.jobs import a_job
from workloads.catalogue import bind
from workloads.protocol.faults import Blame, InvalidRequest
from workloads.protocol.phone_facts import CoreSet
from workloads.protocol.stage import Stage

CONTENT = b"farmhand-data 1\ncolumn index 0 0\nend\n"
DIGEST = sha256(CONTENT).hexdigest()


def test_a_data_file_is_pushed_once(phone: Phone, tmp_path: Path) -> None:
    (tmp_path / DIGEST).write_bytes(CONTENT)
    path = install_data_file(phone, DIGEST, tmp_path)
    assert phone.pull(path, 1000) == CONTENT
    (tmp_path / DIGEST).unlink()
    assert install_data_file(phone, DIGEST, tmp_path) == path


def test_a_missing_or_changed_file_is_refused(phone: Phone, tmp_path: Path) -> None:
    other = "cd" * 32
    with pytest.raises(InvalidRequest, match="farm workload add --dataset"):
        install_data_file(phone, other, tmp_path)
    (tmp_path / other).write_bytes(CONTENT)
    with pytest.raises(InvalidRequest):
        install_data_file(phone, other, tmp_path)


def test_a_run_finds_its_file(phone: Phone, context: LaneContext) -> None:
    case = bind("lenet", {}, DIGEST)
    job = a_job(phone.facts.serial, 7).model_copy(update={"case": case})
    context.files_dir.mkdir(parents=True)
    (context.files_dir / DIGEST).write_bytes(CONTENT)
    assert run_attempt(job, phone, context).report.fault is None
    spec = LaunchSpec(
        "/r", case, CoreSet(name="all1", cpus=(0,)), job.condition.launch, (), data="/d"
    )
    assert "--data /d" in " ".join(spec.command().words)
    assert "--data" not in replace(spec, data=None).command().words
    unknown = bind("lenet", {}, "cd" * 32)
    job = a_job(phone.facts.serial, 8).model_copy(update={"case": unknown})
    fault = run_attempt(job, phone, context).report.fault
    assert fault is not None
    assert (fault.blame, fault.stage) == (Blame.REQUEST, Stage.PREPARE)
