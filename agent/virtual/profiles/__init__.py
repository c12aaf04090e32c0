"""Profiles of phone models: reads and checks one TOML file per model.

Every figure in a profile names its source; the code contains no figure of any phone. Which zones,
nodes and properties a phone shows is in its layout.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent.virtual.layouts import layout_figures, layout_path
from agent.virtual.socs import CorePower, CurveGrade, SocCluster, SocTable, load_soc
from agent.virtual.socs.core_designs import CORE_DESIGNS

_FOLDER = Path(__file__).parent
_A76_COREMARK_PER_MHZ = CORE_DESIGNS["Cortex-A76"].coremark_per_mhz

HeatNode = Literal["die", "body", "battery"]


class _ProfilePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ClusterProfile(_ProfilePart):
    """Cores that share a clock, as the SoC's table describes them."""

    role: Literal["little", "mid", "big", "prime"]
    core: str
    cpus: tuple[int, ...]
    part: int  # CPU part as /proc/cpuinfo prints it
    ladder_khz: tuple[int, ...]
    work_shares: tuple[float, ...]  # of each step: the work per MHz relative to the usual one
    capacity: int  # as cpu_capacity reads; 1024 is the fastest core of the SoC
    flops_per_cycle: float  # single precision, reached by a good matrix product
    power: CorePower  # of one busy core
    grade: CurveGrade  # where the power comes from


class MemoryProfile(_ProfilePart):
    total_kb: int
    available_kb: int  # with nothing running
    swap_kb: int
    bandwidth_gbs: float  # of all cores together, at the highest clock
    core_gbs: float  # of one core alone
    cache_kb: float
    cache_gbs: float
    watts_per_gbs: float  # of main memory
    # of the caches and the interconnect that cores share, while traffic is low
    cache_watts_per_gbs: float = 0.43
    # of the bandwidth: traffic around which their clock stops rising
    full_vote_share: float = 0.41


class HeatProfile(_ProfilePart):
    """Three heat capacities and the thermal resistances between them."""

    die_j_per_k: float
    die_body_k_per_w: float
    body_j_per_k: float
    body_ambient_k_per_w: float
    battery_j_per_k: float
    body_battery_k_per_w: float
    idle_w: float  # whole phone, screen at its dimmest, nothing running
    idle_die_share: float = 0.35
    # The next three, and both figures of shared caches: as fitted on the Meizu 16T, for all phones.
    vector_factor: float = 0.83  # power of a core in NEON code relative to its curve
    stalled_share: float = 0.76  # relative to that, while a core alone waits for memory
    scalar_share: float = 0.49  # relative to that, in scalar code


class ZoneProfile(_ProfilePart):
    """One thermal zone: where it is and how it reads."""

    type: str
    node: HeatNode
    offset_c: float = 0.0
    hotspot_k_per_w: float = 0.0  # local rise above the node per watt of `cluster`
    cluster: str | None = None  # role, or gpu; None: the whole SoC
    step_mc: int = 100
    per_degree: Literal[1, 10, 1000] = 1000  # what the zone reads per degree
    trip_c: float | None = None
    frozen_mc: int | None = None  # vendors leave sensors unconnected, which read a constant
    number: int | None = None  # of thermal_zoneN; None: its place in the list
    listed: bool = True  # False: a sensor of the thermal HAL, without a node
    depletion: bool = False  # shows 100 minus the battery's level: a governor reads it like a zone


class CoolingProfile(_ProfilePart):
    """A cooling device; with a role it caps that cluster (or gpu), without one it only exists."""

    type: str
    cluster: str | None = None
    max_state: int = 0


class ThrottleRung(_ProfilePart):
    """A cap: from `trip_c` on, the clusters run that many steps below their highest clock."""

    trip_c: float
    steps: int = Field(ge=1)


class ThrottleProfile(_ProfilePart):
    """A thermal policy of some clusters.

    With rungs, the highest rung whose trip is passed is in force, and each ends `hysteresis_c`
    below its trip. Without rungs it is the kernel's step-wise governor: one step down per poll
    while the zone is above `trip_c` and not falling, one step up when it is cooler.
    """

    zone: str
    trip_c: float = 0.0
    rungs: tuple[ThrottleRung, ...] = ()
    hysteresis_c: float
    poll_s: float
    lag_s: float = 0.0  # time constant of the policy's average over the zone
    clusters: tuple[str, ...]
    service: str | None = None  # daemon that enforces it; None: the kernel

    @model_validator(mode="after")
    def _check_rungs(self) -> "ThrottleProfile":
        if any(low.trip_c >= high.trip_c for low, high in pairwise(self.rungs)):
            raise ValueError(f"the rungs of {self.zone} do not rise; sort them by trip")
        return self


