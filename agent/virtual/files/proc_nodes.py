"""/proc: uptime, load, memory and a folder per process, each made at the moment it is read."""

import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agent.virtual.files.cpu_nodes import cpu_list
from agent.virtual.files.nodes import Directory, Link, LiveDirectory, Node, folder, live
from agent.virtual.files.tree import FileTree
from agent.virtual.physics.soc import Soc
from agent.virtual.processes import Process, ProcessTable

_HERTZ = 100


@dataclass(frozen=True, slots=True)
class ProcSources:
    """Where /proc takes its figures from."""

    soc: Soc
    processes: ProcessTable
    uptime: Callable[[], float]
    boot_id: Callable[[], str]
    free_kb: Callable[[], int]


def plant_proc_nodes(tree: FileTree, sources: ProcSources) -> None:
    """Put /proc into the tree."""
    table = sources.processes

    def process_folder(name: str) -> Node | None:
        if name == "self":
            return Link(stat.S_IFLNK | 0o777, target=str(table.current))
        process = table.find(int(name)) if name.isdigit() else None
        return _process_folder(process, sources) if process else None

    tree.put(
        "/proc",
        LiveDirectory(
            stat.S_IFDIR | 0o555,
            find=process_folder,
            extra=lambda: ["self", *(str(process.pid) for process in table.all())],
        ),
    )
    tree.put("/proc/uptime", live(lambda: _uptime(sources)))
    tree.put("/proc/loadavg", live(lambda: _loadavg(sources)))
    tree.put("/proc/stat", live(lambda: _stat(sources)))
    tree.put("/proc/meminfo", live(lambda: _meminfo(sources)))
    tree.put("/proc/cpuinfo", live(lambda: _cpuinfo(sources.soc)))
    tree.put("/proc/version", live(lambda: f"Linux version {_release(sources)} (farmhand)\n"))
    tree.put("/proc/sys/kernel/random/boot_id", live(lambda: f"{sources.boot_id()}\n"))
    tree.put("/proc/sys/kernel/osrelease", live(lambda: f"{_release(sources)}\n"))


def _release(sources: ProcSources) -> str:
    return sources.soc.profile.kernel.release


def _uptime(sources: ProcSources) -> str:
    sources.soc.count()
    return f"{sources.uptime():.2f} {sum(sources.soc.idle_s.values()):.2f}\n"


def _loadavg(sources: ProcSources) -> str:
    running = sum(load.threads for load in sources.soc.loads)
    last = max(process.pid for process in sources.processes.all())
    return f"{running:.2f} {running:.2f} {running:.2f} {running}/{812 + running} {last}\n"


def _stat(sources: ProcSources) -> str:
    soc = sources.soc
    soc.count()

    def line(name: str, busy: float, idle: float) -> str:
        return f"{name} {int(busy * _HERTZ)} 0 0 {int(idle * _HERTZ)} 0 0 0 0 0 0\n"

    cores = "".join(line(f"cpu{cpu}", soc.busy_s[cpu], soc.idle_s[cpu]) for cpu in soc.online())
    total = line("cpu ", sum(soc.busy_s.values()), sum(soc.idle_s.values()))
    running = sum(load.threads for load in soc.loads)
    return f"{total}{cores}ctxt 0\nprocs_running {running + 1}\nprocs_blocked 0\n"


def _meminfo(sources: ProcSources) -> str:
    memory = sources.soc.profile.memory
    free = sources.free_kb()
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
    for cpu in soc.online():
        part = soc.cluster_of(cpu).profile.part
        blocks.append(
            f"processor\t: {cpu}\nBogoMIPS\t: 38.40\n"
            "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp\n"
            f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\n"
            f"CPU part\t: 0x{part:x}\nCPU revision\t: 0\n"
        )
    hardware = f"Hardware\t: {soc.profile.soc}\n"
    return "\n".join([*blocks, hardware])


def _process_folder(process: Process, sources: ProcSources) -> Directory:
    home = folder(0o555, process.uid, process.uid)
    command = "\0".join(process.argv) + "\0" if process.argv else ""
    leaves = {
        "status": live(lambda: _status(process, process.pid, sources)),
        "stat": live(lambda: _process_stat(process, sources)),
        "cmdline": live(lambda: command),
        "comm": live(lambda: f"{process.name}\n"),
        "sched": live(lambda: _sched(process, sources)),
        "cpuset": live(lambda: f"{process.cpuset}\n"),
        "smaps": live(
            lambda: (
                f"00400000-00500000 r-xp 00000000 00:00 0\nRss: {process.rss_kb} kB\n"
                "KernelPageSize:        4 kB\nMMUPageSize:           4 kB\n"
            )
        ),
        "cgroup": live(lambda: f"1:cpuset:{process.cpuset}\n"),
        "oom_score_adj": live(lambda: "-1000\n" if process.uid == 0 else "-950\n"),
        "statm": live(lambda: f"{(process.rss_kb + 9000) // 4} {process.rss_kb // 4} 0 0 0 0 0\n"),
    }
    home.children.update(leaves)
    threads = folder(0o555, process.uid, process.uid)
    for tid in (process.pid, *process.threads):
        thread = folder(0o555, process.uid, process.uid)
        thread.children["status"] = live(partial(_status, process, tid, sources))
        thread.children["comm"] = live(lambda: f"{process.name}\n")
        threads.children[str(tid)] = thread
    home.children["task"] = threads
    return home


def _status(process: Process, tid: int, sources: ProcSources) -> str:
    mask = process.threads.get(tid, process.mask) & sources.processes.all_cores
    cores = [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]
    words = {"R": "R (running)", "S": "S (sleeping)", "T": "T (stopped)"}
    return (
        f"Name:\t{process.name}\nUmask:\t0000\nState:\t{words[process.state]}\n"
        f"Tgid:\t{process.pid}\nPid:\t{tid}\nPPid:\t{process.parent}\nTracerPid:\t0\n"
        f"Uid:\t{process.uid}\t{process.uid}\t{process.uid}\t{process.uid}\n"
        f"Gid:\t{process.uid}\t{process.uid}\t{process.uid}\t{process.uid}\n"
        f"VmPeak:\t{process.rss_kb + 9000:>8} kB\nVmRSS:\t{process.rss_kb:>8} kB\n"
        f"Threads:\t{1 + len(process.threads)}\n"
        f"Cpus_allowed:\t{mask:02x}\nCpus_allowed_list:\t{cpu_list(cores)}\n"
    )


def _sched(process: Process, sources: ProcSources) -> str:
    """The scheduler's view, in the lines that tell of clamps."""
    clamp = round(sources.processes.clamps.get(process.cpuset, 100.0) * 10.24)
    rows = {"uclamp.max": clamp, "effective uclamp.min": 0, "effective uclamp.max": clamp}
    lines = "".join(f"{name:<45}:{value:>21}\n" for name, value in rows.items())
    return f"{process.name} ({process.pid}, #threads: {1 + len(process.threads)})\n{lines}"


def _process_stat(process: Process, sources: ProcSources) -> str:
    boot = sources.soc.timeline.now - sources.uptime()
    started = int((process.started - boot) * _HERTZ)
    ticks = int(process.cpu_s() * _HERTZ)
    threads = 1 + len(process.threads)
    return (
        f"{process.pid} ({process.name}) {process.state} {process.parent} {process.session} "
        f"{process.session} 0 -1 1077936384 0 0 0 0 {ticks} 0 0 0 20 0 {threads} 0 {started} "
        f"{(process.rss_kb + 9000) * 1024} {process.rss_kb // 4} 18446744073709551615 0 0\n"
    )
