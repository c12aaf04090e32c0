"""Clusters of cores from kernel nodes: which cores share a clock, its steps, and their kind. Pure.

Newer kernels have a folder per policy; those before 4.4 have only one per core, and none for a core
that is offline.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from agent.phone.kernel_nodes import (
    CLUSTERS_MAX,
    CPU,
    CPUFREQ,
    FULL_CAPACITY,
    STEPS_MAX,
    all_numbers,
    parse_cpus,
    parse_time_in_state,
    whole_number,
)
from workloads.protocol.phone_facts import Cluster

CPUINFO = "/proc/cpuinfo"
CLOCK_FOLDERS = (f"{CPUFREQ}/policy*", f"{CPU}/cpu*/cpufreq")
_NAMES = (
    "related_cpus",
    "affected_cpus",
    "scaling_available_frequencies",
    "scaling_boost_frequencies",
    "cpuinfo_max_freq",
    "stats/time_in_state",
)
CLUSTER_NODES = (
    *(f"{folder}/{name}" for folder in CLOCK_FOLDERS for name in _NAMES),
    f"{CPU}/cpu*/cpu_capacity",
    f"{CPU}/cpu*/topology/core_siblings_list",
    f"{CPU}/cpu*/regs/identification/midr_el1",
    f"{CPU}/present",
    f"{CPU}/online",
    CPUINFO,
)
KHZ_MIN, KHZ_MAX = 10_000, 10_000_000
CAPACITY_MAX = 4 * FULL_CAPACITY
_POLICY = re.compile(rf"({CPUFREQ}/policy\d{{1,3}})/([a-z_/]+)")
_CORE = re.compile(rf"({CPU}/cpu(\d{{1,3}})/cpufreq)/([a-z_/]+)")
_BLOCK = re.compile(r"^processor\s*:\s*(\d{1,3})\s*$", re.MULTILINE)
_FIELD = re.compile(r"^CPU (implementer|part)\s*:\s*0x([0-9a-fA-F]{1,4})\s*$", re.MULTILINE)
# Kinds of cores by (implementer, part) of MIDR, https://github.com/torvalds/linux
# arch/arm64/include/asm/cputype.h. Only their order is used: efficient, performance, prime.
_EFFICIENT = {(0x41, part) for part in (0xC05, 0xC07, 0xD01, 0xD03, 0xD04, 0xD05, 0xD46, 0xD80)}
_EFFICIENT |= {(0x41, part) for part in (0xD88, 0xD8A, 0xD8F)}
_EFFICIENT |= {(0x51, part) for part in (0x801, 0x803, 0x805)}
_PRIME = {(0x41, part) for part in (0xD44, 0xD48, 0xD4E, 0xD82, 0xD85, 0xD8C, 0xD90)}
_PRIME |= {(0x51, 0x001)}


def parse_ladder(available: str, time_in_state: str = "") -> tuple[int, ...]:
    """Clock steps in kHz, ascending; kernels without the list still count the time per step."""
    steps = all_numbers(available) or list(parse_time_in_state(time_in_state))
    return tuple(sorted({step for step in steps if KHZ_MIN <= step <= KHZ_MAX}))[:STEPS_MAX]


def parse_clusters(nodes: Mapping[str, str]) -> tuple[Cluster, ...]:
    """Group the cores as the kernel does; a policy without steps is left out."""
    present = set(present_cpus(nodes))
    found: dict[tuple[int, ...], tuple[str, tuple[int, ...]]] = {}
    taken: set[int] = set()
    for folder, texts in _clock_folders(nodes).items():
        cpus = _cpus_of(nodes, folder, texts)
        ladder = _ladder_of(texts)
        if not ladder or not cpus or taken & {*cpus} or (present and present.isdisjoint(cpus)):
            continue
        taken |= {*cpus}
        found[cpus] = (folder, ladder)
    weights = _capacities(nodes, {cpus: ladder for cpus, (_, ladder) in found.items()})
    clusters = [
        _cluster(cpus, folder, ladder, weights[cpus]) for cpus, (folder, ladder) in found.items()
    ]
    return tuple(sorted(clusters, key=lambda at: at.policy))[:CLUSTERS_MAX]


def parse_cores(nodes: Mapping[str, str]) -> tuple[Cluster, ...]:
    """The cores of a kernel that shows no clocks: one cluster per capacity, without a ladder."""
    cpus = present_cpus(nodes)
    by_kind = _capacities_by_kind(core_kinds(nodes), cpus)
    by_capacity: dict[int, list[int]] = {}
    for cpu in cpus:
        capacity = _stated(nodes, cpu) or by_kind.get(cpu, FULL_CAPACITY)
        by_capacity.setdefault(capacity, []).append(cpu)
    return tuple(
        Cluster(policy=cpus[0], cpus=tuple(cpus), capacity=capacity, ladder_khz=())
        for capacity, cpus in sorted(by_capacity.items())
    )


def _capacities_by_kind(
    kinds: Mapping[int, tuple[int, int]], cpus: Sequence[int]
) -> dict[int, int]:
    """A figure per core that only orders their kinds; empty if the kind of a core is unknown."""
    if not cpus or not {*cpus} <= kinds.keys():
        return {}
    order = sorted({kinds[cpu] for cpu in cpus}, key=lambda kind: (_rank([kind]), kind))
    return {cpu: FULL_CAPACITY * (1 + order.index(kinds[cpu])) // len(order) for cpu in cpus}


def offline_clusters(nodes: Mapping[str, str], clusters: Sequence[Cluster]) -> tuple[Cluster, ...]:
    """Present cores that no cluster has: a kernel hides the clock of a cluster that is offline.

    Vendors switch off their strongest cores, and MediaTek also those before all others, which are
    the weakest; but a core with its own clock is like the others.
    """
    known = {cpu for cluster in clusters for cpu in cluster.cpus}
    missing = [cpu for cpu in present_cpus(nodes) if cpu not in known]
    if not missing or not clusters:
        return ()
    weakest, strongest = (choose(at.capacity for at in clusters) for choose in (min, max))
    if all(len(cluster.cpus) == 1 for cluster in clusters) and len(clusters) > 1:
        return tuple(
            Cluster(policy=cpu, cpus=(cpu,), capacity=strongest, ladder_khz=()) for cpu in missing
        )
    is_scale_stated = all(at.capacity == _stated(nodes, at.cpus[0]) for at in clusters)
    stated = {cpu: _stated(nodes, cpu) if is_scale_stated else None for cpu in missing}
    # Cores of one cluster have consecutive numbers and the same capacity.
    groups = groupby(missing, lambda cpu: (cpu - missing.index(cpu), stated[cpu]))
    return tuple(
        Cluster(
            policy=cpus[0],
            cpus=cpus,
            capacity=capacity or (max(weakest - 1, 1) if cpus[0] < min(known) else strongest + 1),
            ladder_khz=(),
        )
        for (_, capacity), cpus in ((key, tuple(group)) for key, group in groups)
    )


def core_kinds(nodes: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """Implementer and part of each core; empty if the kernel gives them for one core only."""
    kinds = {}
    for path, text in nodes.items():
        match = re.fullmatch(rf"{CPU}/cpu(\d{{1,3}})/regs/identification/midr_el1", path)
        if match and re.fullmatch(r"0x[0-9a-f]{8,16}", text.strip()):
            midr = int(text.strip(), 16)
            kinds[int(match[1])] = (midr >> 24 & 0xFF, midr >> 4 & 0xFFF)
    if kinds:
        return kinds
    _, *blocks = _BLOCK.split(nodes.get(CPUINFO, ""))
    for number, block in zip(blocks[::2], blocks[1::2], strict=True):
        fields = {name: int(value, 16) for name, value in _FIELD.findall(block)}
        if {"implementer", "part"} <= fields.keys():
            kinds[int(number)] = (fields["implementer"], fields["part"])
    # Kernels of 32 bits print one block for all cores: that of the core that printed it.
    return kinds if len(kinds) == len(blocks[::2]) else {}


def _clock_folders(nodes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The nodes of each policy; of each core where the kernel has no policies."""
    policies: dict[str, dict[str, str]] = {}
    cores: dict[int, tuple[str, dict[str, str]]] = {}
    for path, text in nodes.items():
        if match := _POLICY.fullmatch(path):
            policies.setdefault(match[1], {})[match[2]] = text
        elif match := _CORE.fullmatch(path):
            cores.setdefault(int(match[2]), (match[1], {}))[1][match[3]] = text
    return (
        policies
        if any(map(_ladder_of, policies.values()))
        else dict(folder for _, folder in sorted(cores.items()))
    )


