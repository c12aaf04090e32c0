"""The CPU baseline: training steps of Farmhand's C engine, run by the runner of this computer."""

import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kernels.runner_builds import runner_for
from workloads.catalogue import bind, lower
from workloads.protocol.faults import InvalidRequest

NAME = "the farm's C engine"
_TIMEOUT_S = 120


@contextmanager
def engine_step(workload: str, batch: int, threads: int) -> Iterator["EngineStep"]:
    """Lower a training step of the catalogue for the CPU, ready to be timed."""
    with TemporaryDirectory(prefix="farmhand-engine-") as name:
        folder = Path(name)
        runner = folder / "runner"
        runner.write_bytes(runner_for(platform.machine()).content)
        runner.chmod(0o755)
        (folder / "plan").write_bytes(lower(bind(workload, {"batch_size": batch}), threads))
        yield EngineStep(folder)


class EngineStep:
    """A folder with a runner and a plan."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def seconds(self, steps: int) -> float:
        """Run this many steps and return their mean time."""
        options = ["--warmup", "3", "--steps", str(steps), "--window-ms", "1"]
        command = [str(self._folder / "runner"), "run", str(self._folder / "plan")]
        ended = subprocess.run(
            [*command, str(self._folder), *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        lines = (self._folder / "out.jsonl").read_text().splitlines()
        last = json.loads(lines[-1]) if lines else {"text": ended.stderr[-200:]}
        if last.get("line") != "done":
            reason = last.get("text", "it wrote no final record")
            raise InvalidRequest(f"the runner of this computer failed: {reason}")
        return float(last["ns"]) / float(last["steps"]) / 1e9
