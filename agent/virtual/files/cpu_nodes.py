"""/sys/devices/system/cpu: clocks, ladders, governors and hot-plug, with the kernel's manners.

A limit clamps to the ladder's range and reads back as the effective one; garbage is EINVAL.
"""

import errno
import re
import stat
from collections.abc import Callable, Iterable
from functools import partial

from agent.virtual.files.nodes import Link, Live, constant, live, live_number
from agent.virtual.files.tree import FileTree, failed
from agent.virtual.physics.cluster import Cluster
from agent.virtual.physics.soc import Soc

_CPU = "/sys/devices/system/cpu"
_LEADING_NUMBER = re.compile(r"\s*(\d+)")


def plant_cpu_nodes(tree: FileTree, soc: Soc) -> None:
    """Put all CPU nodes into the tree."""
    cores = soc.profile.cores
    everyone = range(cores)
    tree.put(f"{_CPU}/possible", constant(cpu_list(everyone) + "\n"))
    tree.put(f"{_CPU}/present", constant(cpu_list(everyone) + "\n"))
    tree.put(f"{_CPU}/online", live(lambda: cpu_list(soc.online()) + "\n"))
    tree.put(
        f"{_CPU}/offline", live(lambda: cpu_list(sorted({*everyone} - {*soc.online()})) + "\n")
    )
    for cluster in soc.clusters:
        policy = f"policy{cluster.cpus[0]}"
        for name, node in _policy_nodes(soc, cluster).items():
            tree.put(f"{_CPU}/cpufreq/{policy}/{name}", node)
        for cpu in cluster.cpus:
            tree.put(
                f"{_CPU}/cpu{cpu}/cpufreq",
                Link(stat.S_IFLNK | 0o777, target=f"../cpufreq/{policy}"),
            )
            tree.put(f"{_CPU}/cpu{cpu}/online", _online_node(soc, cluster, cpu))
            tree.put(f"{_CPU}/cpu{cpu}/cpu_capacity", constant(f"{cluster.profile.capacity}\n"))
            tree.put(f"{_CPU}/cpu{cpu}/topology/core_id", constant(f"{cpu}\n"))
        if soc.profile.gpu is not None and soc.profile.gpu.driver == "kgsl":  # Qualcomm's kernels
            for name, node in _core_ctl(cluster).items():
                tree.put(f"{_CPU}/cpu{cluster.cpus[0]}/core_ctl/{name}", node)


def cpu_list(cpus: Iterable[int]) -> str:
    """Write cores the way the kernel does: 0-3,5."""
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and cpu == spans[-1][-1] + 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    return ",".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)


def _policy_nodes(soc: Soc, cluster: Cluster) -> dict[str, Live]:
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
        soc.count()
        ticks = zip(cluster.ladder, cluster.residency_s, strict=True)
        return "".join(f"{khz} {int(seconds * 100)}\n" for khz, seconds in ticks)

    cores = " ".join(map(str, cluster.cpus))
    ladder = " ".join(map(str, cluster.ladder))
    return {
        "related_cpus": constant(f"{cores}\n"),
        "affected_cpus": live(lambda: " ".join(map(str, sorted(cluster.online))) + "\n"),
        "scaling_available_frequencies": constant(f"{ladder} \n"),
        "scaling_available_governors": live(lambda: " ".join(cluster.governors) + " \n"),
        "scaling_driver": constant("osm-cpufreq\n"),
        "cpuinfo_min_freq": constant(f"{cluster.ladder[0]}\n"),
        "cpuinfo_max_freq": constant(f"{cluster.ladder[-1]}\n"),
        "cpuinfo_transition_latency": constant("0\n"),
        "scaling_cur_freq": live_number(_steady(soc, clock)),
        "cpuinfo_cur_freq": live(lambda: f"{clock()}\n", mode=0o400),
        "scaling_governor": live(governor, partial(_set_governor, soc, cluster)),
        "scaling_min_freq": live_number(
            _steady(soc, limit("min")), partial(_set_limit, soc, cluster, "min")
        ),
        "scaling_max_freq": live_number(
            _steady(soc, limit("max")), partial(_set_limit, soc, cluster, "max")
        ),
        "scaling_setspeed": live(lambda: _shown_speed(cluster), partial(_set_speed, soc, cluster)),
        "stats/time_in_state": live(residency),
        "stats/total_trans": live(lambda: f"{cluster.transitions}\n"),
    }


def _steady(soc: Soc, number: Callable[[], int]) -> Callable[[], int]:
    """The same figure until something changes: samplers ask far more often than clocks move."""
    seen, value = -1, 0

    def read() -> int:
        nonlocal seen, value
        if seen != soc.version:
            value = number()
            seen = soc.version
        return value

    return read


def _core_ctl(cluster: Cluster) -> dict[str, Live]:
    """How many cores of a cluster the kernel may take away, and how many it has to leave."""

    def keep(text: str) -> None:
        cluster.kept_cores = min(max(_number(text), 0), len(cluster.cpus))

    return {
        "min_cpus": live_number(lambda: cluster.kept_cores, keep),
        "max_cpus": constant(f"{len(cluster.cpus)}\n"),
    }


def _online_node(soc: Soc, cluster: Cluster, cpu: int) -> Live:
    def write(text: str) -> None:
        wanted = text.strip()
        if wanted not in ("0", "1"):
            raise failed(errno.EINVAL)
        if wanted == "0" and soc.online() == [cpu]:
            raise failed(errno.EBUSY)
        change = cluster.online.add if wanted == "1" else cluster.online.discard
        soc.change(lambda: change(cpu))

    return live(lambda: f"{int(cpu in cluster.online)}\n", write)


def _require_online(cluster: Cluster) -> None:
    """A policy whose cores are all off answers EBUSY."""
    if not cluster.online:
        raise failed(errno.EBUSY)


def _number(text: str) -> int:
    """What sscanf("%u") finds: leading digits; the rest does not matter."""
    match = _LEADING_NUMBER.match(text)
    if match is None:
        raise failed(errno.EINVAL)
    return min(int(match[1]), 0xFFFFFFFF)


def _set_governor(soc: Soc, cluster: Cluster, text: str) -> None:
    _require_online(cluster)
    if text.strip() not in cluster.governors:
        raise failed(errno.EINVAL)
    soc.change(lambda: setattr(cluster, "governor", text.strip()))


def _set_limit(soc: Soc, cluster: Cluster, which: str, text: str) -> None:
    _require_online(cluster)
    wanted = min(max(_number(text), cluster.ladder[0]), cluster.ladder[-1])
    low = wanted if which == "min" else cluster.user_min_khz
    high = wanted if which == "max" else cluster.user_max_khz
    if low > high:
        # Until limits became QoS requests (5.3) the kernel refused; since then it clamps.
        if soc.profile.kernel.limits == "refuse":
            raise failed(errno.EINVAL)
        low = min(low, high)

    def mutate() -> None:
        cluster.user_min_khz, cluster.user_max_khz = low, high

    soc.change(mutate)


def _shown_speed(cluster: Cluster) -> str:
    return f"{cluster.clock_khz if cluster.governor == 'userspace' else '<unsupported>'}\n"


def _set_speed(soc: Soc, cluster: Cluster, text: str) -> None:
    if cluster.governor != "userspace":
        raise failed(errno.EINVAL)
    wanted = _number(text)
    soc.change(lambda: setattr(cluster, "wished_khz", wanted))
