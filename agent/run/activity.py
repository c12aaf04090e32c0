"""Activity: how busy cores and GPU were, and how much memory was left, from sampled nodes. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.phone.gpu import KGSL
from agent.phone.nodes import first_number
from agent.run.telemetry import Readings
from workloads.phone import Gpu
from workloads.timeline import Course

STAT = "/proc/stat"
OWN_STAT = "/proc/self/stat"  # of whoever samples: the runner itself
MEMINFO = "/proc/meminfo"
CORES_MARK, WHOLE_MARK = "\tcores", "\twhole"
TICKS_A_SECOND = 100  # of /proc/stat, on every kernel that phones have
TICKS_MIN = 100  # of a core: a second, below which a tick more or less would be told as work

_CORE = re.compile(r"(?<!\S)(\d{1,3}):(\d{1,18})/(\d{1,18})(?!\S)", re.ASCII)
_SWAP = re.compile(r"SwapTotal:\s+(\d{1,12}) kB.*?SwapFree:\s+(\d{1,12}) kB", re.ASCII)
Moment = dict[int, tuple[int, int]]  # core -> busy and all ticks since boot


@dataclass(frozen=True)
class CoreUse:
    """What one core did within a span."""

    cpu: int
    util_pct: float
    idle_share: float  # of the time between readings in which it did nothing at all


def gpu_node(gpu: Gpu | None) -> str | None:
    """The node that tells how busy the GPU is."""
    if gpu is None:
        return None
    return f"{KGSL}/gpu_busy_percentage" if gpu.folder.startswith(KGSL) else f"{gpu.folder}/load"


def parse_moment(text: object) -> Moment:
    """Read 'CPU:BUSY/TOTAL CPU:BUSY/TOTAL ...'; what is no such thing is no core."""
    cores = _CORE.findall(text) if isinstance(text, str) else ()
    return {int(cpu): (int(busy), int(total)) for cpu, busy, total in cores}


def core_use(readings: Readings, span: tuple[int, int]) -> tuple[CoreUse, ...]:
    """How each core was used within a span; cores that were never seen twice are left out."""
    return readings.once(("core use", span), lambda: _core_uses(readings, span))


def _core_uses(readings: Readings, span: tuple[int, int]) -> tuple[CoreUse, ...]:
    parts: dict[int, list[tuple[int, int]]] = {}  # ticks that were worked, and that passed
    for before, after in pairwise(moment for _, moment in moments(readings, span)):
        for cpu, (busy, total) in after.items():
            busy_before, total_before = before.get(cpu, (busy, total))
            if 0 <= busy - busy_before <= total - total_before > 0:  # else they were set back
                parts.setdefault(cpu, []).append((busy - busy_before, total - total_before))
    return tuple(_core_use(cpu, parts[cpu]) for cpu in sorted(parts))


def _core_use(cpu: int, parts: Sequence[tuple[int, int]]) -> CoreUse:
    total = sum(passed for _, passed in parts)
    idle = sum(passed for worked, passed in parts if worked == 0)
    return CoreUse(cpu, 100 * sum(worked for worked, _ in parts) / total, idle / total)


def inside_pct(readings: Readings, span: tuple[int, int], cpus: Collection[int]) -> float | None:
    """How much of some cores went to others than the runner, in per cent; None if unknown.

    What the cores were busy, less what the runner itself had of them.
    """
    own = dict(_own_ticks(readings))
    seen = [
        (own[t_ns], moment)
        for t_ns, moment in moments(readings, span)
        if t_ns in own and all(cpu in moment for cpu in cpus)
    ]
    if len(seen) < 2:
        return None
    (own_first, first), (own_last, last) = seen[0], seen[-1]
    busy = sum(last[cpu][0] - first[cpu][0] for cpu in cpus)
    total = sum(last[cpu][1] - first[cpu][1] for cpu in cpus)
    ours = own_last - own_first
    if total < TICKS_MIN * len(cpus) or ours < 0 or busy < 0:
        return None
    return 100 * max(0, busy - ours) / total


def _own_ticks(readings: Readings) -> Iterator[tuple[int, int]]:
    """User and system time of the sampling process, its threads together, at each moment."""
    for t_ns, text in zip(readings.t_ns, readings.columns.get(OWN_STAT, []), strict=False):
        # Its name stands in parentheses and may hold anything.
        words = text.rpartition(")")[2].split() if isinstance(text, str) else []
        if len(words) > 12 and words[11].isdecimal() and words[12].isdecimal():
            yield t_ns, int(words[11]) + int(words[12])


def busy_course(readings: Readings, cpus: Collection[int]) -> Course | None:
    """Busy seconds of some cores together, as they add up."""
    t_ns: list[int] = []
    busy: list[float] = []
    for moment_ns, moment in moments(readings):
        if all(cpu in moment for cpu in cpus):
            t_ns.append(moment_ns)
            busy.append(sum(moment[cpu][0] for cpu in cpus) / TICKS_A_SECOND)
    return Course(t_ns, busy) if len(t_ns) > 1 else None


def gpu_util_pct(readings: Readings, node: str | None, span: tuple[int, int]) -> float | None:
    """How busy the GPU was on average: '12 %' and '12@585000000Hz' both begin with it."""
    if node is None:
        return None
    column = readings.columns.get(node, [])
    seen = [
        first_number(str(value))
        for t_ns, value in zip(readings.t_ns, column, strict=False)
        if value is not None and span[0] <= t_ns <= span[1]
    ]
    known = [value for value in seen if value is not None and 0 <= value <= 100]
    return sum(known) / len(known) if known else None


def swap_used_kb(rows: Mapping[str, int]) -> int | None:
    """How much lies in swap, by the rows of /proc/meminfo."""
    if not {"SwapTotal", "SwapFree"} <= rows.keys():
        return None
    return rows["SwapTotal"] - rows["SwapFree"]


def swapped_mb(readings: Readings, before_kb: int | None) -> float | None:
    """How much more lay in swap during a run than before it, at most."""
    column = readings.columns.get(MEMINFO, [])
    texts = {text for text in column if isinstance(text, str)}
    known = [int(found[1]) - int(found[2]) for text in texts if (found := _SWAP.search(text))]
    if before_kb is None or not known:
        return None
    return max(0, max(known) - before_kb) / 1024


def moments(
    readings: Readings, span: tuple[int, int] | None = None
) -> Iterator[tuple[int, Moment]]:
    """What the cores had counted at each moment of a span."""
    column: Sequence[object] = readings.columns.get(STAT, [])
    read = readings.once(STAT, lambda: [parse_moment(text) for text in column])
    for t_ns, moment in zip(readings.t_ns, read, strict=False):
        if span is None or span[0] <= t_ns <= span[1]:
            yield t_ns, moment


def parse_memory(lines: Sequence[str]) -> dict[str, int]:
    """The rows of /proc/meminfo, in kB."""
    rows = {}
    for line in lines:
        name, _, value = line.partition(":")
        number = first_number(value)
        if number is not None:
            rows[name.strip()] = number
    return rows
