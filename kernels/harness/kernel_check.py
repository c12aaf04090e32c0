"""A trial: one launch of one entry point, and what should come out of it, in double precision."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.harness.device import Device, Floats

Array = NDArray[Any]
GROUP = 64
TOLERANCE = 1e-5  # of the largest error, relative to the largest value


@dataclass(frozen=True)
class Trial:
    """What to launch, and what should come out of it, output by output."""

    file: str
    entry: str
    size: tuple[int, ...]
    numbers: tuple[int | float | np.uint64, ...]
    given: tuple[Array, ...]
    expected: tuple[Array, ...]
    group: tuple[int, ...] | None = None
    defines: tuple[str, ...] = ()
    changed: tuple[int, ...] = ()  # operands that are outputs as well, before the new ones

    @property
    def name(self) -> str:
        """The entry point, with what it was built for."""
        return " ".join((self.entry, *(word.split("=")[-1].lower() for word in self.defines)))


def run_trial(device: Device, trial: Trial) -> float:
    """Launch it, and answer the largest error, relative to the largest value of each output."""
    program = device.program(trial.file, [f"-D{word}" for word in trial.defines])
    memory = [device.buffer(operand) for operand in trial.given]
    fresh = trial.expected[len(trial.changed) :]
    made = [device.buffer(np.full(value.shape, np.nan, np.float32)) for value in fresh]
    program.bind(trial.entry, trial.size, trial.group, *trial.numbers, *memory, *made)()
    outputs = [memory[at] for at in trial.changed] + made
    worst = 0.0
    for output, expected in zip(outputs, trial.expected, strict=True):
        whole = expected.dtype == np.int32
        seen = device.read(output, expected.shape)
        error = np.abs((seen.view(np.int32) if whole else seen) - expected)
        worst = max(worst, float(np.max(error) / max(1.0, np.max(np.abs(expected)))))
        if np.isnan(error).any():
            return float("nan")
    return worst


def draw(dice: np.random.Generator, *shape: int) -> Floats:
    """Values as layers have them."""
    return dice.standard_normal(shape).astype(np.float32)
