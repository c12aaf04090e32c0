"""/proc: uptime, load, memory and a directory per process, each generated when it is read."""

import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import fsum

from agent.virtual.files.cgroup_nodes import SDK_UNIFIED_CGROUP
from agent.virtual.files.cpu_nodes import format_cpu_list
from agent.virtual.files.file_nodes import (
    Directory,
    FileNode,
    LiveDirectory,
    SymbolicLink,
    directory_node,
    live_node,
)
from agent.virtual.files.file_tree import FileTree
from agent.virtual.physics.soc import Soc
from agent.virtual.process_table import Process, ProcessTable

_HERTZ = 100


@dataclass(frozen=True, slots=True)
class ProcSources:
    """Where the figures of /proc come from."""

    soc: Soc
    processes: ProcessTable
    uptime: Callable[[], float]
    boot_id: Callable[[], str]
    mem_available_kb: Callable[[], int]


def add_proc_nodes(tree: FileTree, sources: ProcSources) -> None:
    table = sources.processes

    def find_process_directory(name: str) -> FileNode | None:
        if name == "self":
            return SymbolicLink(stat.S_IFLNK | 0o777, target=str(table.current_pid))
        process = table.find(int(name)) if name.isdigit() else None
        return _process_directory(process, sources) if process else None

    tree.add_node(
        "/proc",
        LiveDirectory(
            stat.S_IFDIR | 0o555,
            find_child=find_process_directory,
            extra_names=lambda: ["self", *(str(process.pid) for process in table.all())],
        ),
    )
    tree.add_node("/proc/uptime", live_node(lambda: _uptime(sources)))
    tree.add_node("/proc/loadavg", live_node(lambda: _loadavg(sources)))
    tree.add_node("/proc/stat", live_node(lambda: _stat(sources)))
    tree.add_node("/proc/meminfo", live_node(lambda: _meminfo(sources)))
    tree.add_node("/proc/cpuinfo", live_node(lambda: _cpuinfo(sources.soc)))
    tree.add_node(
        "/proc/version", live_node(lambda: f"Linux version {_release(sources)} (farmhand)\n")
    )
    tree.add_node("/proc/sys/kernel/random/boot_id", live_node(lambda: f"{sources.boot_id()}\n"))
    tree.add_node("/proc/sys/kernel/osrelease", live_node(lambda: f"{_release(sources)}\n"))


def _release(sources: ProcSources) -> str:
    return sources.soc.profile.kernel.release


def _uptime(sources: ProcSources) -> str:
    sources.soc.update_counters()
    return f"{sources.uptime():.2f} {fsum(sources.soc.idle_s.values()):.2f}\n"


def _loadavg(sources: ProcSources) -> str:
    running = sum(load.threads for load in sources.soc.loads)
    last_pid = max(process.pid for process in sources.processes.all())
    return f"{running:.2f} {running:.2f} {running:.2f} {running}/{812 + running} {last_pid}\n"


def _stat(sources: ProcSources) -> str:
    soc = sources.soc
    soc.update_counters()

    def line(name: str, busy: float, idle: float) -> str:
        return f"{name} {int(busy * _HERTZ)} 0 0 {int(idle * _HERTZ)} 0 0 0 0 0 0\n"

    cores = "".join(
        line(f"cpu{cpu}", soc.busy_s[cpu], soc.idle_s[cpu]) for cpu in soc.online_cpus()
    )
    total = line("cpu ", fsum(soc.busy_s.values()), fsum(soc.idle_s.values()))
    running = sum(load.threads for load in soc.loads)
    return f"{total}{cores}ctxt 0\nprocs_running {running + 1}\nprocs_blocked 0\n"


def _meminfo(sources: ProcSources) -> str:
    memory = sources.soc.profile.memory
    free = sources.mem_available_kb()
    swapped = sum(process.swapped_kb for process in sources.processes.all())
    rows = {
        "MemTotal": memory.total_kb,
        "MemFree": int(free * 0.18),
        "MemAvailable": free,
        "Cached": int(free * 0.7),
        "SwapTotal": memory.swap_kb,
        "SwapFree": memory.swap_kb - swapped,
    }
    return "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in rows.items())


def _cpuinfo(soc: Soc) -> str:
    blocks = []
    for cpu in soc.online_cpus():
        part = soc.cluster_of(cpu).profile.part
        blocks.append(
            f"processor\t: {cpu}\nBogoMIPS\t: 38.40\n"
            "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp\n"
            f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\n"
            f"CPU part\t: 0x{part:x}\nCPU revision\t: 0\n"
        )
    hardware = f"Hardware\t: {soc.profile.soc}\n"
    return "\n".join([*blocks, hardware])


_FILE_KB = 1800  # of a program and its libraries


