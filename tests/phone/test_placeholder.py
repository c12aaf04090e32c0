"""The placeholder for an ABI without a runner keeps the runner's contract."""

import subprocess
from pathlib import Path

import pytest

from agent.collect.runner_output import RunnerOutput
from kernels.runner_builds import runner_for
from workloads.protocol.base import digest_of_bytes


@pytest.mark.parametrize("words", [["info"], ["run", "PLAN", "DIR"], ["guard", "DIR"], []])
def test_it_writes_one_fault_record_and_exits_with_9(tmp_path: Path, words: list[str]) -> None:
    script = tmp_path / "runner"
    script.write_bytes(runner_for("armeabi-v7a").content)
    words = [str(tmp_path) if word == "DIR" else word for word in words]
    run = subprocess.run(["/bin/sh", str(script), *words], capture_output=True, check=False)
    assert run.returncode == 9
    lines = [run.stdout]
    if words[:1] == ["run"]:
        lines.append((tmp_path / "out.jsonl").read_bytes())
    for line in lines:
        output = RunnerOutput("any")
        output.feed(line)
        assert output.fault is not None
        assert output.fault.code == "no_runner"
        assert output.fault.text == "There is no Farmhand runner for armeabi-v7a yet."


def test_it_is_known_by_digest_and_abi() -> None:
    build = runner_for("armeabi-v7a")
    assert build.digest == digest_of_bytes(build.content)
    assert build.file_name == f"runner-{build.digest[:12]}"
    assert b"farmhand-runner" in build.content
    assert runner_for("x86").digest != build.digest
    assert runner_for("x'; reboot; '").abi == "xreboot"
