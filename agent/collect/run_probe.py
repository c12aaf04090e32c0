"""Chooses the nodes that are sampled during a run, and those read right before and after it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.collect.cpu_usage import (
    CORES_MARK,
    CYCLES,
    CYCLES_MARK,
    FIRST_THREAD,
    MEMINFO,
    MEMORY_MARK,
    OWN_STAT,
    STAT,
    TICKS_MARK,
    WHOLE_MARK,
    gpu_load_node,
    parse_meminfo,
    swap_used_kb,
)
from agent.collect.energy import POWER, POWER_NODES, energy_meters
from agent.collect.power_rails import sampled_meter_nodes
from agent.collect.readings import Readings
from agent.collect.thread_affinity import MASKS_MARK, TASKS
from agent.phone.kernel_nodes import (
    FIRMWARE_THROTTLING,
    SUPPLY,
    THERMAL,
    clock_node,
    first_number,
    hottest_c,
    parse_cpu_coolers,
    policy_node,
    supply_node,
    used_clusters,
)
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import BOOT_ID, UPTIME
from agent.phone.power_meters import METER_NODES, RailMeter, find_rail_meters
from agent.phone.shell_command import ShellCommand, read_nodes_command
from agent.phone.thermalservice import STATUS as THERMAL_STATUS
from agent.phone.thermalservice import is_thermalservice
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.phone_address import is_wireless
from workloads.protocol.phone_facts import CoreSet, PhoneFacts, ThermalZone
from workloads.text import safe_text

FOREGROUND = "/dev/cpuset/top-app/cgroup.procs"  # the processes of the app in the foreground
_FOREGROUND_CORES = "/dev/cpuset/top-app/cpus"  # is never empty
_BUSES = "/sys/class/devfreq/*/cur_freq"
_BUS_NAME = re.compile(r"ddr|llcc|bimc|cpu-?bw|mif|dmc|dvfsrc|emc")
_OTHER_BUS_NAME = re.compile(r"lat|gpu|kgsl|npu|cdsp")  # votes of single parts
_BUSES_MAX = 3
PANELS = "/sys/class/backlight/*/max_brightness"
FULL_CHARGE = f"{SUPPLY}/battery/charge_full_design"
# The name of the folder contains a colon, which no pattern may have.
FIRMWARE_PATTERN = FIRMWARE_THROTTLING.replace("soc:firmware", "soc*")


@dataclass(frozen=True)
class ProbeSnapshot:
    """The phone right before or after a run: boot, temperature, and the time at each clock."""

    boot_id: str
    temp_c: float | None
    residency: Mapping[int, str]  # time_in_state by policy
    full_charge_uah: int | None = None
    swap_used_kb: int | None = None
    available_kb: int | None = None
    uptime_s: float | None = None


@dataclass(frozen=True)
class RunProbe:
    """The nodes of one phone that show what happens in one run."""

    facts: PhoneFacts
    cores: CoreSet
    requested_khz: Mapping[int, int]
    coolers: Mapping[str, str]  # state node of each CPU cooling device -> its type
    rails: tuple[RailMeter, ...] = ()
    requested_gpu_khz: int | None = None
    battery_nodes: tuple[str, ...] = POWER_NODES
    backlights: Mapping[str, int] = field(default_factory=dict)  # node -> highest brightness
    bus_nodes: tuple[str, ...] = ()  # clocks of the memory
    shows_foreground: bool = False
    wireless: bool = False  # a radio of the phone carried the connection when the run was prepared

    @property
    def sampled_nodes(self) -> list[str]:
        """The nodes that the runner samples beside the work."""
        facts = self.facts
        nodes = [zone.path for zone in facts.cpu_zones]
        nodes += [facts.body_zone.path] if facts.body_zone else []
        for clock in self.clock_nodes:
            nodes += [clock, clock.replace("scaling_cur_freq", "scaling_max_freq")]
        nodes += [*self.coolers, *self.battery_nodes]
        if not facts.clocks_writable:
            nodes += [
                f"{residency_node(facts, policy)}{WHOLE_MARK}" for policy in self.requested_khz
            ]
        nodes += [f"{STAT}{CORES_MARK}", f"{OWN_STAT}{TICKS_MARK}", f"{MEMINFO}{MEMORY_MARK}"]
        nodes += [f"{TASKS}{MASKS_MARK}", f"{CYCLES}{CYCLES_MARK}", FIRST_THREAD]
        gpu_load = gpu_load_node(facts.gpu)
        nodes += [gpu_load, self.gpu_clock_node, self.gpu_limit_node] if gpu_load else []
        nodes += [*self.backlights, *self.bus_nodes]
        nodes += [f"{FOREGROUND}{WHOLE_MARK}"] if self.shows_foreground else []
        nodes += [node for meter in self.rails for node in sampled_meter_nodes(meter)]
        return [path for path in nodes if not is_thermalservice(path)]

    @property
    def clock_nodes(self) -> list[str]:
        """The present clocks of the measured cores."""
        clusters = used_clusters(self.facts, self.cores)
        return [
            clock_node(cluster, "scaling_cur_freq") for cluster in clusters if cluster.has_clock
        ]

    @property
    def power_nodes(self) -> list[str]:
        """The nodes that show how much the phone draws at rest."""
        meters = energy_meters(self.rails)
        return [
            *self.battery_nodes,
            *(node for meter in meters for node in sampled_meter_nodes(meter)),
        ]

    @property
    def gpu_clock_node(self) -> str:
        """The present clock of the GPU, in its own unit."""
        assert self.facts.gpu is not None
        return f"{self.facts.gpu.folder}/{self.facts.gpu.clock}"

    @property
    def gpu_limit_node(self) -> str:
        """The highest clock that the GPU may have now, in its own unit."""
        assert self.facts.gpu is not None
        return f"{self.facts.gpu.folder}/{self.facts.gpu.limits[1]}"

    def gpu_series_khz(self, readings: Readings, node: str) -> list[tuple[int, int]]:
        """A clock of the GPU over time; an idle GPU may be switched off and show none."""
        assert self.facts.gpu is not None
        unit_hz = self.facts.gpu.unit_hz
        return [(t_ns, value * unit_hz // 1000) for t_ns, value in readings.series(node) if value]

    @property
    def body_zones(self) -> tuple[ThermalZone, ...]:
        """The zones that show the slow temperature of a long run."""
        return (self.facts.body_zone,) if self.facts.body_zone else self.facts.cpu_zones

    @property
    def samples_temperature(self) -> bool:
        """False if only Android's thermal service, which no sampler calls, has CPU temperatures."""
        return not any(is_thermalservice(zone.path) for zone in self.facts.cpu_zones)

    def snapshot_command(self) -> ShellCommand:
        """The command that reads the nodes of a snapshot."""
        zones = (zone.path for zone in self.facts.cpu_zones)
        residency = (residency_node(self.facts, policy) for policy in self.requested_khz)
        return read_nodes_command(
            [UPTIME, BOOT_ID, self._full_charge_node, MEMINFO, *zones, *residency]
        )

    @property
    def _full_charge_node(self) -> str:
        return supply_node(FULL_CHARGE, self.facts.gauge_supply)

    def parse_snapshot(self, nodes: Mapping[str, str]) -> ProbeSnapshot:
        """Parse the nodes of a snapshot."""
        memory = parse_meminfo(nodes.get(MEMINFO, "").splitlines())
        return ProbeSnapshot(
            boot_id=safe_text(nodes.get(BOOT_ID, ""), 64),
            temp_c=hottest_c(self.facts.cpu_zones, nodes),
            residency={
                policy: nodes.get(residency_node(self.facts, policy), "")
                for policy in self.requested_khz
            },
            full_charge_uah=first_number(nodes.get(self._full_charge_node, "")),
            swap_used_kb=swap_used_kb(memory),
            available_kb=memory.get("MemAvailable"),
            uptime_s=_parse_uptime_s(nodes.get(UPTIME, "")),
        )