def _process_directory(process: Process, sources: ProcSources) -> Directory:
    directory = directory_node(0o555, process.uid, process.uid)
    command = "\0".join(process.argv) + "\0" if process.argv else ""
    nodes = {
        "status": live_node(lambda: _status(process, process.pid, sources)),
        "stat": live_node(lambda: _process_stat(process, sources)),
        "schedstat": live_node(lambda: _schedstat(process)),
        "cmdline": live_node(lambda: command),
        "comm": live_node(lambda: f"{process.name}\n"),
        "sched": live_node(lambda: _sched(process, sources)),
        "cpuset": live_node(lambda: f"{process.cpuset}\n"),
        "smaps": live_node(
            lambda: (
                f"00400000-00500000 r-xp 00000000 00:00 0\nRss: {process.rss_kb} kB\n"
                "KernelPageSize:        4 kB\nMMUPageSize:           4 kB\n"
            )
        ),
        "smaps_rollup": live_node(
            lambda: (
                f"00400000-7fff0000 ---p 00000000 00:00 0 [rollup]\nRss: {process.rss_kb:>15} kB\n"
                f"Anonymous: {max(process.rss_kb - _FILE_KB, 0):>9} kB\n"
                f"Swap: {process.swapped_kb:>14} kB\n"
            )
        ),
        "cgroup": live_node(lambda: _cgroup(process, sources)),
        "oom_score_adj": live_node(lambda: "-1000\n" if process.uid == 0 else "-950\n"),
        "statm": live_node(
            lambda: f"{(process.rss_kb + 9000) // 4} {process.rss_kb // 4} 0 0 0 0 0\n"
        ),
    }
    directory.children.update(nodes)
    task_directory = directory_node(0o555, process.uid, process.uid)
    for tid in (process.pid, *process.threads):
        thread_directory = directory_node(0o555, process.uid, process.uid)
        thread_directory.children["status"] = live_node(partial(_status, process, tid, sources))
        thread_directory.children["comm"] = live_node(lambda: f"{process.name}\n")
        task_directory.children[str(tid)] = thread_directory
    directory.children["task"] = task_directory
    return directory


def _cgroup(process: Process, sources: ProcSources) -> str:
    unified = sources.soc.profile.sdk >= SDK_UNIFIED_CGROUP
    service = f"0::{process.cgroup}" if unified else f"2:cpuacct:{process.cgroup}"
    return f"3:cpuset:{process.cpuset}\n{service}\n"


def _status(process: Process, tid: int, sources: ProcSources) -> str:
    mask = process.threads.get(tid, process.mask) & sources.processes.all_cores
    cores = [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]
    state_names = {"R": "R (running)", "S": "S (sleeping)", "T": "T (stopped)"}
    return (
        f"Name:\t{process.name}\nUmask:\t0000\nState:\t{state_names[process.state]}\n"
        f"Tgid:\t{process.pid}\nPid:\t{tid}\nPPid:\t{process.parent}\nTracerPid:\t0\n"
        f"Uid:\t{process.uid}\t{process.uid}\t{process.uid}\t{process.uid}\n"
        f"Gid:\t{process.uid}\t{process.uid}\t{process.uid}\t{process.uid}\n"
        f"VmPeak:\t{process.rss_kb + 9000:>8} kB\nVmRSS:\t{process.rss_kb:>8} kB\n"
        f"Threads:\t{1 + len(process.threads)}\n"
        f"Cpus_allowed:\t{mask:02x}\nCpus_allowed_list:\t{format_cpu_list(cores)}\n"
    )


def _sched(process: Process, sources: ProcSources) -> str:
    """Return the lines of /proc/PID/sched that show utilisation clamps."""
    clamp = round(sources.processes.uclamp_max.get(process.cpuset, 100.0) * 10.24)
    rows = {"uclamp.max": clamp, "effective uclamp.min": 0, "effective uclamp.max": clamp}
    lines = "".join(f"{name:<45}:{value:>21}\n" for name, value in rows.items())
    return f"{process.name} ({process.pid}, #threads: {1 + len(process.threads)})\n{lines}"


def _schedstat(process: Process) -> str:
    """Return ns on a core and waiting for one, of the first thread, and how often it ran."""
    ran_s, waited_s = process.first_thread_s()
    return f"{ran_s * 1e9:.0f} {waited_s * 1e9:.0f} {int(ran_s * _HERTZ)}\n"


def _process_stat(process: Process, sources: ProcSources) -> str:
    boot_time = sources.soc.clock.now - sources.uptime()
    started_ticks = int((process.started_at - boot_time) * _HERTZ)
    cpu_ticks = int(process.cpu_s() * _HERTZ)
    thread_count = 1 + len(process.threads)
    return (
        f"{process.pid} ({process.name}) {process.state} {process.parent} {process.session} "
        f"{process.session} 0 -1 1077936384 0 0 0 0 {cpu_ticks} 0 0 0 20 0 {thread_count} 0 "
        f"{started_ticks} {(process.rss_kb + 9000) * 1024} {process.rss_kb // 4} "
        "18446744073709551615 0 0\n"
    )
