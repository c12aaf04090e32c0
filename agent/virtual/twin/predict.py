"""Predicts what a phone would measure in a condition, with the physics of the virtual phone."""

import math
from dataclasses import asdict, dataclass

from agent.virtual.engines import engine_for
from agent.virtual.physics.cpu_cluster import CpuCluster
from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.physics.step_timing import OpTable
from agent.virtual.profiles import PhoneProfile, load_profile
from agent.virtual.socs import load_soc
from agent.virtual.twin.curve_error import predict_curve
from agent.virtual.twin.fit_result import ERROR_QUANTILE
from agent.virtual.twin.gpu_error import gpu_time_error
from agent.virtual.twin.offline_model import (
    OfflineModel,
    batch_bytes,
    batch_parameters,
    bind_workload,
)
from agent.virtual.twin.simulated_provenance import RunCondition, provenance_by_family

# The study of this workload subtracted the idle power; everywhere else power is the whole phone's.
_ABOVE_IDLE = ("emdl-cpuconf",)
_INFERENCE_SUFFIX = "-inference"
_SETTLE_S = 10.0  # the die is warm, the body is not


@dataclass(frozen=True, slots=True)
class PredictionQuery:
    """A workload in a condition."""

    workload: str
    batch: int | None = None
    cores: str = "big4"
    freq: str | None = None  # None: the default governor
    minutes: float = 0.0
    backend: str = "cpu"  # or opencl: the GPU computes, the first core launches
    kernel: str = "tuned"  # of matrix products on the GPU
    feed: str = "resident"  # how batches reach the GPU

    def gpu_settings(self) -> GpuSettings | None:
        """Return how the GPU is used; None: the cores compute."""
        if self.backend == "cpu":
            return None
        parameters = batch_parameters(self.workload, self.batch)
        return GpuSettings(self.kernel, self.feed, batch_bytes(self.workload, parameters))


@dataclass(frozen=True, slots=True)
class Prediction:
    """Figures at the start of the work; temperatures and clock after the given minutes."""

    phone: str
    query: PredictionQuery
    step_ms: float
    power_w: float
    energy_j_per_step: float
    peak_mb: float
    temp_c: float  # of the battery, which is what studies read
    big_khz: int
    power_basis: str
    memory_outcome: str  # fits, swaps, killed, never starts
    sustained_step_ms: float
    sustained_power_w: float
    skin_c: float
    die_c: float
    room_c: float
    gpu_util_pct: float
    cpu_util_pct: float  # of the core of the first thread
    copy_ms: float | None  # None: the cores compute
    queue_ms: float | None
    compute_ms: float | None
    provenance: dict[str, dict[str, object]]
    interval_95: dict[str, tuple[float, float]]  # of step_ms and power_w, where errors are known
    one_core: dict[str, object]  # CoreMark on one core at big_khz: work, power and its interval

    def as_json(self) -> dict[str, object]:
        content = asdict(self)
        return {"phone": content.pop("phone"), **content.pop("query"), **content}


def predict(profile_id: str, query: PredictionQuery) -> Prediction:
    """Predict one condition."""
    profile = load_profile(profile_id)
    step = bind_workload(query.workload, query.batch)
    model = OfflineModel(profile, step, query.cores, query.freq, gpu=query.gpu_settings())
    timing, step_s = model.timing, model.timing.seconds
    copy_s, queue_s, compute_s = timing.gpu or (None, None, None)
    cluster = model.soc.cluster_of(_reported_cpu(model))
    if query.minutes == 0:
        temps, khz, sustained_s = model.soc.heat.temps, cluster.clock_khz, step_s
        model.advance(_SETTLE_S)
        power = sustained_w = _power(model, query)
    else:
        model.advance(_SETTLE_S)
        power = _power(model, query)
        model.advance(max(query.minutes * 60 - _SETTLE_S, 0.0))
        temps, khz, sustained_s = model.soc.heat.temps, cluster.clock_khz, model.timing.seconds
        sustained_w = _power(model, query)
    is_training = not query.workload.endswith(_INFERENCE_SUFFIX)
    engine = engine_for(query.workload)
    settings = query.gpu_settings()
    gpu_error = gpu_time_error(profile, OpTable(step.ops, engine), settings) if settings else None
    condition = RunCondition.of(model.soc, model.load.mask, is_training, gpu_error)
    provenance = provenance_by_family(profile, engine, query.backend, condition)
    return Prediction(
        phone=profile_id,
        query=query,
        step_ms=round(step_s * 1e3, 4),
        power_w=round(power, 4),
        energy_j_per_step=round(power * step_s, 6),
        peak_mb=round(model.needed_kb / 1024, 1),
        temp_c=round(temps[2], 2),
        big_khz=khz,
        power_basis="above idle" if query.workload in _ABOVE_IDLE else "whole phone",
        memory_outcome=model.pressure.outcome,
        sustained_step_ms=round(sustained_s * 1e3, 4),
        sustained_power_w=round(sustained_w, 4),
        skin_c=round(temps[1], 2),
        die_c=round(temps[0], 2),
        room_c=round(model.soc.heat.ambient_c, 2),
        gpu_util_pct=round(100 * timing.gpu_busy, 1),
        cpu_util_pct=round(100 * timing.busy_share, 1),
        copy_ms=_as_ms(copy_s),
        queue_ms=_as_ms(queue_s),
        compute_ms=_as_ms(compute_s),
        provenance=provenance,
        interval_95=_intervals(provenance, step_s * 1e3, power),
        one_core=_one_core(profile, cluster),
    )


def _intervals(
    provenance: dict[str, dict[str, object]], step_ms: float, power_w: float
) -> dict[str, tuple[float, float]]:
    """Return the 95 % intervals of the figures whose error is known."""
    figures = {"step_ms": (step_ms, "time"), "power_w": (power_w, "energy")}
    intervals = {}
    for name, (value, family) in figures.items():
        error = provenance[family].get("error_rel")
        if isinstance(error, float):
            factor = math.exp(ERROR_QUANTILE * error)
            intervals[name] = (round(value / factor, 4), round(value * factor, 4))
    return intervals


def _one_core(profile: PhoneProfile, cluster: CpuCluster) -> dict[str, object]:
    """Return CoreMark work and power of one core at the cluster's present clock."""
    points = predict_curve(load_soc(profile.soc_table))
    role, khz = cluster.profile.role, cluster.clock_khz
    return asdict(next(point for point in points if (point.role, point.khz) == (role, khz)))


def _as_ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 4)


def _power(model: OfflineModel, query: PredictionQuery) -> float:
    whole_phone_w = model.soc.system_w()
    return whole_phone_w - model.idle_w if query.workload in _ABOVE_IDLE else whole_phone_w


def _reported_cpu(model: OfflineModel) -> int:
    """Return the core whose clock is reported: the first of the fast cores in use, otherwise of
    all.
    """
    cpus = sorted(model.load.shares)
    lowest_capacity = min(cluster.profile.capacity for cluster in model.soc.clusters)
    fast_cpus = [
        cpu for cpu in cpus if model.soc.cluster_of(cpu).profile.capacity > lowest_capacity
    ]
    return (fast_cpus or cpus)[0]
