"""How much of a training step passes outside kernels, by how the step is submitted to the device.

The runner is measured with every kernel launched singly ("launch", as before there were command
buffers) and with its default ("step": command buffers where the driver has good ones, else the
same prepared launches); a driver with command buffers also with these in any case ("recorded").
The modes take turns; of each turn the step counts than which nine of ten take longer, and the
fastest turn.
"""

import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.peers.engine_comparison import load_average
from kernels.pocl import runner_environment
from kernels.runner_builds import runner_for
from workloads.catalogue import bind, lower
from workloads.models.perceptrons import WIDTHS

FEED = "preloaded"
MODES = ("launch", "step", "recorded")
TURN_S = 0.5
KERNELS = Path(__file__).resolve().parents[1] / "kernels" / "opencl"


class SubmittedStep(NamedTuple):
    """A fast step of one mode, and the kernels in it."""

    step_us: float
    kernels_us: float | None  # None: the driver does not say
    recorded: int
    note: str

    def outside(self, single_us: float | None) -> str:
        """The share of the step in which no kernel ran; recorded ones take as long as singly."""
        kernels_us = single_us if self.recorded else self.kernels_us
        if kernels_us is None:
            return ""
        return f", {100 * (1 - kernels_us / self.step_us):.1f} % outside of kernels"


def compare_submissions(rounds: int) -> Iterator[str]:
    """Yield a line per perceptron and mode."""
    environment = runner_environment()
    with TemporaryDirectory(prefix="farmhand-opencl-") as name:
        folder = Path(name)
        (folder / "runner").write_bytes(runner_for(platform.machine()).content)
        (folder / "runner").chmod(0o755)
        for workload in WIDTHS:
            (folder / "plan").write_bytes(lower(bind(workload, {}, backend="opencl"), 1))
            turns = [
                {mode: _run(folder, environment, mode) for mode in MODES} for _ in range(rounds)
            ]
            best = {mode: min((turn[mode] for turn in turns), key=_step_us) for mode in MODES}
            yield from _runner_lines(workload, best)


def _step_us(step: SubmittedStep) -> float:
    return step.step_us


def _run(folder: Path, environment: Mapping[str, str], mode: str) -> SubmittedStep:
    """Run a turn in windows of one step each, and return a fast one."""
    words = [folder / "runner", "run", folder / "plan", folder, "--kernels", KERNELS]
    words += ["--feed", FEED, "--submit", mode, "--warmup", 50, "--steps", 100_000]
    words += ["--max-seconds", TURN_S, "--window-ms", 0]
    subprocess.run(list(map(str, words)), env=dict(environment), capture_output=True, check=False)
    records = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    if records[-1]["line"] != "done":
        raise SystemExit(f"the runner failed: {records[-1].get('text', 'it wrote no last record')}")
    steps = sorted(
        (record for record in records if record["line"] == "window" and record["n"] == 1),
        key=lambda record: float(record["ns"]),
    )
    step: dict[str, Any] = steps[len(steps) // 10]
    device = next(record for record in records if record["line"] == "device")
    return SubmittedStep(
        step_us=step["ns"] / 1e3,
        kernels_us=step["device_ns"][2] / 1e3 if step["device_ns"] else None,
        recorded=device["recorded"],
        note=records[-1].get("note", ""),
    )


def _runner_lines(workload: str, best: Mapping[str, SubmittedStep]) -> Iterator[str]:
    for mode, step in best.items():
        if mode == "recorded" and not step.recorded:
            continue  # the driver has no command buffers
        share = step.outside(best["launch"].kernels_us)
        how = f"{step.recorded} command buffers" if step.recorded else "single launches"
        note = f"; {step.note}" if step.note else ""
        yield (
            f"{workload}, runner, --submit {mode}: {step.step_us:.1f} us per step{share} "
            f"({how}); load {load_average()}{note}"
        )
