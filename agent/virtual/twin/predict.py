"""Prediction: what a phone would measure in a condition, from the physics that it runs on."""

from dataclasses import asdict, dataclass

from agent.virtual.engines import engine_for
from agent.virtual.profiles import load_profile
from agent.virtual.twin.bench import Bench, job_named
from agent.virtual.twin.provenance import provenance_of

# The study of this job subtracted the idle power; everywhere else power is the whole phone's.
_ABOVE_IDLE = ("emdl-cpuconf",)
_SETTLE_S = 10.0  # the die is warm, the body is not


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition."""

    workload: str
    batch: int | None = None
    cores: str = "big4"
    freq: str | None = None  # None: the default governor rules
    minutes: float = 0.0
    backend: str = "cpu"  # or opencl: the GPU, with the first core launching


@dataclass(frozen=True, slots=True)
class Prediction:
    """Figures from the start of the work; temperature and clock after the minutes asked for."""

    phone: str
    workload: str
    batch: int | None
    cores: str
    freq: str | None
    minutes: float
    backend: str
    step_ms: float
    power_w: float
    energy_j_per_step: float
    peak_mb: float
    temp_c: float  # of the battery, which is what studies read
    big_khz: int
    power_basis: str
    memory: str  # fits, swaps, killed, never starts
    sustained_step_ms: float
    sustained_power_w: float
    skin_c: float
    die_c: float
    room_c: float
    provenance: dict[str, dict[str, object]]

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def predict(profile_id: str, asked: Asked) -> Prediction:
    """Ask a phone's twin."""
    profile = load_profile(profile_id)
    job = job_named(asked.workload, asked.batch)
    bench = Bench(profile, job, asked.cores, asked.freq, on_gpu=asked.backend == "opencl")
    engine = engine_for(asked.workload) if asked.backend == "cpu" else None
    step_s = bench.cost.seconds
    lead = bench.soc.cluster_of(_watched(bench))
    if asked.minutes == 0:
        temps, khz, late = bench.soc.heat.temps, lead.clock_khz, step_s
        bench.advance(_SETTLE_S)
        power = late_power = _power(bench, asked)
    else:
        bench.advance(_SETTLE_S)
        power = _power(bench, asked)
        bench.advance(max(asked.minutes * 60 - _SETTLE_S, 0.0))
        temps, khz, late = bench.soc.heat.temps, lead.clock_khz, bench.cost.seconds
        late_power = _power(bench, asked)
    return Prediction(
        phone=profile_id,
        workload=asked.workload,
        batch=asked.batch,
        cores=asked.cores,
        freq=asked.freq,
        minutes=asked.minutes,
        backend=asked.backend,
        step_ms=round(step_s * 1e3, 4),
        power_w=round(power, 4),
        energy_j_per_step=round(power * step_s, 6),
        peak_mb=round(bench.needed_kb / 1024, 1),
        temp_c=round(temps[2], 2),
        big_khz=khz,
        power_basis="above idle" if asked.workload in _ABOVE_IDLE else "whole phone",
        memory=bench.pressure.outcome,
        sustained_step_ms=round(late * 1e3, 4),
        sustained_power_w=round(late_power, 4),
        skin_c=round(temps[1], 2),
        die_c=round(temps[0], 2),
        room_c=round(bench.soc.heat.ambient_c, 2),
        provenance=provenance_of(profile, engine),
    )


def _power(bench: Bench, asked: Asked) -> float:
    whole = bench.soc.system_w()
    return whole - bench.idle_w if asked.workload in _ABOVE_IDLE else whole


def _watched(bench: Bench) -> int:
    """The core whose clock is told: the first of the fast ones at work, or of all at work."""
    used = sorted(bench.load.shares)
    least = min(cluster.profile.capacity for cluster in bench.soc.clusters)
    fast = [cpu for cpu in used if bench.soc.cluster_of(cpu).profile.capacity > least]
    return (fast or used)[0]
