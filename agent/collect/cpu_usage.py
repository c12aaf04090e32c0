"""How busy cores and GPU were, and how much memory was left, from sampled nodes. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import sub

from agent.collect.readings import NodeValue, Readings
from agent.phone.gpu_probe import JETSON_LOAD, KGSL
from agent.phone.kernel_nodes import first_number
from workloads.protocol.phone_facts import Gpu
from workloads.protocol.telemetry import CumulativeSeries

STAT = "/proc/stat"
OWN_STAT = "/proc/self/stat"  # of the process that samples: the runner itself
MEMINFO = "/proc/meminfo"
CYCLES = "/proc/self"  # the path that stands for the counted cycles
CORES_MARK, WHOLE_MARK, TICKS_MARK = "\tcores", "\twhole", "\tticks"
MEMORY_MARK, CYCLES_MARK = "\tmemory", "\tcycles"
TICKS_PER_SECOND = 100  # of /proc/stat, on every kernel that phones have
TICKS_MIN = 100  # per core: in less than a second, one tick more or less would pass for work

_CORE = re.compile(r"(?<!\S)(\d{1,3}):(\d{1,18})/(\d{1,18})(?!\S)", re.ASCII)
_MEMORY = re.compile(r"(\d{1,12}) (\d{1,12}) (\d{1,12}) (\d{1,12})", re.ASCII)
_CYCLES = re.compile(r"(\d{1,18})/(\d{1,18})", re.ASCII)
CoreColumns = tuple[list[int], list[int], list[int]]
CoreTicks = dict[int, tuple[int, int]]  # core -> busy and total ticks since boot


@dataclass(frozen=True)
class CoreUsage:
    """How one core was used."""

    cpu: int
    util_pct: float
    idle_share: float  # of the time between readings in which it did nothing at all


def gpu_load_node(gpu: Gpu | None) -> str | None:
    """The node that shows how busy the GPU is."""
    if gpu is None:
        return None
    if gpu.load_node:
        return gpu.load_node
    return f"{KGSL}/gpu_busy_percentage" if gpu.folder.startswith(KGSL) else f"{gpu.folder}/load"


def parse_core_ticks(value: NodeValue) -> CoreTicks:
    """Parse 'CPU:BUSY/TOTAL CPU:BUSY/TOTAL ...'; anything else yields no core."""
    cores = _CORE.findall(value) if isinstance(value, str) else ()
    return {int(cpu): (int(busy), int(total)) for cpu, busy, total in cores}


def core_ticks(readings: Readings) -> list[tuple[int, CoreTicks]]:
    """The ticks of every core at each moment."""
    return list(zip(readings.t_ns, readings.parsed(STAT, parse_core_ticks), strict=False))


def core_columns(readings: Readings) -> dict[int, CoreColumns]:
    """Moments, busy and total ticks of each core; moments at which a core is off are left out."""
    columns: dict[int, CoreColumns] = {}
    for t_ns, ticks in core_ticks(readings):
        for cpu, (busy, total) in ticks.items():
            column = columns.get(cpu) or columns.setdefault(cpu, ([], [], []))
            column[0].append(t_ns)
            column[1].append(busy)
            column[2].append(total)
    return columns


def core_usage(readings: Readings) -> tuple[CoreUsage, ...]:
    """How each core was used; cores without two readings are left out."""
    usage = []
    for cpu, (_, busy, total) in sorted(core_columns(readings).items()):
        ticks = zip(map(sub, busy[1:], busy), map(sub, total[1:], total), strict=True)
        intervals = [pair for pair in ticks if 0 <= pair[0] <= pair[1] > 0]  # else it was reset
        if intervals:
            usage.append(_usage_of(cpu, intervals))
    return tuple(usage)


def _usage_of(cpu: int, intervals: Sequence[tuple[int, int]]) -> CoreUsage:
    total = sum(ticks for _, ticks in intervals)
    idle = sum(ticks for busy, ticks in intervals if busy == 0)
    return CoreUsage(cpu, 100 * sum(busy for busy, _ in intervals) / total, idle / total)


def own_cores_shared_pct(readings: Readings, cpus: Collection[int]) -> float | None:
    """How much of the run's cores other processes used, in per cent; None if unknown.

    It is the busy time of the cores minus the processor time of the runner itself.
    """
    own_ticks = readings.numbers(OWN_STAT)
    moments = [
        (runner_ticks, ticks)
        for runner_ticks, (_, ticks) in zip(own_ticks, core_ticks(readings), strict=False)
        if runner_ticks is not None and all(cpu in ticks for cpu in cpus)
    ]
    if len(moments) < 2:
        return None
    (runner_first, first), (runner_last, last) = moments[0], moments[-1]
    busy = sum(last[cpu][0] - first[cpu][0] for cpu in cpus)
    total = sum(last[cpu][1] - first[cpu][1] for cpu in cpus)
    runner = runner_last - runner_first
    if total < TICKS_MIN * len(cpus) or runner < 0 or busy < 0:
        return None
    return 100 * max(0, busy - runner) / total


def parse_cycles(value: NodeValue) -> tuple[int, int] | None:
    """Parse 'CYCLES/NS': counted cycles, and the time in which they were counted."""
    match = _CYCLES.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2])) if match else None


def busy_series(readings: Readings, cpus: Collection[int]) -> CumulativeSeries | None:
    """The cumulative busy seconds of some cores together."""
    moments = [(t_ns, ticks) for t_ns, ticks in core_ticks(readings) if ticks.keys() >= {*cpus}]
    if len(moments) < 2:
        return None
    busy_s = [sum(ticks[cpu][0] for cpu in cpus) / TICKS_PER_SECOND for _, ticks in moments]
    return CumulativeSeries([t_ns for t_ns, _ in moments], busy_s)


def core_busy_series(readings: Readings) -> dict[int, CumulativeSeries]:
    """The cumulative busy seconds of each core."""
    return {
        cpu: CumulativeSeries(t_ns, [ticks / TICKS_PER_SECOND for ticks in busy])
        for cpu, (t_ns, busy, _) in core_columns(readings).items()
    }


def gpu_load_pct(readings: Readings, node: str | None) -> list[tuple[int, int]]:
    """The utilisation of the GPU over time: '12 %' and '12@585000000Hz' both begin with it."""
    if node is None:
        return []
    per_pct = 10 if node.endswith(JETSON_LOAD) else 1
    pairs = zip(readings.t_ns, readings.parsed(node, _parse_load), strict=False)
    return [
        (t_ns, round(number / per_pct))
        for t_ns, number in pairs
        if number is not None and 0 <= number <= 100 * per_pct
    ]


def _parse_load(value: NodeValue) -> int | None:
    return None if value is None else first_number(str(value))


def gpu_util_pct(readings: Readings, node: str | None) -> float | None:
    """The mean utilisation of the GPU."""
    loads = [pct for _, pct in gpu_load_pct(readings, node)]
    return sum(loads) / len(loads) if loads else None


def memory_used_mb(readings: Readings) -> list[tuple[int, float]]:
    """The memory in use over time: all of it but what is available."""
    rows = zip(readings.t_ns, readings.parsed(MEMINFO, parse_memory), strict=False)
    return [(t_ns, (memory[0] - memory[1]) / 1024) for t_ns, memory in rows if memory]


def parse_memory(value: NodeValue) -> tuple[int, ...] | None:
    """Memory and swap in kB, each in total and how much is available."""
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    return tuple(map(int, match.groups())) if match else None


def swap_used_kb(meminfo: Mapping[str, int]) -> int | None:
    """How much is in swap, by the rows of /proc/meminfo."""
    if not {"SwapTotal", "SwapFree"} <= meminfo.keys():
        return None
    return meminfo["SwapTotal"] - meminfo["SwapFree"]


def swapped_mb(readings: Readings, before_kb: int | None) -> float | None:
    """By how much swap grew during a run at most, compared with before the run."""
    rows = {memory for memory in readings.parsed(MEMINFO, parse_memory) if memory}
    if before_kb is None or not rows:
        return None
    used_kb = max(memory[2] - memory[3] for memory in rows)
    return max(0, used_kb - before_kb) / 1024


def parse_meminfo(lines: Sequence[str]) -> dict[str, int]:
    """The rows of /proc/meminfo, in kB."""
    rows = {}
    for line in lines:
        name, _, value = line.partition(":")
        number = first_number(value)
        if number is not None:
            rows[name.strip()] = number
    return rows
