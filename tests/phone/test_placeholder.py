"""The placeholder of an ABI that has no runner yet keeps the runner's contract."""

import subprocess
from pathlib import Path

import pytest

from agent.run.lines import Output
from kernels.manifest import runner_for
from workloads.noun import digest_of_bytes


@pytest.mark.parametrize("words", [["info"], ["run", "PLAN", "DIR"], ["guard", "DIR"], []])
def test_it_says_one_fault_line_and_exits_9(tmp_path: Path, words: list[str]) -> None:
    """Whatever is asked of it, on any shell; `run` leaves the line where it is looked for."""
    script = tmp_path / "runner"
    script.write_bytes(runner_for("armeabi-v7a").content)
    words = [str(tmp_path) if word == "DIR" else word for word in words]
    said = subprocess.run(["/bin/sh", str(script), *words], capture_output=True, check=False)
    assert said.returncode == 9
    lines = [said.stdout]
    if words[:1] == ["run"]:
        lines.append((tmp_path / "out.jsonl").read_bytes())
    for line in lines:
        output = Output("any")
        output.feed(line)
        assert output.fault is not None
        assert output.fault.code == "no_runner"
        assert output.fault.text == "There is no Farmhand runner for armeabi-v7a yet."


def test_it_is_known_by_digest_and_abi() -> None:
    """Another ABI, another file; a hostile ABI cannot write shell."""
    build = runner_for("armeabi-v7a")
    assert build.digest == digest_of_bytes(build.content)
    assert build.file_name == f"runner-{build.digest[:12]}"
    assert b"farmhand-runner" in build.content
    assert runner_for("x86").digest != build.digest
    assert runner_for("x'; reboot; '").abi == "xreboot"