class BatteryProfile(_ProfilePart):
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
    supply: Literal["battery", "Battery", "bms"] = "battery"  # as the vendor names it
    charging_switch: Literal["input_suspend", "charging_enabled", "none"] = "none"


class OpenCLProfile(_ProfilePart):
    """What the vendor's OpenCL library says about the GPU, and how fast its compiler is."""

    platform: str
    device: str
    version: str
    driver: str
    units: int
    global_mb: int
    max_alloc_mb: int  # largest buffer
    local_kb: int
    max_group: int  # work items
    images: bool = True
    build_ms: float  # of one program, on the fastest core
    has_device: bool = True  # False: the library is there and lists no device


class GpuProfile(_ProfilePart):
    """The GPU: its frequency ladder, speed and power."""

    name: str
    driver: Literal["kgsl", "mali", "nvgpu"]
    devfreq: bool = True  # whether its clock is in a devfreq folder; that of Tensor phones is not
    ladder_khz: tuple[int, ...]
    peak_gflops: float  # single precision, at the highest clock
    gemm_share: float  # share of the peak that a tiled matrix product reaches
    naive_share: float  # share of the peak with one output element per thread
    volts: tuple[float, float]
    dyn_w: float  # all units busy at the highest clock
    leak_w: float
    copy_gbs: float  # between the engine's buffers and the GPU's
    launch_us: float  # for an engine to queue a kernel, wait for it and map its result
    enqueue_us: float  # to queue a kernel without waiting, on the fastest core
    bandwidth_gbs: float  # that kernels reach in main memory
    opencl: OpenCLProfile | None = None  # None: the phone has no OpenCL library


class FittedBlock(_ProfilePart):
    """Result of a fit: values that override the figures above, and errors of left-out rows."""

    measurements_file: str  # path of the data
    room_c: float = 25.0  # temperature of the room of the measurements
    engine: str = ""  # that the rows were measured with; empty: no step was timed
    mask: int = 0  # cores of the rows that were measured with free clocks
    clocks_khz: dict[str, tuple[int, int]] = {}  # lowest and highest pinned clock by role
    # by family of metrics, by what was left out: mean absolute relative errors
    error_rel: dict[str, dict[str, float]] = {}
    values: dict[str, float] = {}  # by path, such as "heat.body_j_per_k" or "cluster.big.capacity"


class KernelProfile(_ProfilePart):
    release: str
    governors: tuple[str, ...]
    governor: str
    # if scaling_max_freq is below scaling_min_freq
    limit_conflict: Literal["refuse", "clamp"] = "refuse"
    # kernels before 4.3 have a cpufreq folder per core, which vanishes while its cores are offline
    cpufreq: Literal["policies", "cores"] = "policies"
    shows_capacity: bool = True  # cpu_capacity came with energy-aware scheduling


class ServiceRowProfile(_ProfilePart):
    """One temperature of the thermal HAL; the type is numbered as the phone does it."""

    name: str
    type: int
    value: float


class ServiceProfile(_ProfilePart):
    """What `dumpsys thermalservice` shows; without a connection only cached values."""

    connection: str = ""
    status: int = 0
    current: tuple[ServiceRowProfile, ...] = ()
    cached: tuple[ServiceRowProfile, ...] = ()


class LayoutProfile(_ProfilePart):
    """The nodes of a captured phone."""

    offline: tuple[int, ...] = ()  # cores that are switched off after boot
    texts: dict[str, str] = {}  # of nodes that no model has
    dead: tuple[str, ...] = ()  # nodes whose text replaces the value of the model
    unreadable: tuple[str, ...] = ()
    service: ServiceProfile | None = None


