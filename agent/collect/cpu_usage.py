"""How busy cores and GPU were, and how much memory was left, from sampled nodes. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.collect.readings import NodeValue, Readings
from agent.phone.gpu_probe import JETSON_LOAD, KGSL
from agent.phone.kernel_nodes import first_number
from workloads.protocol.phone_facts import Gpu
from workloads.protocol.telemetry import CumulativeSeries

STAT = "/proc/stat"
OWN_STAT = "/proc/self/stat"  # of the process that samples: the runner itself
FIRST_THREAD = "/proc/self/schedstat"  # of the runner's first thread alone
MEMINFO = "/proc/meminfo"
CYCLES = "/proc/self"  # the path that stands for the counted cycles
CORES_MARK, WHOLE_MARK, TICKS_MARK = "\tcores", "\twhole", "\tticks"
MEMORY_MARK, CYCLES_MARK = "\tmemory", "\tcycles"
TICKS_PER_SECOND = 100  # of /proc/stat, on every kernel that phones have
TICKS_MIN = 100  # per core: in less than a second, one tick more or less would pass for work

_CORES = re.compile(r"(?:\d{1,3}:\d{1,18}/\d{1,18}(?: |$))+", re.ASCII)
_SPACES = str.maketrans(":/", "  ")
_MEMORY = re.compile(r"(\d{1,12}) (\d{1,12}) (\d{1,12}) (\d{1,12})", re.ASCII)
_CYCLES = re.compile(r"(\d{1,18})/(\d{1,18})", re.ASCII)
_SCHEDULED = re.compile(r"(\d{1,18}) (\d{1,18}) \d{1,18}", re.ASCII)
Ticks = NDArray[np.int64]


class CoreTicks(NamedTuple):
    """Busy and total ticks since boot: one entry per moment and core, in the order of moments."""

    row: Ticks
    cpu: Ticks
    busy: Ticks
    total: Ticks


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


def core_ticks(readings: Readings) -> CoreTicks:
    """The ticks of every core at each moment, from 'CPU:BUSY/TOTAL CPU:BUSY/TOTAL ...'."""
    return readings.derived(_parse_core_ticks)


def _parse_core_ticks(readings: Readings) -> CoreTicks:
    """Parse the column; a text that is anything else yields no core."""
    texts = [str(value) for value in readings.column(STAT)]
    texts = [text if _CORES.fullmatch(text) else "" for text in texts]
    row = np.repeat(np.arange(len(texts)), [text.count(":") for text in texts])
    text = " ".join(filter(None, texts)).translate(_SPACES)
    numbers = np.fromstring(text, dtype=np.int64, sep=" ")
    cpu, busy, total = numbers.reshape(-1, 3).T
    return CoreTicks(row, cpu, busy, total)


def core_usage(readings: Readings) -> tuple[CoreUsage, ...]:
    """How each core was used; cores without two readings are left out."""
    ticks, usage = core_ticks(readings), []
    for cpu in np.unique(ticks.cpu):
        own = ticks.cpu == cpu
        busy, total = np.diff(ticks.busy[own]), np.diff(ticks.total[own])
        counted = (busy >= 0) & (busy <= total) & (total > 0)  # else it was reset
        all_ticks = int(total[counted].sum())
        if all_ticks:
            busy_ticks, idle_ticks = busy[counted].sum(), total[counted & (busy == 0)].sum()
            shares = 100 * float(busy_ticks) / all_ticks, float(idle_ticks) / all_ticks
            usage.append(CoreUsage(int(cpu), *shares))
    return tuple(usage)


def ticks_together(readings: Readings, cpus: Collection[int]) -> tuple[Ticks, Ticks, Ticks]:
    """The rows in which all of these cores are on, and their busy and total ticks together."""
    ticks, count = core_ticks(readings), len(readings.t_ns)
    own = np.isin(ticks.cpu, list(cpus))
    row = ticks.row[own]
    rows = np.flatnonzero(np.bincount(row, minlength=count) == len(cpus))
    busy, total = (
        np.bincount(row, column[own], minlength=count)[rows].astype(np.int64)
        for column in (ticks.busy, ticks.total)
    )
    return rows, busy, total


def own_cores_shared_pct(readings: Readings, cpus: Collection[int]) -> float | None:
    """How much of the run's cores other processes used, in percent; None if unknown.

    It is the busy time of the cores minus the processor time of the runner itself.
    """
    own_ticks = readings.numbers(OWN_STAT)
    moments = [
        (runner_ticks, busy, total)
        for row, busy, total in zip(*ticks_together(readings, cpus), strict=True)
        if row < len(own_ticks) and (runner_ticks := own_ticks[row]) is not None
    ]
    if len(moments) < 2:
        return None
    ends = zip(moments[0], moments[-1], strict=True)
    runner, busy, total = (int(last - first) for first, last in ends)
    if total < TICKS_MIN * len(cpus) or runner < 0 or busy < 0:
        return None
    return 100 * max(0, busy - runner) / total


def parse_cycles(value: NodeValue) -> tuple[int, int] | None:
    """Parse 'CYCLES/NS': counted cycles, and the time in which they were counted."""
    match = _CYCLES.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2])) if match else None


def parse_scheduled_ns(value: NodeValue) -> int | None:
    """Parse 'RAN WAITED TIMES': for how long a thread had work, on a core or waiting for one."""
    match = _SCHEDULED.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) + int(match[2]) if match and int(match[1]) else None


def busy_series(readings: Readings, cpus: Collection[int]) -> CumulativeSeries | None:
    """The cumulative busy seconds of some cores together."""
    rows, busy, _ = ticks_together(readings, cpus)
    return _seconds(readings, rows, busy) if len(rows) > 1 else None


def core_busy_series(readings: Readings) -> dict[int, CumulativeSeries]:
    """The cumulative busy seconds of each core; moments at which it is off are left out."""
    ticks = core_ticks(readings)
    of_cpu = {int(cpu): ticks.cpu == cpu for cpu in np.unique(ticks.cpu)}
    return {cpu: _seconds(readings, ticks.row[own], ticks.busy[own]) for cpu, own in of_cpu.items()}


def _seconds(readings: Readings, rows: Ticks, ticks: Ticks) -> CumulativeSeries:
    t_ns = [readings.t_ns[row] for row in rows.tolist()]
    return CumulativeSeries(t_ns, (ticks / TICKS_PER_SECOND).tolist())


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
