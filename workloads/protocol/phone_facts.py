"""What a phone is and can do, and how names such as `big4` or `mid` select its cores and clocks.

Clusters and core capacities are read from the Linux kernel. The code does not assume that the first
cores are the little ones.
"""

import re
from datetime import date
from enum import StrEnum
from typing import Literal

from pydantic import Field

from workloads.protocol.base import WireModel
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.metrics import Provenances
from workloads.text import TextEnum


class ControlLevel(TextEnum):
    """How much of a phone's state can be set; comparisons mix levels only on request."""

    OBSERVED = "observed", "nothing can be set; conditions are only observed"
    PARTIAL = "partial", "some of that, for example Android's fixed-performance mode"
    CONTROLLED = (
        "controlled",
        "root, clocks can be pinned and verified, CPU temperature can be read",
    )


class Cluster(WireModel):
    """Cores that share a clock: a cpufreq policy."""

    policy: int
    cpus: tuple[int, ...]
    capacity: int
    ladder_khz: tuple[int, ...] = Field(description="ascending")
    clock_shown: bool = Field(
        default=False, description="whether the present clock can be read without a ladder"
    )
    folder: str = Field(default="", description="cpufreq folder; empty: that of the policy")

    @property
    def has_clock(self) -> bool:
        """Whether the present clock can be read."""
        return bool(self.ladder_khz) or self.clock_shown


class ThermalZone(WireModel):
    """A temperature sensor, identified by its type: zone numbers change with builds and boots."""

    path: str
    type: str
    scale: float = Field(description="°C per unit of the node")


class Gpu(WireModel):
    """The GPU, the sysfs folder of its clock, and the steps of that clock."""

    name: str
    folder: str = Field(description="most often a devfreq folder")
    ladder_khz: tuple[int, ...] = Field(description="ascending")
    writable: bool = False
    load_node: str = Field(default="", description="path of its utilisation; empty: the default")
    limits: tuple[str, str] = Field(
        default=("min_freq", "max_freq"), description="nodes of the lowest and the highest clock"
    )
    clock: str = Field(default="cur_freq", description="node of the present clock")
    unit_hz: int = Field(default=1, ge=1, description="Hz per unit of these nodes")


class OpenCLFacts(WireModel):
    """The device that runs OpenCL plans, as the vendor's library describes it."""

    name: str
    version: str
    driver: str
    units: int
    memory_mb: int
    max_alloc_mb: int = Field(description="largest buffer")


class ChargingSwitch(WireModel):
    """A kernel node that switches charging off and on."""

    path: str
    off: str
    on: str


class FuelGauge(WireModel):
    """Sign, unit and period of the fuel gauge, calibrated from readings at rest and under load."""

    discharge_sign: Literal[-1, 1] = Field(description="sign of current_now while discharging")
    unit_a: float = Field(gt=0, description="amperes per unit of current_now")
    period_s: float = Field(ge=0, description="time between new values")
    cells: int = Field(default=1, ge=1, le=4, description="in series; voltage_now is that of one")


class BatteryCondition(WireModel):
    """The wear of a battery as reported by the phone, and the hours observed above 90 %."""

    cycles: int | None = Field(default=None, description="charge cycles")
    capacity_share: float | None = Field(default=None, description="full charge / design capacity")
    health: str = Field(default="", max_length=24, description="in Android's words; empty: unknown")
    first_used: date | None = Field(default=None, description="as the phone tells it")
    watched_since: date | None = Field(default=None, description="by its agent")
    hours: int = Field(default=0, ge=0, description="that an agent has watched it")
    hours_above_90: int = Field(default=0, ge=0)


class CanaryKind(StrEnum):
    """What a canary uses."""

    ARITHMETIC = "arithmetic"  # a matrix product that stays in the caches
    MEMORY = "memory"  # a vector times a matrix that is larger than every cache
    GPU = "gpu"  # a matrix product on the GPU, around runs that use it


class CanaryFacts(WireModel):
    """The length of a canary on one phone, and what it can show."""

    kind: CanaryKind
    seconds: float = Field(gt=0)
    detectable: float = Field(
        gt=0, description="smallest relative change that one canary shows, at two standard errors"
    )


class Commission(WireModel):
    """When a phone was commissioned, and its canaries."""

    on: date
    quick: bool = Field(description="only canaries and fuel gauge were learned")
    canaries: tuple[CanaryFacts, ...] = Field(max_length=8)

    @property
    def canary_seconds(self) -> dict[CanaryKind, float]:
        """The length of each canary."""
        return {canary.kind: canary.seconds for canary in self.canaries}


