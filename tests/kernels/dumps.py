"""The runner's `dump`, and the reference beside it: one mechanism for every operation and model."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np

from kernels.manifest import runner_for
from tests.kernels.plans import a_plan
from tests.kernels.reference import Array, Machine, Plan, parse, read_dump
from workloads.lowering import Body, body_of
from workloads.work import Step

CASE = "tried"


@cache
def the_runner() -> Path:
    """The runner that ships for this computer, or the build that FARMHAND_RUNNER names."""
    if "FARMHAND_RUNNER" in os.environ:
        return Path(os.environ["FARMHAND_RUNNER"])
    path = Path(mkdtemp(prefix="farmhand-runner-")) / "runner"
    path.write_bytes(runner_for("x86_64").content)
    path.chmod(0o755)
    return path


def run_plan(verb: str, plan: bytes, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Hand a plan to the runner."""
    (folder / "plan").write_bytes(plan)
    command = [str(the_runner()), verb, str(folder / "plan"), str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)


def dump(text: str, steps: int) -> list[list[Array]]:
    """Every tensor before the first step and after each, as the engine has them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        ended = run_plan("dump", a_plan(text), folder, "--steps", str(steps))
        assert 0 == ended.returncode, ended.stdout + ended.stderr
        return read_dump((folder / "dump.bin").read_bytes(), parse(text))


@dataclass
class Dumped:
    """A step as the engine did it so many times, with nobody's memory shared."""

    body: Body
    plan: Plan
    moments: list[list[Array]]

    @classmethod
    def of(cls, step: Step, threads: int = 1, steps: int = 1) -> "Dumped":
        """Lower a step and let the engine do it."""
        body = body_of(step, reuse=False)
        text = body.text(CASE, threads)
        return cls(body, parse(text), dump(text, steps))

    def reference(self) -> Machine:
        """The reference, where the engine stood before its first step."""
        return Machine(self.plan, self.moments[0])

    @property
    def learned(self) -> list[tuple[int, int]]:
        """Every parameter that is updated, with its gradient."""
        found = [(op.ins[0], op.ins[1]) for op in self.plan.ops if op.phase == "update"]
        return [(p, g) for p, g in found if p is not None and g is not None]

    def name(self, number: int) -> str:
        """What a tensor is."""
        return self.body.tensors[number].name

    def loss_with(self, parameter: int, index: tuple[int, ...], value: float) -> float:
        """The loss of the first step if one number were another, by the reference."""
        machine = self.reference()
        changed = machine[parameter].copy()
        changed[index] = value
        machine[parameter] = changed
        machine.step(self.moments[1], ("load", "forward"))
        return float(machine[self.plan.loss][0])

    def slope(self, parameter: int, index: tuple[int, ...], width: float = 1e-5) -> float:
        """The loss's slope along one number, by a difference."""
        at = float(self.moments[0][parameter][index])
        above = self.loss_with(parameter, index, at + width)
        below = self.loss_with(parameter, index, at - width)
        return (above - below) / (2 * width)


def worst(found: Array, expected: Array, scale: float | None = None) -> float:
    """The largest error, relative to the largest value."""
    if scale is None:
        scale = float(np.abs(expected).max(initial=0.0))
    return float(np.abs(found - expected).max(initial=0.0)) / max(scale, 1e-6)


def some_places(shape: Sequence[int], count: int, seed: int) -> list[tuple[int, ...]]:
    """A few places in a tensor, the same ones every time."""
    chance = np.random.default_rng(seed)
    size = int(np.prod(shape))
    chosen = chance.choice(size, size=min(count, size), replace=False)
    return [tuple(int(at) for at in np.unravel_index(each, shape)) for each in chosen]
