"""Training steps of Farmhand's C engine, by the runner of this computer: on its CPU or a device."""

import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernels.autotuner import OpenCLIdentity
from kernels.pocl import runner_environment
from kernels.runner_builds import kernel_sources, runner_for
from workloads.catalogue import bind, lower
from workloads.protocol.faults import InvalidRequest

NAME = "the farm's C engine"
FEED = "preloaded"  # of a device: the data set is there before the first step
_TIMEOUT_S = 600
_PHASES = ("load", "forward", "backward", "update")
Record = dict[str, Any]


@dataclass(frozen=True)
class EngineTurn:
    """Some consecutive steps: mean times of a step, and the loss in the second half."""

    step_s: float
    phases_s: dict[str, float]
    loss: float


@contextmanager
def engine_step(
    workload: str, batch: int, threads: int, device: OpenCLIdentity | None = None
) -> Iterator["EngineStep"]:
    """Lower a training step of the catalogue for the CPU or a device, ready to be timed."""
    with TemporaryDirectory(prefix="farmhand-engine-") as name:
        folder = Path(name)
        runner = folder / "runner"
        runner.write_bytes(runner_for(platform.machine()).content)
        runner.chmod(0o755)
        case = bind(workload, {"batch_size": batch}, backend="opencl" if device else "cpu")
        (folder / "plan").write_bytes(lower(case, threads))
        step = EngineStep(folder)
        if device is not None:
            step.use(device)
        yield step


class EngineStep:
    """A folder with a runner and a plan."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._device_options: list[str] = []

    def use(self, device: OpenCLIdentity) -> None:
        """Run on a device of this computer instead of the CPU."""
        for file, content in kernel_sources().files.items():  # a runner finds them beside the plan
            (self._folder / file).write_bytes(content)
        listed = json.loads(self._start("info").stdout)["opencl"]
        identities = [OpenCLIdentity(d["device"], d["version"], d["driver"]) for d in listed]
        if device not in identities:
            raise InvalidRequest(
                f"the runner does not find {device.label}; name its library in FARM_OPENCL"
            )
        self._device_options = ["--device", str(identities.index(device)), "--feed", FEED]

    def seconds(self, steps: int) -> float:
        """Run this many steps and return their mean time."""
        return self.run(steps).step_s

    def run(self, steps: int) -> EngineTurn:
        """Run this many steps."""
        options = ["--warmup", "3", "--steps", str(steps), "--window-ms", "1"]
        words = ["run", str(self._folder / "plan"), str(self._folder)]
        ended = self._start(*words, *options, *self._device_options)
        lines = (self._folder / "out.jsonl").read_text().splitlines()
        records: list[Record] = [json.loads(line) for line in lines]
        done: Record = records[-1] if records else {"text": ended.stderr[-200:]}
        if done.get("line") != "done":
            reason = done.get("text", "it wrote no final record")
            raise InvalidRequest(f"the runner of this computer failed: {reason}")
        phases = [record["phases_ns"] for record in records if record.get("phases_ns")]
        sums = [sum(column) / done["steps"] / 1e9 for column in zip(*phases, strict=True)]
        return EngineTurn(
            done["ns"] / done["steps"] / 1e9,
            dict(zip(_PHASES, sums, strict=False)),
            done["loss_last"],
        )

    def _start(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._folder / "runner"), *words],
            env=runner_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
