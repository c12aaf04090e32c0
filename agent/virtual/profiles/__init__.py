"""What each model of phone is made of, one TOML file per model, read and checked here.

Every figure in a profile says where it comes from; the code holds no figure of any phone.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_FOLDER = Path(__file__).parent

HeatNode = Literal["die", "body", "battery"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClusterProfile(_Part):
    """Cores that share a clock."""

    role: Literal["little", "mid", "big", "prime"]
    core: str
    cpus: tuple[int, ...]
    part: int  # CPU part as /proc/cpuinfo prints it
    ladder_khz: tuple[int, ...]
    capacity: int  # what cpu_capacity reads, 1024 for the fastest core of the SoC
    flops_per_cycle: float  # single precision, reached by a good matrix product
    dyn_uw_per_mhz_v2: float
    leak_w: float  # whole cluster at full voltage and 60 °C
    volts: tuple[float, float]  # at the lowest and at the highest clock
    ddr_mbs: tuple[int, ...] = ()  # memory bandwidth that each rung votes for, where it is known
    ddr_top_mbs: int = 1  # what the whole SoC can vote for


class MemoryProfile(_Part):
    total_kb: int
    available_kb: int  # at rest
    swap_kb: int
    bandwidth_gbs: float  # all cores together, at the highest clock
    core_gbs: float  # what one core alone can pull
    cache_kb: float
    cache_gbs: float
    watts_per_gbs: float


class HeatProfile(_Part):
    """Three heat capacities and the resistances between them."""

    die_j_per_k: float
    die_body_k_per_w: float
    body_j_per_k: float
    body_ambient_k_per_w: float
    battery_j_per_k: float
    body_battery_k_per_w: float
    idle_w: float  # the whole phone, screen at its dimmest, nothing running
    idle_die_share: float = 0.35
    vector_factor: float = 1.0  # how much more than its coefficient a core draws in NEON code
    stalled_share: float = 0.55  # of that, while a core waits for memory
    scalar_share: float = 0.6  # of that, in scalar code
    uncore_w: float = 0.0  # caches, interconnect and memory awake, at the highest vote


class ZoneProfile(_Part):
    """One thermal zone: where it sits and how it reads."""

    type: str
    node: HeatNode
    offset_c: float = 0.0
    hot_k_per_w: float = 0.0  # local rise over the node per watt of `cluster`
    cluster: str | None = None  # role; the whole SoC where absent
    step_mc: int = 100
    per_degree: Literal[1, 10, 1000] = 1000  # what one degree reads as
    trip_c: float | None = None
    frozen_mc: int | None = None  # sensors that vendors left unconnected read a constant


class CoolingProfile(_Part):
    """A cooling device; one with a role caps that cluster, the others only exist."""

    type: str
    cluster: str | None = None
    max_state: int = 0


class ThrottleProfile(_Part):
    """A trip: while `zone` is above it, the cap of the clusters goes down the ladder."""

    zone: str
    trip_c: float
    hysteresis_c: float
    poll_s: float
    clusters: tuple[str, ...]
    deepest: int  # how many rungs down it may go
    service: str | None = None  # the daemon that enforces it; None is the kernel


class BatteryProfile(_Part):
    capacity_uah: int
    start_percent: float
    full_v: float
    empty_v: float
    resistance_ohm: float
    usb_a: float
    usb_v: float
    discharge_sign: Literal[-1, 1]  # sign of current_now while discharging
    current_unit: Literal["uA", "mA"] = "uA"
    gauge_period_s: float = 1.0
    switch: Literal["input_suspend", "charging_enabled", "none"] = "none"


class GpuProfile(_Part):
    """The graphics processor: its ladder, what it reaches, what it draws."""

    name: str
    driver: Literal["kgsl", "mali", "nvgpu"]
    ladder_khz: tuple[int, ...]
    peak_gflops: float  # single precision, at the highest clock
    gemm_share: float  # of the peak, by a tiled matrix product
    naive_share: float  # of the peak, by one output a thread
    volts: tuple[float, float]
    dyn_w: float  # all units busy at the highest clock
    leak_w: float
    copy_gbs: float  # between an engine's buffers and its own
    launch_us: float  # for an engine to queue a kernel, wait for it and map its result


class FittedBlock(_Part):
    """What `farm virtual calibrate --write` found: values over the figures above, and how wrong."""

    measured_at: str  # the data, by name
    room_c: float = 25.0  # of the place where it was measured
    error_rel: dict[str, float]  # by family of metrics: leave-one-out, not fit
    values: dict[str, float] = {}  # by path, such as "heat.body_j_per_k" or "cluster.big.leak_w"


class KernelProfile(_Part):
    release: str
    governors: tuple[str, ...]
    governor: str
    limits: Literal["refuse", "clamp"] = "refuse"  # scaling_max_freq below scaling_min_freq
    hertz: int = 100


class Profile(_Part):
    """A model of phone."""

    id: str
    name: str
    serial_prefix: str
    soc: str
    rooted: bool
    android: str
    sdk: int
    boot_s: float = 25.0
    build: dict[str, str]
    services: tuple[str, ...]
    kernel: KernelProfile
    cluster: tuple[ClusterProfile, ...]
    memory: MemoryProfile
    heat: HeatProfile
    zone: tuple[ZoneProfile, ...]
    cooling: tuple[CoolingProfile, ...]
    throttle: tuple[ThrottleProfile, ...]
    battery: BatteryProfile
    gpu: GpuProfile | None = None
    rails: Literal["odpm", "ina3221"] | None = None  # meters on the board
    levels: dict[str, dict[str, int]] = {}  # high, mid, low: kHz by role, where a study fixed them
    sources: tuple[str, ...] = Field(min_length=1)
    tier: Literal["low", "mid", "high", "board"]
    scalar_ipc: float = 1.0  # work a cycle of the fastest core in scalar code; an A76 is 1
    fitted: FittedBlock | None = None

    @property
    def cores(self) -> int:
        return sum(len(cluster.cpus) for cluster in self.cluster)

    @property
    def standing(self) -> str:
        """How its figures came about."""
        return "extrapolated" if self.fitted is None else "calibrated"

    def with_values(self, values: Mapping[str, float]) -> "Profile":
        """The same phone with some figures replaced, each named by its path."""
        tree = self.model_dump()
        for path, value in values.items():
            _plant(tree, path, value)
        return Profile.model_validate(tree)


@cache
def load_profile(profile_id: str) -> Profile:
    """Read one profile by its id."""
    path = _FOLDER / f"{profile_id}.toml"
    if profile_id not in profile_ids():
        known = ", ".join(profile_ids())
        raise KeyError(f"no profile '{profile_id}'; there are {known}")
    profile = Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    return profile.with_values(profile.fitted.values) if profile.fitted else profile


def profile_path(profile_id: str) -> Path:
    return _FOLDER / f"{profile_id}.toml"


def _plant(tree: dict[str, Any], path: str, value: float) -> None:
    """Set one figure; a list on the way is entered by role or by place."""
    *way, leaf = path.split(".")
    here: Any = tree
    for word in way:
        if isinstance(here, list | tuple):
            here = here[int(word)] if word.isdigit() else _by_role(here, word)
        else:
            if isinstance(here[word], tuple):
                here[word] = list(here[word])
            here = here[word]
    if isinstance(here, list):
        here[int(leaf)] = value
    elif leaf not in here:
        raise KeyError(f"a profile has no figure '{path}'")
    else:
        here[leaf] = value


def _by_role(parts: Sequence[dict[str, Any]], role: str) -> dict[str, Any]:
    return next(part for part in parts if part["role"] == role)


@cache
def profile_ids() -> tuple[str, ...]:
    """The ids of all profiles, in order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