def _cpus_of(nodes: Mapping[str, str], folder: str, texts: Mapping[str, str]) -> tuple[int, ...]:
    """The cores of a folder; while MediaTek switches cores off, one may show another's clock."""
    related = parse_cpus(texts.get("related_cpus", "")) or parse_cpus(
        texts.get("affected_cpus", "")
    )
    core = _CORE.fullmatch(f"{folder}/related_cpus")
    if core is None or int(core[2]) in related:
        return related
    siblings = parse_cpus(nodes.get(f"{CPU}/cpu{core[2]}/topology/core_siblings_list", ""))
    is_cluster = int(core[2]) in siblings and not {*present_cpus(nodes)} <= {*siblings}
    return () if related else siblings if is_cluster else (int(core[2]),)


def present_cpus(nodes: Mapping[str, str]) -> tuple[int, ...]:
    """The cores that the phone has, also those that are offline."""
    return parse_cpus(nodes.get(f"{CPU}/present", ""))


def _ladder_of(texts: Mapping[str, str]) -> tuple[int, ...]:
    listed = texts.get("scaling_available_frequencies", "")
    boost = texts.get("scaling_boost_frequencies", "") if all_numbers(listed) else ""
    ladder = parse_ladder(f"{listed} {boost}", texts.get("stats/time_in_state", ""))
    return ladder or parse_ladder(texts.get("cpuinfo_max_freq", ""))