def build_run_probe(
    phone: Phone, cores: CoreSet, applied: AppliedCondition, boot_id: str
) -> RunProbe:
    """Find the nodes of this phone that will show what happens in a run."""
    nodes_of_boot = (FIRMWARE_PATTERN, POWER, *METER_NODES, PANELS, _BUSES, _FOREGROUND_CORES)
    patterns = (f"{THERMAL}/cooling_device*/type", *nodes_of_boot)
    nodes = phone.find_boot_nodes(patterns, boot_id)
    if any(is_thermalservice(zone.path) for zone in phone.facts.cpu_zones):
        coolers = {THERMAL_STATUS: "the framework's thermal status"}
    else:
        coolers = parse_cpu_coolers(nodes)
    return RunProbe(
        facts=phone.facts,
        cores=cores,
        requested_khz=applied.clocks_khz,
        coolers=coolers,
        rails=find_rail_meters(nodes),
        requested_gpu_khz=applied.gpu_khz,
        battery_nodes=tuple(
            supply_node(path, phone.facts.gauge_supply)
            for path in (*POWER_NODES, *([POWER] if POWER in nodes else []))
        ),
        backlights={
            path.replace("/max_brightness", "/brightness"): highest
            for path, text in nodes.items()
            if path.endswith("/max_brightness") and (highest := first_number(text))
        },
        bus_nodes=find_bus_nodes(nodes),
        shows_foreground=_FOREGROUND_CORES in nodes,
        wireless=is_wireless(phone.address),
    )


def find_bus_nodes(nodes: Mapping[str, str]) -> tuple[str, ...]:
    """The clocks of the memory: names of buses differ by vendor."""
    names = {path: path.split("/")[-2].lower() for path in nodes if fnmatchcase(path, _BUSES)}
    found = (path for path, name in names.items() if _BUS_NAME.search(name))
    return tuple(path for path in found if not _OTHER_BUS_NAME.search(names[path]))[:_BUSES_MAX]


def _parse_uptime_s(text: str) -> float | None:
    words = text.split(maxsplit=1)
    return float(words[0]) if words and re.fullmatch(r"\d{1,12}\.\d\d", words[0]) else None


def residency_node(facts: PhoneFacts, policy: int) -> str:
    """The node that counts the time at each clock of a policy."""
    return policy_node(facts, policy, "stats/time_in_state")
