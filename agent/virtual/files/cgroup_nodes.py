"""/dev/cpuset and /dev/cpuctl: groups that narrow where processes run, and clamps that are kept.

Moving a process into a cpuset gives it that set's cores; its own mask can only choose among them.
"""

import errno
import re
from collections.abc import Callable
from functools import partial

from agent.virtual.files.cpu_nodes import cpu_list
from agent.virtual.files.nodes import Live, live
from agent.virtual.files.tree import FileTree, failed
from agent.virtual.physics.soc import Soc
from agent.virtual.processes import ProcessTable

_GROUPS = ("", "background", "foreground", "restricted", "system-background", "top-app")


def plant_cgroup_nodes(tree: FileTree, soc: Soc, table: ProcessTable) -> None:
    """Put both hierarchies into the tree; background work starts on the small cores."""
    little = sum(1 << cpu for cpu in soc.clusters[0].cpus)
    for name in _GROUPS:
        group = f"/{name}"
        table.cpusets[group] = little if "background" in name else table.all_cores
        folder = f"/dev/cpuset{group}".rstrip("/")
        for leaf, node in _cpuset(table, group).items():
            tree.put(f"{folder}/{leaf}", node)
        folder = f"/dev/cpuctl{group}".rstrip("/")
        tree.put(f"{folder}/cpu.shares", _kept("1024", r"\d+"))
        if name and soc.profile.sdk >= 29:
            tree.put(f"{folder}/cpu.uclamp.min", _clamp("0.00"))
            tree.put(f"{folder}/cpu.uclamp.max", _clamp("max", partial(_tell, table, group)))


def _cpuset(table: ProcessTable, group: str) -> dict[str, Live]:
    def cores() -> str:
        mask = table.cpusets[group]
        return cpu_list(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1) + "\n"

    def members() -> str:
        return "".join(f"{p.pid}\n" for p in table.all() if p.cpuset == group)

    def narrow(text: str) -> None:
        mask = read_cpu_list(text)
        if not mask or mask & ~table.all_cores:
            raise failed(errno.EINVAL)
        table.cpusets[group] = mask
        for process in table.all():
            if process.cpuset == group:
                table.set_mask(process, mask)

    def join(text: str) -> None:
        process = table.find(int(text)) if text.strip().isdigit() else None
        if process is None:
            raise failed(errno.ESRCH)
        process.cpuset = group
        table.set_mask(process, table.cpusets[group])

    return {
        "cpus": live(cores, narrow if group != "/" else None),
        "effective_cpus": live(cores),
        "mems": live(lambda: "0\n"),
        "tasks": live(members, join),
        "cgroup.procs": live(members, join),
    }


def read_cpu_list(text: str) -> int:
    """0-3,5 as a mask; 0 for what is no list."""
    mask = 0
    for span in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", span)
        if match is None:
            return 0
        for cpu in range(int(match[1]), int(match[2] or match[1]) + 1):
            mask |= 1 << cpu
    return mask


def _kept(start: str, shape: str) -> Live:
    value = [start]

    def write(text: str) -> None:
        if not re.fullmatch(shape, text.strip()):
            raise failed(errno.EINVAL)
        value[0] = text.strip()

    return live(lambda: f"{value[0]}\n", write)


def _tell(table: ProcessTable, group: str, word: str) -> None:
    """Let the scheduler know the clamp of a group; processes of its cpuset are in it."""
    table.clamps[group] = 100.0 if word == "max" else float(word)


def _clamp(start: str, tell: Callable[[str], None] | None = None) -> Live:
    value = [start]

    def write(text: str) -> None:
        word = text.strip()
        if word != "max":
            if not re.fullmatch(r"\d{1,3}(\.\d{1,2})?", word) or float(word) > 100:
                raise failed(errno.ERANGE)
            word = f"{float(word):.2f}"
        value[0] = word
        if tell is not None:
            tell(word)

    return live(lambda: f"{value[0]}\n", write)
