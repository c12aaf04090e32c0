"""A kernel check: one launch of one kernel, and its expected results in double precision."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.harness.opencl_device import Device, Floats
from kernels.runner_builds import kernel_sources

Array = NDArray[Any]
GROUP = 64
_ENTRY = re.compile(r"^kernel .*?void\s+(\w+)\(", re.MULTILINE | re.DOTALL)
TOLERANCE = 1e-5  # of the largest error, relative to the largest value


@dataclass(frozen=True)
class KernelCheck:
    """What to launch, and the expected value of every output."""

    entry: str  # of one of the files of kernels/opencl
    size: tuple[int, ...]
    scalars: tuple[int | float | np.uint64, ...]
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    group: tuple[int, ...] | None = None
    defines: tuple[str, ...] = ()
    in_place: tuple[int, ...] = ()  # inputs that are outputs too; they precede the other outputs

    @property
    def name(self) -> str:
        """The kernel, with the values of its definitions."""
        return " ".join((self.entry, *(word.split("=")[-1].lower() for word in self.defines)))


@cache
def source_files() -> dict[str, str]:
    """Return the file of every kernel."""
    texts = {name: text.decode() for name, text in kernel_sources().files.items()}
    return {entry: name for name, text in texts.items() for entry in _ENTRY.findall(text)}


def run_check(device: Device, check: KernelCheck) -> float:
    """Launch the kernel; return the largest error, relative to the largest value per output."""
    file = source_files()[check.entry]
    program = device.program(file, [f"-D{word}" for word in check.defines])
    buffers = [device.buffer(values) for values in check.inputs]
    new_outputs = check.expected[len(check.in_place) :]
    results = [device.buffer(np.full(value.shape, np.nan, np.float32)) for value in new_outputs]
    program.bind(check.entry, check.size, check.group, *check.scalars, *buffers, *results)()
    outputs = [buffers[number] for number in check.in_place] + results
    worst = 0.0
    for output, expected in zip(outputs, check.expected, strict=True):
        integers = expected.dtype == np.int32
        actual = device.read(output, expected.shape)
        error = np.abs((actual.view(np.int32) if integers else actual) - expected)
        worst = max(worst, float(np.max(error) / max(1.0, np.max(np.abs(expected)))))
        if np.isnan(error).any():
            return float("nan")
    return worst


def draw(generator: np.random.Generator, *shape: int) -> Floats:
    """Draw values like those of a layer."""
    return generator.standard_normal(shape).astype(np.float32)
