"""Compares dumps of the runner with the reference, for any operation and model."""

import atexit
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np

from kernels.reference import Array, Machine, Plan, parse, read_dump
from kernels.runner_builds import runner_for
from tests.kernels.plans import a_plan
from workloads.lowering import PlanBody, lower_step
from workloads.step_cost import Step

CASE = "tried"


@cache
def the_runner() -> Path:
    """Return the shipped runner of this computer, or the build named by FARM_RUNNER."""
    if "FARM_RUNNER" in os.environ:
        return Path(os.environ["FARM_RUNNER"])
    path = Path(mkdtemp(prefix="farmhand-runner-")) / "runner"
    atexit.register(rmtree, path.parent, ignore_errors=True)
    path.write_bytes(runner_for("x86_64").content)
    path.chmod(0o755)
    return path


def run_plan(verb: str, plan: bytes, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a plan with a command of the runner."""
    (folder / "plan").write_bytes(plan)
    command = [str(the_runner()), verb, str(folder / "plan"), str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)


def dump(text: str, steps: int) -> list[list[Array]]:
    """Return every tensor of the engine before the first step and after each step."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        ended = run_plan("dump", a_plan(text), folder, "--steps", str(steps))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return read_dump((folder / "dump.bin").read_bytes(), parse(text))


@dataclass
class Dumped:
    """The tensors of a step that the engine executed several times, without shared memory."""

    body: PlanBody
    plan: Plan
    moments: list[list[Array]]

    @classmethod
    def of(cls, step: Step, threads: int = 1, steps: int = 1) -> "Dumped":
        """Lower a step and let the engine execute it."""
        body = lower_step(step, reuse=False)
        text = body.text(CASE, threads)
        return cls(body, parse(text), dump(text, steps))

    def reference(self) -> Machine:
        """Return the reference in the state of the engine before its first step."""
        return Machine(self.plan, self.moments[0])

    @property
    def learned(self) -> list[tuple[int, int]]:
        """List every parameter that is updated, with its gradient."""
        found = [op.ins[:2] for op in self.plan.ops if op.phase == "update" and len(op.ins) > 1]
        return [
            (p, g)
            for p, g in found
            if p is not None and g is not None and self.plan.tensors[p].arena == "parameter"
        ]

    def name(self, number: int) -> str:
        """Return the name of a tensor."""
        return self.body.tensors[number].name

    def loss_with(self, parameter: int, index: tuple[int, ...], value: float) -> float:
        """Return the loss of the first step with one value changed, by the reference."""
        machine = self.reference()
        changed = machine[parameter].copy()
        changed[index] = value
        machine[parameter] = changed
        machine.step(self.moments[1], ("load", "forward"))
        return float(machine[self.plan.loss][0])

    def slope(self, parameter: int, index: tuple[int, ...], width: float = 1e-5) -> float:
        """Return the derivative of the loss with respect to one value, by central differences."""
        at = float(self.moments[0][parameter][index])
        above = self.loss_with(parameter, index, at + width)
        below = self.loss_with(parameter, index, at - width)
        return (above - below) / (2 * width)


def some_places(shape: Sequence[int], count: int, seed: int) -> list[tuple[int, ...]]:
    """Choose a few positions in a tensor, always the same ones."""
    chance = np.random.default_rng(seed)
    size = int(np.prod(shape))
    chosen = chance.choice(size, size=min(count, size), replace=False)
    return [tuple(int(at) for at in np.unravel_index(each, shape)) for each in chosen]