class PowerStatsHal(StrEnum):
    """The interface through which a phone shows the energy of its rails without root."""

    AIDL = "aidl"  # Android 12 and newer: dumpsys
    HIDL = "hidl"  # lshal


class PhoneFacts(WireModel):
    """What the probe found out about a phone, keyed by its own serial, not by its adb address."""

    serial: str
    model: str
    soc: str
    abi: str
    android: str
    ram_mb: int
    clusters: tuple[Cluster, ...]
    cpu_zones: tuple[ThermalZone, ...]
    body_zone: ThermalZone | None = None
    zones: tuple[ThermalZone, ...] = Field(default=(), description="all with plausible values")
    gpu: Gpu | None = None
    charging: ChargingSwitch | None = None
    gauge_supply: str = Field(
        default="battery", description="folder of the fuel gauge below /sys/class/power_supply"
    )
    gauge: FuelGauge | None = Field(default=None, description="None until the first run")
    gauge_cells: int = Field(
        default=1, ge=1, le=4, description="cells in series of which the gauge shows one"
    )
    shell_cpus: tuple[int, ...] = Field(default=(), description="cores in the cpuset of the shell")
    second_threads: tuple[int, ...] = Field(
        default=(), description="cores that share their execution units with a lower number (SMT)"
    )
    fixed_performance: bool = Field(
        default=False, description="whether Android offers a fixed-performance mode"
    )
    battery: BatteryCondition | None = None
    commission: Commission | None = Field(
        default=None, description="None: never; what later runs are compared with was not learned"
    )
    power_stats: PowerStatsHal | None = Field(
        default=None, description="how the energy of its rails can be read, where no node shows it"
    )
    perf_daemons: tuple[str, ...] = Field(
        default=(), description="vendor daemons that change clocks"
    )
    rooted: bool
    root_manager: str = Field(
        default="", max_length=40, description="on the phone, and has not granted root to the shell"
    )
    clocks_writable: bool = Field(description="whether the CPU clocks can be set")
    control: ControlLevel
    controlled: tuple[str, ...] = Field(default=(), description="what can be set, for display")
    uncontrolled: tuple[str, ...] = Field(default=(), description="what cannot, and why")
    runner: str = Field(description="digest of the runner on the phone")
    runner_error: str | None = Field(default=None, description="why the runner cannot run")
    backends: tuple[str, ...] = Field(
        default=(), description="processors that the runner can use; empty: unknown"
    )
    features: tuple[str, ...] = Field(
        default=(), description="vector instructions of the processor, as the runner names them"
    )
    opencl: OpenCLFacts | None = Field(default=None, description="None: no device was found")
    provenance: Provenances | None = None

    @property
    def cores(self) -> int:
        """The number of CPU cores."""
        return sum(len(cluster.cpus) for cluster in self.clusters)

    def offers(self, backend: str) -> bool:
        """Whether the runner can use a backend; every runner can use the CPU."""
        return backend == "cpu" or not self.backends or backend in self.backends


