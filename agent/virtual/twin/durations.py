"""Run durations: how long runs would take on a phone's twin, and how long it cools afterwards.

In model time; installing, quiescing and checking are not included.
"""

from dataclasses import dataclass
from functools import lru_cache

from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.profiles import load_profile, profile_ids
from agent.virtual.twin.cores_and_clocks import UnknownCondition
from agent.virtual.twin.offline_model import OfflineModel, batch_bytes, bind_parameters

_COOLING_STEP_S = 5.0
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
    backend: str = "cpu"
    kernel: str = "tuned"
    feed: str = "resident"


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of measuring, and of cooling before the next such run can start."""

    measured_s: float
    cooled_s: float


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
    timed_s = min(max(run.seconds, run.steps * step_s), run.max_seconds)
    measured_s = run.warmup * step_s + timed_s
    model.advance(measured_s)
    model.end_work()
    cooled_s = 0.0
    while run.start_c is not None and cooled_s < run.wait_s and model.die_c > run.start_c:
        model.advance(_COOLING_STEP_S)
        cooled_s += _COOLING_STEP_S
    return Duration(round(measured_s, 2), cooled_s)
