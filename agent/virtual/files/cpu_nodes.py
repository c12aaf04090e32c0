"""/sys/devices/system/cpu: clocks, frequency ladders, governors and hotplug, as the kernel behaves.

A limit is clamped to the ladder and reads back as the effective value; invalid text is EINVAL.
"""

import errno
import re
import stat
from collections.abc import Callable, Iterable
from functools import partial

from agent.virtual.files.file_nodes import (
    LiveNode,
    SymbolicLink,
    constant_node,
    live_node,
    live_number_node,
)
from agent.virtual.files.file_tree import FileTree, os_error
from agent.virtual.physics.cpu_cluster import CpuCluster
from agent.virtual.physics.soc import Soc

_CPU = "/sys/devices/system/cpu"
_LEADING_NUMBER = re.compile(r"\s*(\d+)")


def add_cpu_nodes(tree: FileTree, soc: Soc) -> None:
    """Add all CPU nodes to the tree."""
    cores = soc.profile.cores
    all_cpus = range(cores)
    tree.add_node(f"{_CPU}/possible", constant_node(format_cpu_list(all_cpus) + "\n"))
    tree.add_node(f"{_CPU}/present", constant_node(format_cpu_list(all_cpus) + "\n"))
    tree.add_node(f"{_CPU}/online", live_node(lambda: format_cpu_list(soc.online_cpus()) + "\n"))
    tree.add_node(
        f"{_CPU}/offline",
        live_node(lambda: format_cpu_list(sorted({*all_cpus} - {*soc.online_cpus()})) + "\n"),
    )
    has_policies = soc.profile.kernel.cpufreq == "policies"
    for cluster in soc.clusters:
        first = cluster.cpus[0]
        folder = f"cpufreq/policy{first}" if has_policies else f"cpu{first}/cpufreq"
        for name, node in _policy_nodes(soc, cluster).items():
            tree.add_node(
                f"{_CPU}/{folder}/{name}", node if has_policies else _vanishing(cluster, node)
            )
        for cpu in cluster.cpus:
            if has_policies or cpu != first:
                link = SymbolicLink(stat.S_IFLNK | 0o777, target=f"../{folder}")
                tree.add_node(f"{_CPU}/cpu{cpu}/cpufreq", link)
            tree.add_node(f"{_CPU}/cpu{cpu}/online", _online_node(soc, cluster, cpu))
            if soc.profile.kernel.shows_capacity:
                capacity = constant_node(f"{cluster.profile.capacity}\n")
                tree.add_node(f"{_CPU}/cpu{cpu}/cpu_capacity", capacity)
            tree.add_node(f"{_CPU}/cpu{cpu}/topology/core_id", constant_node(f"{cpu}\n"))
        # core_ctl exists in Qualcomm's kernels
        if soc.profile.gpu is not None and soc.profile.gpu.driver == "kgsl":
            for name, node in _core_ctl_nodes(cluster).items():
                tree.add_node(f"{_CPU}/cpu{cluster.cpus[0]}/core_ctl/{name}", node)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Format cores as the kernel does: 0-3,5."""
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and cpu == spans[-1][-1] + 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    return ",".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)


def _policy_nodes(soc: Soc, cluster: CpuCluster) -> dict[str, LiveNode]:
    def clock() -> int:
        _require_online(cluster)
        return cluster.clock_khz

    def limit(which: str) -> Callable[[], int]:
        def read() -> int:
            _require_online(cluster)
            return cluster.min_khz if which == "min" else cluster.max_khz

        return read

    def governor() -> str:
        _require_online(cluster)
        return f"{cluster.governor}\n"

    def residency() -> str:
        soc.update_counters()
        ticks = zip(cluster.ladder, cluster.residency_s, strict=True)
        return "".join(f"{khz} {int(seconds * 100)}\n" for khz, seconds in ticks)

    cores = " ".join(map(str, cluster.cpus))
    ladder = " ".join(map(str, cluster.ladder))
    return {
        "related_cpus": constant_node(f"{cores}\n"),
        "affected_cpus": live_node(lambda: " ".join(map(str, sorted(cluster.online))) + "\n"),
        "scaling_available_frequencies": constant_node(f"{ladder} \n"),
        "scaling_available_governors": live_node(lambda: " ".join(cluster.governors) + " \n"),
        "scaling_driver": constant_node("osm-cpufreq\n"),
        "cpuinfo_min_freq": constant_node(f"{cluster.ladder[0]}\n"),
        "cpuinfo_max_freq": constant_node(f"{cluster.ladder[-1]}\n"),
        "cpuinfo_transition_latency": constant_node("0\n"),
        "scaling_cur_freq": live_number_node(_cached_until_change(soc, clock)),
        "cpuinfo_cur_freq": live_node(lambda: f"{clock()}\n", mode=0o400),
        "scaling_governor": live_node(governor, partial(_set_governor, soc, cluster)),
        "scaling_min_freq": live_number_node(
            _cached_until_change(soc, limit("min")), partial(_set_limit, soc, cluster, "min")
        ),
        "scaling_max_freq": live_number_node(
            _cached_until_change(soc, limit("max")), partial(_set_limit, soc, cluster, "max")
        ),
        "scaling_setspeed": live_node(
            lambda: _setspeed_text(cluster), partial(_set_speed, soc, cluster)
        ),
        "stats/time_in_state": live_node(residency),
        "stats/total_trans": live_node(lambda: f"{cluster.transitions}\n"),
    }


def _cached_until_change(soc: Soc, number: Callable[[], int]) -> Callable[[], int]:
    """Cache a figure until the SoC changes: samplers read far more often than clocks move."""
    cached_version, value = -1, 0

    def read() -> int:
        nonlocal cached_version, value
        if cached_version != soc.version:
            value = number()
            cached_version = soc.version
        return value

    return read


def _core_ctl_nodes(cluster: CpuCluster) -> dict[str, LiveNode]:
    """Make the nodes of the minimum and maximum number of cores that core_ctl keeps online."""

    def set_min_cpus(text: str) -> None:
        cluster.core_ctl_min_cpus = min(max(_parse_number(text), 0), len(cluster.cpus))

    return {
        "min_cpus": live_number_node(lambda: cluster.core_ctl_min_cpus, set_min_cpus),
        "max_cpus": constant_node(f"{len(cluster.cpus)}\n"),
    }


def _online_node(soc: Soc, cluster: CpuCluster, cpu: int) -> LiveNode:
    def write(text: str) -> None:
        state = text.strip()
        if state not in ("0", "1"):
            raise os_error(errno.EINVAL)
        if state == "0" and soc.online_cpus() == [cpu]:
            raise os_error(errno.EBUSY)
        change = cluster.online.add if state == "1" else cluster.online.discard
        soc.change(lambda: change(cpu))
        soc.on_hotplug()

    return live_node(lambda: f"{int(cpu in cluster.online)}\n", write)


def _vanishing(cluster: CpuCluster, node: LiveNode) -> LiveNode:
    """Make a node vanish while all cores of its cluster are offline."""
    read, number = node.read, node.number

    def read_if_online() -> str:
        if not cluster.online:
            raise os_error(errno.ENOENT)
        return read()

    node.read = read_if_online
    node.number = None if number is None else (lambda: int(read_if_online()))
    return node


def _require_online(cluster: CpuCluster) -> None:
    """Raise EBUSY as the kernel does for a policy whose cores are all offline."""
    if not cluster.online:
        raise os_error(errno.EBUSY)


def _parse_number(text: str) -> int:
    """Parse like sscanf("%u"): leading digits count, the rest is ignored."""
    match = _LEADING_NUMBER.match(text)
    if match is None:
        raise os_error(errno.EINVAL)
    return min(int(match[1]), 0xFFFFFFFF)


def _set_governor(soc: Soc, cluster: CpuCluster, text: str) -> None:
    _require_online(cluster)
    if text.strip() not in cluster.governors:
        raise os_error(errno.EINVAL)
    soc.change(lambda: setattr(cluster, "governor", text.strip()))


def _set_limit(soc: Soc, cluster: CpuCluster, which: str, text: str) -> None:
    _require_online(cluster)
    requested_khz = min(max(_parse_number(text), cluster.ladder[0]), cluster.ladder[-1])
    low = requested_khz if which == "min" else cluster.user_min_khz
    high = requested_khz if which == "max" else cluster.user_max_khz
    if low > high:
        # Before kernel 5.3, which made limits QoS requests, this was refused; since then it is
        # clamped.
        if soc.profile.kernel.limit_conflict == "refuse":
            raise os_error(errno.EINVAL)
        low = min(low, high)

    def set_limits() -> None:
        cluster.user_min_khz, cluster.user_max_khz = low, high

    soc.change(set_limits)


def _setspeed_text(cluster: CpuCluster) -> str:
    return f"{cluster.clock_khz if cluster.governor == 'userspace' else '<unsupported>'}\n"


def _set_speed(soc: Soc, cluster: CpuCluster, text: str) -> None:
    if cluster.governor != "userspace":
        raise os_error(errno.EINVAL)
    requested_khz = _parse_number(text)
    soc.change(lambda: setattr(cluster, "userspace_khz", requested_khz))
