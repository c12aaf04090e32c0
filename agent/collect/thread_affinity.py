"""The cores that each thread of a running process may use, read while it runs.

The runner pins each of its threads to one core, and its sampler counts those that are elsewhere. A
thread that the kernel moved off an unplugged core keeps the wider affinity mask permanently, so
every thread is checked during the run.
"""

import re
from typing import NamedTuple

from agent.collect.readings import Readings
from agent.phone.phone_driver import Phone

TASKS = "/proc/self/task"  # of the process that samples: the runner itself
MASKS_MARK = "\tmasks"
_MASKS = re.compile(r"(\d{1,6}) ([0-9a-f]{1,16}) ([0-9a-f]{1,16}) (\d{1,6})")
_TASK = re.compile(r"/proc/\d+/task/(\d+)/status")
_ALLOWED = re.compile(r"^Cpus_allowed:\s*([0-9a-f,]{1,64})$", re.MULTILINE)
_CLAMP = re.compile(r"^effective uclamp\.max\s*:\s*(\d+)$", re.MULTILINE)


class ThreadAffinity(NamedTuple):
    """The affinity mask of each thread, and the utilisation that the scheduler allows them."""

    masks: dict[int, int]
    clamp_max: int | None = None  # uclamp.max, of 1024; None if the kernel does not show it


def read_thread_affinity(phone: Phone, pid: int) -> ThreadAffinity:
    """Read the affinity of each thread of a running process."""
    patterns = [f"/proc/{pid}/task/*/status", f"/proc/{pid}/sched"]
    return parse_thread_affinity(phone.find_nodes(patterns))


def parse_thread_affinity(nodes: dict[str, str]) -> ThreadAffinity:
    """Parse the masks in /proc/PID/task/*/status, and the clamp in /proc/PID/sched."""
    masks = {}
    clamp = None
    for path, text in nodes.items():
        task, allowed = _TASK.fullmatch(path), _ALLOWED.search(text)
        if task and allowed:
            masks[int(task[1])] = int(allowed[1].replace(",", ""), 16)
        elif match := _CLAMP.search(text):
            clamp = int(match[1])
    return ThreadAffinity(masks, clamp)


class MovedThreads(NamedTuple):
    """A reading in which threads of the runner were not where it had pinned them."""

    t_ns: int
    cores: int  # that any thread may use
    pinned: int  # threads that are on the one core that the runner gave them


def moved_threads(readings: Readings, mask: int, threads: int) -> MovedThreads | None:
    """The first reading in which a thread left its core or the requested ones; else None.

    `threads` of the runner work, each on the core that it gave them. Threads that it did not start,
    such as those of a GPU's driver, may use all requested cores.
    """
    for t_ns, value in zip(readings.t_ns, readings.column(TASKS), strict=False):
        match = _MASKS.fullmatch(value) if isinstance(value, str) else None
        if match and int(match[1]):
            count, cores, unpinned = int(match[1]), int(match[3], 16), int(match[4])
            pinned = count - unpinned
            if cores & ~mask or pinned != threads:
                return MovedThreads(t_ns, cores, pinned)
    return None


def stray_threads(affinity: ThreadAffinity, mask: int) -> dict[int, int]:
    """The threads that may run on other cores than requested, with their masks.

    One thread may run on none of the measured cores: the sampler. A program may bind its threads to
    some of the cores.
    """
    strays = {tid: allowed for tid, allowed in affinity.masks.items() if allowed & ~mask}
    elsewhere = [tid for tid, allowed in strays.items() if not allowed & mask]
    if len(elsewhere) == 1:
        del strays[elsewhere[0]]
    return strays
