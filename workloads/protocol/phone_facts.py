"""What a phone is and can do, and how names such as `big4` or `mid` turn into its cores and clocks.

Clusters come from the kernel's own grouping and capacity, never from 'the first four are small'.
"""

import re
from enum import StrEnum
from typing import Literal

from pydantic import Field

from workloads.fault import Refused
from workloads.measure import Provenances
from workloads.noun import Noun


class ControlLevel(StrEnum):
    """How much of a phone's state the farm holds; comparisons never mix levels unasked."""

    OBSERVED = "observed"
    PARTIAL = "partial"
    CONTROLLED = "controlled"


class Cluster(Noun):
    """Cores that share one clock: a cpufreq policy."""

    policy: int
    cpus: tuple[int, ...]
    capacity: int
    ladder_khz: tuple[int, ...] = Field(description="ascending")


class ThermalZone(Noun):
    """A temperature sensor, known by its type: zone numbers move between builds and boots."""

    path: str
    type: str
    scale: float = Field(description="multiply the node's number by this to get °C")


class Gpu(Noun):
    """The graphics processor: its name, and the folder of its clock with the steps it has."""

    name: str
    folder: str = Field(description="devfreq folder, which counts in Hz")
    ladder_khz: tuple[int, ...] = Field(description="ascending")
    writable: bool = False


class Switch(Noun):
    """A kernel node with two positions."""

    path: str
    off: str
    on: str


class Gauge(Noun):
    """How the battery's gauge speaks, found by what it said at rest and under load."""

    discharge_sign: Literal[-1, 1] = Field(description="sign of current_now while it discharges")
    unit_a: float = Field(gt=0, description="multiply current_now by this to get amperes")
    period_s: float = Field(ge=0, description="how often it says something new")


class PhoneFacts(Noun):
    """What a probe learned. Passive; keyed by the phone's own serial, not its adb address."""

    serial: str
    model: str
    soc: str
    abi: str
    android: str
    ram_mb: int
    clusters: tuple[Cluster, ...]
    cpu_zones: tuple[ThermalZone, ...]
    slow_zone: ThermalZone | None = None
    zones: tuple[ThermalZone, ...] = Field(default=(), description="all that can be believed")
    gpu: Gpu | None = None
    charging: Switch | None = None
    gauge: Gauge | None = Field(default=None, description="None until the phone has worked once")
    shell_cpus: tuple[int, ...] = Field(default=(), description="what the shell's cpuset leaves")
    fixed_performance: bool = Field(default=False, description="the framework offers its own clock")
    opponents: tuple[str, ...] = Field(default=(), description="daemons that set clocks as well")
    rooted: bool
    control: ControlLevel
    controlled: tuple[str, ...] = ()
    uncontrolled: tuple[str, ...] = ()
    runner: str = Field(description="digest of the runner that answered")
    runner_absent: str | None = Field(default=None, description="why nothing can run here")
    provenance: Provenances | None = None

    @property
    def cores(self) -> int:
        """How many CPUs the phone has."""
        return sum(len(cluster.cpus) for cluster in self.clusters)


class CoreSet(Noun):
    """Cores chosen on one phone."""

    name: str
    cpus: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The affinity mask, as taskset wants it."""
        return sum(1 << cpu for cpu in self.cpus)


_CORES = re.compile(r"(big|little|all)([1-9]\d?)|(prime)|mask:([0-9a-f]{1,8})")
CORES_HINT = "write big4, little2, all8, prime or mask:f0"
FREQ_HINT = "write high, mid, low, free, fixed, a fraction such as 0.8, or an exact 1785600kHz"
FREE, FIXED = "free", "fixed"  # the governor's choice, and the framework's fixed-performance mode
_EXACT = re.compile(r"(\d+)kHz")
_FRACTION_OF = {"high": 1.0, "mid": 0.65, "low": 0.40}


def check_cores_name(name: str) -> str:
    """Accept the name of a core set, for any phone."""
    if _CORES.fullmatch(name) is None or re.fullmatch(r"mask:0+", name):
        raise ValueError(f"'{name}' is not a core set; {CORES_HINT}")
    return name


def check_freq_name(name: str) -> str:
    """Accept the name of a clock, for any phone."""
    if name in {*_FRACTION_OF, FREE, FIXED} or _EXACT.fullmatch(name):
        return name
    try:
        if 0 < float(name) <= 1:
            return name
    except ValueError:
        pass
    raise ValueError(f"'{name}' is not a clock; {FREQ_HINT}")


def choose_cores(facts: PhoneFacts, name: str) -> CoreSet:
    """Resolve the name of a core set on this phone.

    `bigN` counts every core that is not little, the more numerous kind first, so that a small
    set does not mix unlike cores: big3 on a 4+3+1 SoC is the three golds, big4 is mask f0.
    """
    match = _CORES.fullmatch(check_cores_name(name))
    assert match is not None
    kind, count, prime, mask = match.groups()
    least = min(cluster.capacity for cluster in facts.clusters)
    most = max(cluster.capacity for cluster in facts.clusters)
    ranked = sorted(facts.clusters, key=lambda cluster: (cluster.capacity, cluster.policy))
    little = [cpu for cluster in ranked if cluster.capacity == least for cpu in cluster.cpus]
    big = [cpu for cluster in ranked if cluster.capacity > least for cpu in cluster.cpus]
    if mask:
        known = {cpu for cluster in facts.clusters for cpu in cluster.cpus}
        pool = [cpu for cpu in range(32) if int(mask, 16) >> cpu & 1]
        if not pool or not known.issuperset(pool):
            raise Refused(f"{facts.model} has no cores {name}; it has cpu{min(known)}-{max(known)}")
        return CoreSet(name=name, cpus=tuple(pool))
    if prime:
        fastest = ranked[-1]
        if most == least or len(ranked) < 3 or len(fastest.cpus) > 1:
            raise Refused(f"{facts.model} has no prime core")
        return CoreSet(name=name, cpus=fastest.cpus)
    pool = {"big": big, "little": little, "all": big[::-1] + little}[kind]
    if int(count) > len(pool):
        what = "cores" if kind == "all" else f"{kind} cores"
        raise Refused(f"{facts.model} has {len(pool)} {what}, {name} asks for {count}")
    return CoreSet(name=name, cpus=tuple(sorted(pool[: int(count)])))


def choose_clock(cluster: Cluster, name: str) -> int | None:
    """Resolve the name of a clock to a real ladder step in kHz; None leaves the governor alone."""
    return choose_step(cluster.ladder_khz, name, f"policy{cluster.policy}")


def choose_step(ladder_khz: tuple[int, ...], name: str, whose: str) -> int | None:
    """Resolve the name of a clock on any ladder; None leaves the governor alone."""
    if check_freq_name(name) in {FREE, FIXED}:
        return None
    if not ladder_khz:
        raise Refused(f"{whose} tells no clocks; ask for freq: free")
    if exact := _EXACT.fullmatch(name):
        wanted = int(exact[1])
        if wanted not in ladder_khz:
            raise Refused(f"{whose} has no step of {wanted} kHz")
        return wanted
    fraction = _FRACTION_OF[name] if name in _FRACTION_OF else float(name)
    # The lowest two steps of a ladder are parking clocks that the studies left out as well.
    steps = ladder_khz[2:] if name == "low" else ladder_khz
    wanted = round(ladder_khz[-1] * fraction)
    return min(steps or ladder_khz, key=lambda step: (abs(step - wanted), step))