class PhoneProfile(_ProfilePart):
    """A phone model."""

    id: str
    name: str
    serial_prefix: str
    soc: str
    soc_table: str  # id of the table that the clusters come from
    top_khz: dict[str, int] = {}  # highest clock by role, if the maker set it below the SoC's
    layout_file: str  # name of a layout of the project, or path of a facts file
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
    rails: Literal["odpm", "ina3221"] | None = None  # power meters on the board
    storage_mbs: float  # reading a file past the page cache
    # kHz by role for high, mid and low, if a study defined them
    levels: dict[str, dict[str, int]] = {}
    sources: tuple[str, ...] = Field(min_length=1)
    # 'STUDY: CLAIM' of every claim that a figure was fitted to or chosen with; * is any text
    chosen_by: tuple[str, ...] = ()
    tier: Literal["low", "mid", "high", "board"]
    scalar_ipc: float  # scalar work per cycle of the fastest core; 1 is a Cortex-A76
    fitted: FittedBlock | None = None
    nodes: dict[str, str] = {}  # of its layout: text of nodes that no model has
    layout: LayoutProfile | None = None  # of a captured phone

    @property
    def cores(self) -> int:
        return sum(len(cluster.cpus) for cluster in self.cluster)

    @property
    def opencl(self) -> OpenCLProfile | None:
        """Return what the phone's OpenCL library shows; None: the phone has no usable GPU."""
        opencl = self.gpu.opencl if self.gpu else None
        return opencl if opencl is not None and opencl.has_device else None

    @property
    def calibration(self) -> str:
        """Return what was measured: the phone itself, only its SoC, or nothing."""
        if self.fitted is not None:
            return "calibrated"
        measured = any(part.grade in ("measured", "points") for part in self.cluster)
        return "extrapolated" if measured else "uncalibrated"

    def with_values(self, values: Mapping[str, float]) -> "PhoneProfile":
        """Return the same phone with some figures replaced, each named by its path."""
        figures = self.model_dump()
        for path, value in values.items():
            _set_figure(figures, path, value)
        return PhoneProfile.model_validate(figures)


@cache
def load_profile(profile_id: str) -> PhoneProfile:
    """Read one profile by its id, or by the path of its file."""
    path = profile_path(profile_id)
    if profile_id not in profile_ids() and not profile_id.endswith(".toml"):
        known = ", ".join(profile_ids())
        raise KeyError(f"unknown profile '{profile_id}'; use one of {known}")
    figures = tomllib.loads(path.read_text(encoding="utf-8"))
    profile = assemble_profile(figures, load_soc(figures["soc_table"]))
    return profile.with_values(profile.fitted.values) if profile.fitted else profile


def assemble_profile(figures: dict[str, Any], soc: SocTable) -> PhoneProfile:
    """Put a phone together: the clusters of its SoC, its own body, and the layout of a capture."""
    top_khz = figures.get("top_khz", {})
    clusters = [_cluster_profile(soc, part, top_khz.get(part.role)) for part in soc.cluster]
    ipc = max(part.work_per_mhz for part in soc.cluster) / _A76_COREMARK_PER_MHZ
    layout = layout_figures(
        layout_path(figures["layout_file"]),
        figures["zone"],
        {policy["zone"] for policy in figures["throttle"]},
        [part.role for part in soc.cluster],
        figures.get("build", {}),
    )
    whole = {"scalar_ipc": ipc, **figures, **layout, "cluster": clusters}
    return PhoneProfile.model_validate(whole)


def _cluster_profile(soc: SocTable, part: SocCluster, top_khz: int | None) -> ClusterProfile:
    steps = [
        (khz, share)
        for khz, share in zip(part.ladder_khz, part.work_shares, strict=True)
        if top_khz is None or khz <= top_khz
    ]
    return ClusterProfile(
        role=part.role,
        core=part.core,
        cpus=part.cpus,
        part=part.part,
        ladder_khz=tuple(khz for khz, _ in steps),
        work_shares=tuple(share for _, share in steps),
        capacity=soc.capacity(part),
        flops_per_cycle=part.flops_per_cycle,
        power=part.power or _family_power(soc, part),
        grade=part.grade,
    )


def _family_power(soc: SocTable, part: SocCluster) -> CorePower:
    """Return the power of a cluster whose table does not state it."""
    from agent.virtual.twin.core_power_model import model_for

    return model_for(soc).figures(soc, part)


def profile_path(profile_id: str) -> Path:
    return Path(profile_id) if profile_id.endswith(".toml") else _FOLDER / f"{profile_id}.toml"


def _set_figure(tree: dict[str, Any], path: str, value: float) -> None:
    """Set one figure; lists on the path are indexed by role or position."""
    *parents, leaf = path.split(".")
    part: Any = tree
    for key in parents:
        if isinstance(part, list | tuple):
            part = part[int(key)] if key.isdigit() else _by_role(part, key)
        else:
            if isinstance(part[key], tuple):
                part[key] = list(part[key])
            part = part[key]
    if isinstance(part, list):
        part[int(leaf)] = value
    elif leaf not in part:
        raise KeyError(f"a profile has no figure '{path}'")
    else:
        part[leaf] = value


def _by_role(parts: Sequence[dict[str, Any]], role: str) -> dict[str, Any]:
    return next(part for part in parts if part["role"] == role)


@cache
def profile_ids() -> tuple[str, ...]:
    """Return the ids of all profiles, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
