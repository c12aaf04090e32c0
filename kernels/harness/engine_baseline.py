"""The CPU to compare a device with: our own engine, started as the runner of this computer."""

import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kernels.manifest import runner_for
from workloads.catalogue import bind, lower
from workloads.fault import Refused

NAME = "the farm's C engine"
_PATIENCE_S = 120


@contextmanager
def engine_step(workload: str, batch: int, threads: int) -> Iterator["EngineStep"]:
    """A training step of the catalogue, lowered for the CPU and ready to be timed."""
    with TemporaryDirectory(prefix="farmhand-engine-") as name:
        folder = Path(name)
        runner = folder / "runner"
        runner.write_bytes(runner_for(platform.machine()).content)
        runner.chmod(0o755)
        (folder / "plan").write_bytes(lower(bind(workload, {"batch_size": batch}), threads))
        yield EngineStep(folder)


class EngineStep:
    """A plan in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def seconds(self, steps: int) -> float:
        """The mean of so many steps."""
        words = ["--warmup", "3", "--steps", str(steps), "--window-ms", "1"]
        command = [str(self._folder / "runner"), "run", str(self._folder / "plan")]
        ended = subprocess.run(
            [*command, str(self._folder), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
        lines = (self._folder / "out.jsonl").read_text().splitlines()
        last = json.loads(lines[-1]) if lines else {"text": ended.stderr[-200:]}
        if last.get("line") != "done":
            raise Refused(f"the runner of this computer failed: {last.get('text', 'no words')}")
        return float(last["ns"]) / float(last["steps"]) / 1e9