def _capacities(
    nodes: Mapping[str, str], ladders: Mapping[tuple[int, ...], tuple[int, ...]]
) -> dict[tuple[int, ...], int]:
    """The kernel's figures if every cluster has one; else an order by kind and highest clock."""
    stated = {cpus: _stated(nodes, cpus[0]) for cpus in ladders}
    kinds = core_kinds(nodes)
    ranks = {cpus: _rank(kinds.get(cpu) for cpu in cpus) for cpus in ladders}
    if not all(ranks.values()):
        ranks = dict.fromkeys(ladders, 1)
    tells_kinds = len({*stated.values()}) > 1 or len({*ranks.values()}) == 1
    figures = {cpus: capacity for cpus, capacity in stated.items() if capacity}
    if len(figures) == len(ladders) and tells_kinds:
        return figures
    return {cpus: ranks[cpus] * (ladder[-1] // 1000) for cpus, ladder in ladders.items()}


def _stated(nodes: Mapping[str, str], cpu: int) -> int | None:
    """The kernel's figure of a core, if it gives a possible one."""
    capacity = whole_number(nodes.get(f"{CPU}/cpu{cpu}/cpu_capacity", ""))
    return capacity if capacity and 0 < capacity <= CAPACITY_MAX else None


def _rank(kinds: Iterable[tuple[int, int] | None]) -> int:
    """1 to 3 by the kind of the cores; 0 if it is unknown. A core that is offline shows none."""
    known = {kind for kind in kinds if kind is not None}
    if len(known) != 1:
        return 0
    return 1 if known <= _EFFICIENT else 3 if known <= _PRIME else 2


def _cluster(cpus: tuple[int, ...], folder: str, ladder: tuple[int, ...], capacity: int) -> Cluster:
    policy = _POLICY.fullmatch(f"{folder}/related_cpus")
    number = int(folder.rpartition("policy")[2]) if policy else cpus[0]
    return Cluster(
        policy=number,
        cpus=cpus,
        capacity=capacity,
        ladder_khz=ladder,
        folder="" if policy else folder,
    )