class CoreSet(WireModel):
    """A set of cores of one phone."""

    name: str
    cpus: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The affinity mask, as taskset expects it."""
        return sum(1 << cpu for cpu in self.cpus)


_CORES = re.compile(r"(big|little|all)([1-9]\d?)|(prime)|mask:([0-9a-f]{1,8})")
CORES_HINT = "use big4, little2, all8, prime or mask:f0"
FREQ_HINT = "use high, mid, low, free, fixed, a fraction such as 0.8, or an exact 1785600kHz"
FREE, FIXED = "free", "fixed"  # left to the governor; Android's fixed-performance mode
_EXACT = re.compile(r"(\d+)kHz")
# Of the highest clock; the nearest step of the ladder is taken.
_FRACTION_OF = {"high": 1.0, "mid": 0.65, "low": 0.40}


def check_cores_name(name: str) -> str:
    """Return the name of a core set if it is valid; whether a phone has it is checked later."""
    if _CORES.fullmatch(name) is None or re.fullmatch(r"mask:0+", name):
        raise ValueError(f"'{name}' is not a core set; {CORES_HINT}")
    return name


def check_freq_name(name: str) -> str:
    """Return the name of a clock if it is valid; whether a phone has it is checked later."""
    if name in {*_FRACTION_OF, FREE, FIXED} or _EXACT.fullmatch(name):
        return name
    try:
        if 0 < float(name) <= 1:
            return name
    except ValueError:
        pass
    raise ValueError(f"'{name}' is not a clock; {FREQ_HINT}")


def canonical_freq_name(name: str) -> str:
    """Return the name of a clock in one spelling: 0.80 and 0.8 are the same condition."""
    check_freq_name(name)
    try:
        return repr(float(name))
    except ValueError:
        return name


def choose_cores(facts: PhoneFacts, name: str) -> CoreSet:
    """Resolve the name of a core set on this phone.

    `bigN` counts every core that is not little, the more numerous kind first, so that a small set
    does not mix different cores: big3 on a 4+3+1 SoC is the three gold cores, big4 is mask f0.
    Second threads of a core (SMT) come last.
    """
    match = _CORES.fullmatch(check_cores_name(name))
    assert match is not None
    kind, count, prime, mask = match.groups()
    lowest = min(cluster.capacity for cluster in facts.clusters)
    highest = max(cluster.capacity for cluster in facts.clusters)
    ranked = sorted(facts.clusters, key=lambda cluster: (cluster.capacity, cluster.policy))
    little = [cpu for cluster in ranked if cluster.capacity == lowest for cpu in cluster.cpus]
    big = [cpu for cluster in ranked if cluster.capacity > lowest for cpu in cluster.cpus]
    if mask:
        cpus = {cpu for cluster in facts.clusters for cpu in cluster.cpus}
        pool = [cpu for cpu in range(32) if int(mask, 16) >> cpu & 1]
        if not pool or not cpus.issuperset(pool):
            raise InvalidRequest(
                f"{facts.model} has no cores {name}; it has cpu{min(cpus)}-{max(cpus)}"
            )
        return CoreSet(name=name, cpus=tuple(pool))
    if prime:
        fastest = ranked[-1]
        if highest == lowest or len(ranked) < 3 or len(fastest.cpus) > 1:
            raise InvalidRequest(f"{facts.model} has no prime core")
        return CoreSet(name=name, cpus=fastest.cpus)
    pool = {"big": big, "little": little, "all": big[::-1] + little}[kind]
    pool.sort(key=lambda cpu: cpu in facts.second_threads)
    if int(count) > len(pool):
        what = "cores" if kind == "all" else f"{kind} cores"
        raise InvalidRequest(f"{facts.model} has {len(pool)} {what}; {name} needs {count}")
    return CoreSet(name=name, cpus=tuple(sorted(pool[: int(count)])))


def choose_clocks(facts: PhoneFacts, cores: CoreSet, name: str) -> dict[int, int]:
    """The clock in kHz of every policy that the cores use; empty if the governor stays in control.

    A name means another step on every cluster, and two names may mean the same step.
    """
    used = [cluster for cluster in facts.clusters if not {*cluster.cpus}.isdisjoint(cores.cpus)]
    clocks = {cluster.policy: choose_clock(cluster, name) for cluster in used}
    return {policy: khz for policy, khz in clocks.items() if khz is not None}


def choose_gpu_clock(facts: PhoneFacts, name: str | None) -> int | None:
    """The GPU clock of this phone in kHz; None leaves the clock alone."""
    if name is None or name == FREE:
        return None
    if facts.gpu is None:
        raise InvalidRequest(f"{facts.model} shows no GPU clock; leave gpu_freq out")
    if not facts.gpu.writable:
        raise InvalidRequest(f"the clock of the {facts.gpu.name} cannot be set; leave gpu_freq out")
    return choose_ladder_step(facts.gpu.ladder_khz, name, facts.gpu.name)


def choose_clock(cluster: Cluster, name: str) -> int | None:
    """Resolve the name of a clock to a step of the cluster's ladder in kHz; None: not fixed."""
    return choose_ladder_step(cluster.ladder_khz, name, f"policy{cluster.policy}")


def choose_ladder_step(ladder_khz: tuple[int, ...], name: str, owner: str) -> int | None:
    """Resolve the name of a clock to a step of a ladder in kHz; None: not fixed."""
    if check_freq_name(name) in {FREE, FIXED}:
        return None
    if not ladder_khz:
        raise InvalidRequest(f"{owner} does not report its clocks; use freq: free")
    if exact := _EXACT.fullmatch(name):
        khz = int(exact[1])
        if khz not in ladder_khz:
            raise InvalidRequest(f"{owner} has no clock of {khz} kHz; see 'farm phone show'")
        return khz
    fraction = _FRACTION_OF[name] if name in _FRACTION_OF else float(name)
    # The lowest two steps of a ladder are idle clocks, which the studies left out as well.
    steps = ladder_khz[2:] if name == "low" else ladder_khz
    target = round(ladder_khz[-1] * fraction)
    return min(steps or ladder_khz, key=lambda step: (abs(step - target), step))
