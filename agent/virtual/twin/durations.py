"""Run durations: how long runs would take on a phone's twin, and how long it cools afterwards.

In phone time; installing, quiescing and checking are not included.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.physics.step_timing import OpTable
from agent.virtual.profiles import load_profile, profile_ids
from agent.virtual.twin.cores_and_clocks import UnknownCondition
from agent.virtual.twin.fit_result import MEAN_PER_DEVIATION
from agent.virtual.twin.gpu_error import gpu_time_error
from agent.virtual.twin.offline_model import OfflineModel, batch_bytes, bind_parameters
from agent.virtual.twin.simulated_provenance import RunCondition, provenance_by_family

_COOLING_STEP_S = 5.0
# Middles of nine equally likely parts of the normal distribution.
_LIKELY = (-1.59, -0.97, -0.59, -0.28, 0.0, 0.28, 0.59, 0.97, 1.59)
_DEFAULT_CLOCKS = {"free": None, "fixed": None}
_NAME_PROPERTIES = ("ro.product.marketname", "ro.config.marketing_name", "ro.product.model")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run: workload, cores and clocks, length and start temperature."""

    workload: str
    parameters: dict[str, int]
    cores: str
    freq: str
    warmup: int
    steps: int
    seconds: float
    max_seconds: float
    start_c: float | None
    wait_s: float
    above_rest_k: float | None = None  # instead of start_c
    backend: str = "cpu"
    kernel: str = "tuned"
    feed: str = "resident"

    def measured_s(self, step_s: float) -> float:
        """Return how long warm-up and timed steps take."""
        timed_s = min(max(self.seconds, self.steps * step_s), self.max_seconds)
        return self.warmup * step_s + timed_s


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of measuring, and of cooling before the next such run can start."""

    measured_s: float
    cooled_s: float
    likely_s: tuple[float, ...]  # measuring, equally likely; only one if the error is unknown


@lru_cache(maxsize=1)
def _profile_by_name() -> dict[str, str]:
    """Map the names that phones report, with and without their maker, to profiles."""
    profile_by_name: dict[str, str] = {}
    for profile_id in profile_ids():
        profile = load_profile(profile_id)
        names = [profile.name, *(profile.build.get(key, "") for key in _NAME_PROPERTIES)]
        maker = profile.build.get("ro.product.manufacturer", "")
        for name in filter(None, names):
            profile_by_name[name.lower()] = profile_id
            profile_by_name[f"{maker} {name}".lower()] = profile_id
    return profile_by_name


def profile_for_model(model: str) -> str | None:
    """Return the profile of phones with a model name."""
    return _profile_by_name().get(model.lower())


def estimate_duration(profile_id: str, run: RunSpec) -> Duration | None:
    """Simulate a run and the cooling after it; None if workload, cores or clock are unknown."""
    freq = _DEFAULT_CLOCKS.get(run.freq, run.freq.removesuffix("kHz"))
    parameters = tuple(sorted(run.parameters.items()))
    try:
        step = bind_parameters(run.workload, parameters)
        gpu = None
        if run.backend != "cpu":
            gpu = GpuSettings(run.kernel, run.feed, batch_bytes(run.workload, parameters))
        model = OfflineModel(load_profile(profile_id), step, run.cores, freq, gpu=gpu)
    except UnknownCondition:
        return None
    step_s = model.timing.seconds
    measured_s = run.measured_s(step_s)
    error = _time_error(model, run, gpu)
    deviations = _LIKELY if error else (0.0,)
    spread = (error or 0.0) / MEAN_PER_DEVIATION
    likely_s = tuple(round(run.measured_s(step_s * math.exp(spread * z)), 2) for z in deviations)
    start_c = run.start_c if run.above_rest_k is None else model.die_c + run.above_rest_k
    model.advance(measured_s)
    model.end_work()
    cooled_s = 0.0
    while start_c is not None and cooled_s < run.wait_s and model.die_c > start_c:
        model.advance(_COOLING_STEP_S)
        cooled_s += _COOLING_STEP_S
    return Duration(round(measured_s, 2), cooled_s, likely_s)


def _time_error(model: OfflineModel, run: RunSpec, gpu: GpuSettings | None) -> float | None:
    """Return the stated error of the time of a step in this condition; None: unknown."""
    profile, table = model.soc.profile, OpTable(model.step.ops, model.engine)
    condition = RunCondition.of(
        model.soc,
        model.load.mask,
        not run.workload.endswith("-inference"),
        gpu_time_error(profile, table, gpu) if gpu else None,
    )
    provenance = provenance_by_family(profile, model.engine, run.backend, condition)
    error = provenance["time"].get("error_rel")
    return error if isinstance(error, float) else None
