"""Placement: the cores that threads may use, before the run and in it.

A mask chooses among what the cpuset leaves. A thread that the kernel moved off an unplugged core
keeps the wider mask for good, so every thread is looked at while it works.
"""

import re
from typing import NamedTuple

from agent.phone.phone import Command, Phone
from workloads.fault import Refused
from workloads.phone import CoreSet, PhoneFacts

_TASK = re.compile(r"/proc/\d+/task/(\d+)/status")
_ALLOWED = re.compile(r"^Cpus_allowed:\s*([0-9a-f,]{1,64})$", re.MULTILINE)
_CLAMP = re.compile(r"^effective uclamp\.max\s*:\s*(\d+)$", re.MULTILINE)
_ALL_CORES_SET = "/dev/cpuset"  # the root of the sets: every core


class Placement(NamedTuple):
    """Where the threads of a run may go, by thread, and what the scheduler lets them ask for."""

    masks: dict[int, int]
    clamp_max: int | None = None  # of 1024; None where the kernel does not tell


def check_cores_allowed(facts: PhoneFacts, cores: CoreSet) -> None:
    """Refuse cores that a shell without root cannot leave its cpuset for."""
    barred = barred_cpus(facts, cores)
    if barred and not facts.rooted:
        which = ", ".join(f"cpu{cpu}" for cpu in barred)
        raise Refused(
            f"The shell of {facts.model} may not use {which}: its cpuset leaves them out."
        )


def barred_cpus(facts: PhoneFacts, cores: CoreSet) -> list[int]:
    """Cores that are asked for and that the shell's cpuset leaves out."""
    return sorted({*cores.cpus} - {*facts.shell_cpus}) if facts.shell_cpus else []


def enter_all_cores(phone: Phone) -> None:
    """Take our own shell, and so all it starts, to the set of all cores; it ends with the shell."""
    join = f"echo $PPID >{_ALL_CORES_SET}/cgroup.procs"
    phone.batch([Command(["sh", "-c", join])])


def look_at_threads(phone: Phone, pid: int) -> Placement:
    """See where each thread of a running process may go."""
    patterns = [f"/proc/{pid}/task/*/status", f"/proc/{pid}/sched"]
    return parse_placement(phone.find_nodes(patterns))


def parse_placement(nodes: dict[str, str]) -> Placement:
    """Read masks by thread from /proc/PID/task/*/status, and the clamp from /proc/PID/sched."""
    masks = {}
    clamp = None
    for path, text in nodes.items():
        task, allowed = _TASK.fullmatch(path), _ALLOWED.search(text)
        if task and allowed:
            masks[int(task[1])] = int(allowed[1].replace(",", ""), 16)
        elif found := _CLAMP.search(text):
            clamp = int(found[1])
    return Placement(masks, clamp)


def strays(placement: Placement, mask: int) -> dict[int, int]:
    """Threads that may run on cores that were not asked for.

    One thread may sit beside the measured cores, on none of them: the sampler.
    """
    outside = {tid: found for tid, found in placement.masks.items() if found & ~mask}
    beside = [tid for tid, found in outside.items() if not found & mask]
    if len(beside) == 1:
        del outside[beside[0]]
    return outside
