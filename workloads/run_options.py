"""Options of a run that have names instead of numbers: kernel, feed and input.

The runner (kernels/runner/runner.h) takes the same names; tests/kernels/test_run_options.py
compares them.
"""

from dataclasses import dataclass

from workloads.step_cost import Backend

# Kernels of the matrix product, from the slowest to the fastest of the Cambridge study's family.
# The tuner chooses among further ones (direct, dots), which `tuned` selects.
KERNELS = ("naive", "vector", "tiled", "tiled_vector", "packed", "tuned")
FEEDS = ("copied", "mapped", "resident", "preloaded")
INPUTS = ("memory", "storage")


@dataclass(frozen=True)
class RunOption:
    """A named choice of a sweep; it changes how a step runs, not what it computes."""

    name: str
    choices: tuple[str, ...]
    default: str
    text: str
    backend: Backend | None = None  # the only backend that has it


KERNEL = RunOption("kernel", KERNELS, "tuned", "kernel of the matrix product on the GPU", "opencl")
FEED = RunOption(
    "feed",
    FEEDS,
    "resident",
    "how data reach the GPU: operands copied for every operation, batches through mapped memory, "
    "one copy per batch, or the whole data set before the first step",
    "opencl",
)
INPUT = RunOption(
    "input", INPUTS, "memory", "batches are read from memory, or from storage past the page cache"
)
RUN_OPTIONS = {option.name: option for option in (KERNEL, FEED, INPUT)}
