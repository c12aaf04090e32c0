"""/dev/cpuset and /dev/cpuctl: cgroups that restrict cores and clamp utilisation; /acct.

A process in a cpuset gets that set's cores; its own affinity mask can only select among them. init
gives every service a group in /acct, or since Android 12 in /sys/fs/cgroup.
"""

import errno
import re
from collections.abc import Callable
from functools import partial

from agent.virtual.files.cpu_nodes import format_cpu_list
from agent.virtual.files.file_nodes import LiveNode, live_node
from agent.virtual.files.file_tree import FileTree, os_error
from agent.virtual.physics.soc import Soc
from agent.virtual.process_table import ProcessTable

_GROUPS = ("", "background", "foreground", "restricted", "system-background", "top-app")


SDK_UNIFIED_CGROUP = 31


def add_cgroup_nodes(tree: FileTree, soc: Soc, table: ProcessTable) -> None:
    """Add all hierarchies; background groups start on the little cores."""
    top = "/sys/fs/cgroup" if soc.profile.sdk >= SDK_UNIFIED_CGROUP else "/acct"
    tree.add_node(f"{top}/cgroup.procs", _process_group_node(table))
    little = sum(1 << cpu for cpu in soc.clusters[0].cpus)
    for name in _GROUPS:
        group = f"/{name}"
        table.cpusets[group] = little if "background" in name else table.all_cores
        folder = f"/dev/cpuset{group}".rstrip("/")
        for leaf, node in _cpuset_nodes(table, group).items():
            tree.add_node(f"{folder}/{leaf}", node)
        folder = f"/dev/cpuctl{group}".rstrip("/")
        tree.add_node(f"{folder}/cpu.shares", _stored_node("1024", r"\d+"))
        if name and soc.profile.sdk >= 29:
            tree.add_node(f"{folder}/cpu.uclamp.min", _uclamp_node("0.00"))
            tree.add_node(
                f"{folder}/cpu.uclamp.max",
                _uclamp_node("max", partial(_set_uclamp_max, table, group)),
            )


def _cpuset_nodes(table: ProcessTable, group: str) -> dict[str, LiveNode]:
    def cores() -> str:
        mask = table.cpusets[group]
        return format_cpu_list(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1) + "\n"

    def member_pids() -> str:
        return "".join(f"{p.pid}\n" for p in table.all() if p.cpuset == group)

    def set_cpus(text: str) -> None:
        mask = parse_cpu_list(text)
        if not mask or mask & ~table.all_cores:
            raise os_error(errno.EINVAL)
        table.cpusets[group] = mask
        for process in table.all():
            if process.cpuset == group:
                table.move_process(process, mask)

    def move_process(text: str) -> None:
        process = table.find(int(text)) if text.strip().isdigit() else None
        if process is None:
            raise os_error(errno.ESRCH)
        process.cpuset = group
        table.move_process(process, table.cpusets[group])

    return {
        "cpus": live_node(cores, set_cpus if group != "/" else None),
        "effective_cpus": live_node(cores),
        "mems": live_node(lambda: "0\n"),
        "tasks": live_node(member_pids, move_process),
        "cgroup.procs": live_node(member_pids, move_process),
    }


def _process_group_node(table: ProcessTable) -> LiveNode:
    def member_pids() -> str:
        return "".join(f"{process.pid}\n" for process in table.all() if process.cgroup == "/")

    def move_process(text: str) -> None:
        pid = int(text) if text.strip().isdigit() else -1
        process = table.find(pid or table.current_pid)  # 0 is the process that writes
        if process is None:
            raise os_error(errno.ESRCH)
        process.cgroup = "/"

    return live_node(member_pids, move_process)


def parse_cpu_list(text: str) -> int:
    """Parse a list such as 0-3,5 into a mask; return 0 if it is not a list."""
    mask = 0
    for span in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", span)
        if match is None:
            return 0
        for cpu in range(int(match[1]), int(match[2] or match[1]) + 1):
            mask |= 1 << cpu
    return mask


def _stored_node(start: str, pattern: str) -> LiveNode:
    value = [start]

    def write(text: str) -> None:
        if not re.fullmatch(pattern, text.strip()):
            raise os_error(errno.EINVAL)
        value[0] = text.strip()

    return live_node(lambda: f"{value[0]}\n", write)


def _set_uclamp_max(table: ProcessTable, group: str, value: str) -> None:
    """Store the clamp of a group; it applies to the processes of the cpuset with the same name."""
    table.uclamp_max[group] = 100.0 if value == "max" else float(value)


def _uclamp_node(start: str, on_write: Callable[[str], None] | None = None) -> LiveNode:
    stored = [start]

    def write(text: str) -> None:
        value = text.strip()
        if value != "max":
            if not re.fullmatch(r"\d{1,3}(\.\d{1,2})?", value) or float(value) > 100:
                raise os_error(errno.ERANGE)
            value = f"{float(value):.2f}"
        stored[0] = value
        if on_write is not None:
            on_write(value)

    return live_node(lambda: f"{stored[0]}\n", write)
