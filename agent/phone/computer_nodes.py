"""Parsers for kernel nodes that computers have and phones lack: hwmon, clocks without steps. Pure.

They serve Linux boards, laptops and desktops that are measured like phones.
"""

import re
from collections.abc import Mapping, Sequence

from agent.phone.kernel_nodes import CPU, CPUFREQ, clock_node, first_number, parse_cpus, zone_scale
from workloads.protocol.phone_facts import Cluster, ThermalZone
from workloads.text import safe_text

HWMON = "/sys/class/hwmon"
_HYBRID = {"/sys/devices/cpu_core/cpus", "/sys/devices/cpu_atom/cpus"}
# Thermometers of processors: Intel, AMD, and the SoC of boards whose thermal zones are hidden.
_CPU_CHIPS = {"coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal"}
_HWMON_TEMP = re.compile(rf"({HWMON}/hwmon\d{{1,3}})/(temp\d{{1,3}})_input")
_THREADS = re.compile(rf"{CPU}/cpu(\d{{1,3}})/topology/thread_siblings_list")
# Drivers that accept any clock within their range; steps of 100 MHz are used.
_STEPLESS_DRIVERS = {"intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp"}
_STEPLESS_DRIVERS |= {"cppc_cpufreq"}
STEP_KHZ = 100_000
SAME_KIND = 0.9  # favoured cores of one kind have slightly higher clocks than the others

COMPUTER_NODES = (
    f"{CPUFREQ}/policy*/scaling_driver",
    f"{CPUFREQ}/policy*/scaling_cur_freq",
    f"{CPUFREQ}/policy*/cpuinfo_min_freq",
    f"{CPUFREQ}/policy*/base_frequency",
    f"{CPU}/cpu*/acpi_cppc/nominal_freq",
    f"{CPU}/cpu*/topology/thread_siblings_list",
    *sorted(_HYBRID),
    f"{HWMON}/hwmon*/name",
    f"{HWMON}/hwmon*/temp*_label",
    f"{HWMON}/hwmon*/temp*_input",
)


def is_stepless(nodes: Mapping[str, str], policy: int) -> bool:
    """Whether a policy has no own steps: its driver accepts any clock."""
    folder = f"{CPUFREQ}/policy{policy}"
    listed = nodes.get(f"{folder}/scaling_available_frequencies", "").strip()
    return not listed and nodes.get(f"{folder}/scaling_driver", "").strip() in _STEPLESS_DRIVERS


def stepless_ladder(nodes: Mapping[str, str], policy: int, cpu: int) -> tuple[int, ...]:
    """Steps of 100 MHz up to the clock that the processor can hold.

    That is its base clock: turbo clocks depend on temperature, power and the number of busy cores.
    """
    folder = f"{CPUFREQ}/policy{policy}"
    lowest = first_number(nodes.get(f"{folder}/cpuinfo_min_freq", ""))
    nominal_mhz = first_number(nodes.get(f"{CPU}/cpu{cpu}/acpi_cppc/nominal_freq", ""))
    highest = (
        first_number(nodes.get(f"{folder}/base_frequency", ""))
        or (nominal_mhz and nominal_mhz * 1000)
        or first_number(nodes.get(f"{folder}/cpuinfo_max_freq", ""))
    )
    if not lowest or not highest or not lowest < highest <= 10_000_000:
        return ()
    first = -(-lowest // STEP_KHZ) * STEP_KHZ
    return tuple(sorted({lowest, *range(first, highest + 1, STEP_KHZ), highest}))


def adapt_clusters(
    clusters: Sequence[Cluster], nodes: Mapping[str, str], clocks_writable: bool
) -> tuple[Cluster, ...]:
    """Give clusters of computers their steps and their kinds.

    A stepless clock that cannot be set has no steps: no governor rests at one of them.
    """
    adapted = []
    for cluster in clusters:
        changes: dict[str, object] = {
            "clock_shown": clock_node(cluster, "scaling_cur_freq") in nodes
        }
        if is_stepless(nodes, cluster.policy):
            ladder = stepless_ladder(nodes, cluster.policy, cluster.cpus[0])
            changes["ladder_khz"] = ladder if clocks_writable else ()
        adapted.append(cluster.model_copy(update=changes))
    return _with_kinds(adapted, nodes)


def _with_kinds(clusters: Sequence[Cluster], nodes: Mapping[str, str]) -> tuple[Cluster, ...]:
    """Give cores of one kind the same capacity, where the kernel states none.

    Computers have a policy per core, and their clocks alone do not show the kinds.
    """
    unknown = [at for at in clusters if f"{CPU}/cpu{at.cpus[0]}/cpu_capacity" not in nodes]
    if not unknown or any(len(cluster.cpus) > 1 for cluster in clusters):
        return tuple(clusters)
    capacities = {cluster.policy: _top_mhz(cluster, nodes) for cluster in unknown}
    hybrid = [parse_cpus(nodes.get(path, "")) for path in sorted(_HYBRID)]
    if all(hybrid):
        kinds = [[at.policy for at in unknown if at.cpus[0] in cpus] for cpus in hybrid]
    else:
        kinds = _similar(capacities)
    for policies in kinds:
        highest = max((capacities[policy] for policy in policies), default=0)
        capacities |= dict.fromkeys(policies, highest)
    return tuple(
        cluster.model_copy(update={"capacity": capacities.get(cluster.policy, cluster.capacity)})
        for cluster in clusters
    )


def _similar(top_mhz: Mapping[int, int]) -> list[list[int]]:
    """Policies in groups whose highest clocks differ by less than a tenth."""
    groups: list[list[int]] = []
    for policy in sorted(top_mhz, key=lambda policy: -top_mhz[policy]):
        if groups and top_mhz[policy] > SAME_KIND * top_mhz[groups[-1][0]]:
            groups[-1].append(policy)
        else:
            groups.append([policy])
    return groups


def _top_mhz(cluster: Cluster, nodes: Mapping[str, str]) -> int:
    highest = first_number(nodes.get(f"{CPUFREQ}/policy{cluster.policy}/cpuinfo_max_freq", ""))
    return (highest or 0) // 1000 or cluster.capacity


def parse_second_threads(nodes: Mapping[str, str]) -> tuple[int, ...]:
    """The cores that share a physical core with one of a lower number."""
    second: set[int] = set()
    for path, text in nodes.items():
        if _THREADS.fullmatch(path):
            second.update(parse_cpus(text)[1:])
    return tuple(sorted(second))


def parse_hwmon_zones(nodes: Mapping[str, str]) -> tuple[ThermalZone, ...]:
    """The thermometers of the processor among the hwmon chips."""
    zones: dict[str, ThermalZone] = {}
    for path, text in nodes.items():
        match = _HWMON_TEMP.fullmatch(path)
        chip = safe_text(nodes.get(f"{match[1]}/name", ""), 32) if match else ""
        raw = first_number(text)
        if match is None or chip not in _CPU_CHIPS or raw is None or zone_scale(raw) is None:
            continue
        label = safe_text(nodes.get(f"{match[1]}/{match[2]}_label", match[2]), 32)
        zones[label] = ThermalZone(path=path, type=f"{chip} {label}", scale=0.001)
    # AMD's Tctl is Tdie plus an offset that serves the fan, on the models that show both.
    if "Tdie" in zones:
        zones.pop("Tctl", None)
    # Reading the thermometer of a core wakes this core; that of the package is at least as hot.
    packages = [zone for label, zone in zones.items() if label.startswith("Package")]
    return tuple(packages or zones.values())
