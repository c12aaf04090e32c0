"""The runner of this computer: times, trains and dumps plans, on the CPU or an OpenCL device."""

import json
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernels.autotuner import OpenCLIdentity
from kernels.pocl import runner_environment
from kernels.runner_builds import kernel_sources, runner_for
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

NAME = "the farm's C engine"
_TIMEOUT_S = 3600
_PHASES = ("load", "forward", "backward", "update")
_DEVICE_TIMES = ("copy", "queue", "compute")
Record = dict[str, Any]


@dataclass(frozen=True)
class StepTimes:
    """Some consecutive steps: mean times of a step, and the loss in the second half."""

    step_s: float
    phases_s: dict[str, float]
    device_s: dict[str, float]  # empty on the CPU
    loss: float
    programs: tuple[Record, ...]


@contextmanager
def open_runner(device: OpenCLIdentity | None = None) -> Iterator["LocalRunner"]:
    """Put the runner and its kernels into a temporary folder; with a device, find its number."""
    with TemporaryDirectory(prefix="farmhand-runner-") as name:
        runner = LocalRunner(Path(name))
        if device is not None:
            runner.choose(device)
        yield runner


class LocalRunner:
    """A folder with a runner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._device: list[str] = []
        content = {"runner": runner_for(platform.machine()).content, **kernel_sources().files}
        for file, text in content.items():  # a runner finds kernels beside the plan
            (folder / file).write_bytes(text)
        (folder / "runner").chmod(0o755)

    def choose(self, device: OpenCLIdentity) -> None:
        """Use this device for all OpenCL plans."""
        listed = json.loads(self._start("info").stdout)["opencl"]
        identities = [OpenCLIdentity(d["device"], d["version"], d["driver"]) for d in listed]
        if device not in identities:
            raise InvalidRequest(
                f"the runner does not find {device.label}; name its library in FARM_OPENCL"
            )
        self._device = ["--device", str(identities.index(device))]

    def tune(self, candidates: str, rounds: int, launches: int = 5) -> str:
        """Time matrix products; return the records as text."""
        (self._folder / "candidates").write_text(candidates)
        words = ["tune", str(self._folder), "--kernels", str(self._folder), *self._device]
        return self._start(*words, "--rounds", str(rounds), "--launches", str(launches)).stdout

    def products(self, candidates: Sequence[str], rounds: int, launches: int) -> list[Record]:
        """Time matrix products; return one record per candidate."""
        text = self.tune("".join(f"{line}\n" for line in candidates), rounds, launches)
        records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        if not records or records[-1]["line"] != "done":
            raise _failure(records)
        return [record for record in records if record["line"] == "candidate"]

    def run(self, plan: bytes, steps: int, *options: str) -> StepTimes:
        """Run a plan for this many steps."""
        words = ["--warmup", "3", "--steps", str(steps), "--window-ms", "1", *options]
        ended = self._execute("run", plan, words)
        if ended.returncode:
            raise _failure([json.loads(line) for line in ended.stdout.splitlines()])
        lines = (self._folder / "out.jsonl").read_text().splitlines()
        records: list[Record] = [json.loads(line) for line in lines]
        done = records[-1]
        return StepTimes(
            done["ns"] / done["steps"] / 1e9,
            _mean_seconds(records, "phases_ns", _PHASES, done["steps"]),
            _mean_seconds(records, "device_ns", _DEVICE_TIMES, done["steps"]),
            done["loss_last"],
            tuple(record for record in records if record["line"] == "program"),
        )

    def dump(self, plan: bytes) -> bytes:
        """Execute one step of a plan; return all tensors before and after it."""
        ended = self._execute("dump", plan, [])
        if ended.returncode:
            raise _failure([json.loads(line) for line in ended.stdout.splitlines()])
        return (self._folder / "dump.bin").read_bytes()

    def _execute(
        self, verb: str, plan: bytes, options: Sequence[str]
    ) -> subprocess.CompletedProcess[str]:
        (self._folder / "plan").write_bytes(plan)
        words = [verb, str(self._folder / "plan"), str(self._folder), *options]
        return self._start(*words, *self._device)

    def _start(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._folder / "runner"), *words],
            env=runner_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )


def _mean_seconds(
    records: Sequence[Record], member: str, names: Sequence[str], steps: int
) -> dict[str, float]:
    """Return the mean time per step of each part; empty if the windows do not have it."""
    parts = [record[member] for record in records if record.get(member)]
    sums = [sum(column) / steps / 1e9 for column in zip(*parts, strict=True)]
    return dict(zip(names, sums, strict=False))


def _failure(records: Sequence[Record]) -> InvalidRequest:
    reason = records[-1].get("text") if records else None
    text = safe_text(reason or "it wrote no final record", 300)
    return InvalidRequest(f"the runner of this computer failed: {text}")
