"""The error of a step time on a GPU, by the kinds of work in the step.

Rates of products, starts of kernels and copies were measured on a few GPUs. Each is predicted from
the other GPUs, or compared with the figure that profiles guess. A step has the errors of its parts.
"""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from agent.virtual.physics.gpu_model import GpuModel, GpuSettings, kernel_gain
from agent.virtual.physics.step_timing import ComputeSpeed, OpTable
from agent.virtual.profiles import PhoneProfile, load_profile, profile_ids
from agent.virtual.twin.fit_result import stated_error

_ROWS = Path(__file__).with_name("gpu_rows.toml")
_DRIVERS = {"Adreno": "kgsl", "Mali": "mali"}
_OTHER_KERNELS_MAX = 0.5  # of the step: nothing was measured about kernels besides products


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu: str
    source: str


class GpuProductRow(_Row):
    """The rate of a square matrix product."""

    peak_gflops: float
    kernel: str
    gflops: float

    @property
    def log_share(self) -> float:
        return math.log(self.gflops / self.peak_gflops)

    @property
    def log_gain(self) -> float:
        """Return the logarithm of this kernel's rate relative to the best one's."""
        return math.log(_full_gain()) * (kernel_gain(_driver(self.gpu), self.kernel) - 1.0)


class GpuHostRow(_Row):
    """What the host adds to kernels."""

    start_us: float
    copy_gbs: float


class GpuRows(BaseModel):
    """All rows."""

    product: tuple[GpuProductRow, ...]
    host: tuple[GpuHostRow, ...]


@dataclass(frozen=True, slots=True)
class GpuPartErrors:
    """Stated errors of the parts of a step, and the logarithms behind them."""

    kernels: tuple[float, ...]
    starts: tuple[float, ...]
    copies: tuple[float, ...]


@cache
def gpu_rows() -> GpuRows:
    return GpuRows.model_validate(tomllib.loads(_ROWS.read_text(encoding="utf-8")))


@cache
def left_out_errors() -> GpuPartErrors:
    """Return logarithms of predicted over measured, for GPUs that were left out."""
    rows = gpu_rows()
    kernels = []
    for row in rows.product:
        others = [o.log_share - o.log_gain for o in rows.product if o.gpu != row.gpu]
        kernels.append(row.log_share - row.log_gain - fmean(others))
    guesses = [
        profile.gpu
        for profile in map(load_profile, profile_ids())
        if profile.gpu and profile.gpu.driver in _DRIVERS.values()
    ]
    # Profiles guess both figures; half of the time that an engine waits passes before the start.
    start_us = _mean(gpu.enqueue_us + (gpu.launch_us - gpu.enqueue_us) / 2 for gpu in guesses)
    copy_gbs = _mean(gpu.copy_gbs for gpu in guesses)
    return GpuPartErrors(
        tuple(kernels),
        tuple(math.log(start_us / row.start_us) for row in rows.host),
        tuple(math.log(row.copy_gbs / copy_gbs) for row in rows.host),
    )


def gpu_time_error(profile: PhoneProfile, table: OpTable, settings: GpuSettings) -> float | None:
    """Return the error to state of a step's time; None: no such kernels were ever measured."""
    if profile.gpu is None or profile.gpu.driver not in _DRIVERS.values():
        return None
    gpu = GpuModel(profile.gpu)
    gpu.busy = 1.0
    core_gbs = profile.memory.core_gbs
    speed = ComputeSpeed(1.0, core_gbs, 1.0, core_gbs, 1.0, core_gbs)
    timing, _ = gpu.time_step(table, settings, speed)
    assert timing.gpu is not None
    kernels, copies = (part / timing.seconds for part in (timing.gpu.compute_s, timing.gpu.copy_s))
    if kernels * (1.0 - gpu.product_share(table, settings.kernel)) > _OTHER_KERNELS_MAX:
        return None
    errors = left_out_errors()
    parts = (
        (kernels, errors.kernels),
        (copies, errors.copies),
        (max(1.0 - kernels - copies, 0.0), errors.starts),
    )
    return math.hypot(*(share * stated_error(logs) for share, logs in parts))


def gpu_error_range(profile: PhoneProfile) -> tuple[float, float] | None:
    """Return the smallest and the largest error that a step on a GPU may state."""
    if profile.opencl is None or profile.gpu is None or profile.gpu.driver not in _DRIVERS.values():
        return None
    errors = left_out_errors()
    stated = [stated_error(logs) for logs in (errors.kernels, errors.starts, errors.copies)]
    return min(stated), max(stated)


def _full_gain() -> float:
    """Return how much faster the best kernel was than the naive one, where both were measured."""
    rates = {(row.gpu, row.kernel): row.gflops for row in gpu_rows().product}
    return rates["Adreno 630", "tiled_vector"] / rates["Adreno 630", "naive"]


def _driver(gpu: str) -> str:
    return next(driver for prefix, driver in _DRIVERS.items() if gpu.startswith(prefix))


def _mean(values: Iterable[float]) -> float:
    return math.exp(fmean(map(math.log, values)))
