"""Measurements of real phones, one TOML file per phone, each with its source."""

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_FOLDER = Path(__file__).parent


class _MeasuredRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StepRow(_MeasuredRow):
    """The time of one step, with four threads on the four big cores under the default governor."""

    workload: str
    batch: int
    step_ms: float
    others_busy: float | None = None  # of the three cores besides the first


class PowerRow(_MeasuredRow):
    """The mean power of the whole phone over a phase."""

    workload: str
    batch: int
    power_w: float
    seconds: float


class MemoryRow(_MeasuredRow):
    workload: str
    batch: int
    peak_mb: float


class CoreSetRow(_MeasuredRow):
    """One job on a set of cores at a clock; power is above idle."""

    cores: str
    freq: str
    seconds: float
    power_w: float
    weight: float = 1.0

    @property
    def kind(self) -> str:
        """Return the kind of cores: big or little."""
        return self.cores.rstrip("0123456789")


class GemmRow(_MeasuredRow):
    n: int
    gpu_naive_gflops: float
    gpu_gflops: float
    cpu_gflops: float


class PhoneMeasurements(_MeasuredRow):
    """Everything that was measured on one phone."""

    step: tuple[StepRow, ...] = ()
    power: tuple[PowerRow, ...] = ()
    memory: tuple[MemoryRow, ...] = ()
    core_set: tuple[CoreSetRow, ...] = ()
    rest_c: float | None = None  # battery of the idle phone
    battery_c: tuple[tuple[float, float], ...] = ()  # seconds of work, temperature
    top_khz: int = 0
    plateau_khz: int = 0
    gemm: GemmRow | None = None

    @property
    def has_free_clocks(self) -> bool:
        """Return whether rows were measured on the four big cores under the default governor."""
        return bool(self.step or self.battery_c)


@cache
def load_measurements(profile_id: str) -> PhoneMeasurements:
    text = (_FOLDER / f"{profile_id}.toml").read_text(encoding="utf-8")
    return PhoneMeasurements.model_validate(tomllib.loads(text))


@cache
def measured_profile_ids() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
