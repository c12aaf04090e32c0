"""The process table of a phone: pid, parent, user, cores, session and state of every process.

A process is killed by its pid; which processes die with an adb stream depends on the session alone.
"""

import asyncio
import itertools
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.virtual.event_journal import JournalEvent
from agent.virtual.files.file_nodes import ROOT, SHELL

FIRST_PID = 6000


@dataclass(eq=False, slots=True)
class Process:
    """One process; `awaiting_exec` after a fork until it has become a program."""

    pid: int
    parent: int
    session: int
    uid: int
    mask: int
    argv: list[str]
    started_at: float
    awaiting_exec: bool = False
    ignores_sighup: bool = False
    status: int | None = None
    rss_kb: int = 3400
    swapped_kb: int = 0
    # thread id to affinity mask, for threads other than the first
    threads: dict[int, int] = field(default_factory=dict)
    # thread id to the one core that the program itself pinned the thread to
    pins: dict[int, int] = field(default_factory=dict)
    on_signal: Callable[[int], bool] | None = None
    on_end: Callable[[], None] | None = None
    on_mask_change: Callable[[], None] | None = None
    task: "asyncio.Task[int] | None" = None
    cpu_s: Callable[[], float] = float  # CPU time so far; most processes use hardly any
    cycles: Callable[[], float] = float  # of the processor, in that time
    # of the first thread: seconds on a core, and waiting for one
    first_thread_s: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    state: str = "S"
    state_before_stop: str = "S"  # restored by SIGCONT
    # set by SIGCONT; None while the process is not stopped
    resume_event: "asyncio.Event | None" = None
    on_pause: Callable[[bool], None] | None = None
    # signals that arrived while it was stopped
    pending_signals: list[int] = field(default_factory=list)
    cpuset: str = "/"
    cgroup: str = "/"  # init kills a service with all processes of its group

    @property
    def masks(self) -> dict[int, int]:
        """The affinity mask of every thread, by thread id."""
        return {self.pid: self.mask, **self.threads}

    @property
    def name(self) -> str:
        return self.argv[0].rpartition("/")[2][:15] if self.argv else "sh"


class ProcessTable:
    """All processes of one phone."""

    def __init__(self, all_cores: int, now: Callable[[], float]) -> None:
        self.all_cores = all_cores
        self._now = now
        self._pids = itertools.count(FIRST_PID)
        self._running: dict[int, Process] = {}
        self.on_change: Callable[[JournalEvent, Process], None] = _ignore_event
        self.cpusets: dict[str, int] = {"/": all_cores}
        self.uclamp_max: dict[str, float] = {}  # uclamp.max by cgroup, in percent
        self.current_pid = 1  # the process that /proc/self refers to

    def boot(self, services: tuple[str, ...]) -> None:
        """Start with init and its services only."""
        self._running.clear()
        self._add(Process(1, 0, 1, ROOT, self.all_cores, ["init"], self._now()))
        for service in services:
            self.start_service(service)

    def start_service(self, name: str) -> None:
        if not any(process.argv == [name] for process in self._running.values()):
            uid = SHELL if name == "adbd" else ROOT
            pid = 400 + sum(1 for process in self._running.values() if process.pid < FIRST_PID) * 17
            while pid in self._running:
                pid += 1
            self._add(Process(pid, 1, pid, uid, self.all_cores, [name], self._now()))

    def stop_service(self, name: str) -> None:
        for process in list(self._running.values()):
            if process.argv == [name] and process.pid < FIRST_PID:
                del self._running[process.pid]

    def spawn(self, parent: Process | None, argv: list[str], uid: int | None = None) -> Process:
        """Create a child with the user, mask and session of its parent; without a parent, a new
        session.
        """
        pid = next(self._pids)
        if parent is None:
            adbd = next((p.pid for p in self._running.values() if p.name == "adbd"), 1)
            process = Process(
                pid, adbd, pid, SHELL if uid is None else uid, self.all_cores, argv, self._now()
            )
            process.cgroup = f"/uid_{SHELL}/pid_{adbd}"
        else:
            process = Process(
                pid,
                parent.pid,
                parent.session,
                parent.uid if uid is None else uid,
                parent.mask,
                argv,
                self._now(),
                ignores_sighup=parent.ignores_sighup,
                cpuset=parent.cpuset,
                cgroup=parent.cgroup,
            )
        self.on_change(JournalEvent.PROCESS_START, process)
        return self._add(process)

    def exec_program(self, process: Process, argv: list[str], uid: int | None = None) -> None:
        """Let a process become another program, as exec does."""
        process.awaiting_exec = False
        process.argv = argv
        process.uid = process.uid if uid is None else uid
        self.on_change(JournalEvent.PROCESS_EXEC, process)

    def add_thread(self, process: Process, mask: int) -> int:
        """Add a thread with its own affinity mask; return its id."""
        tid = next(self._pids)
        process.threads[tid] = mask
        return tid

    def allowed_mask(self, process: Process) -> int:
        """Return the cores that the cpuset of a process allows."""
        return self.cpusets[process.cpuset]

    def pin_thread(self, process: Process, tid: int, cpu: int) -> None:
        """Let a program pin one of its threads to a core."""
        process.pins[tid] = 1 << cpu
        self._set_masks(process, {tid: 1 << cpu})

    def set_mask(self, process: Process, mask: int, tid: int | None = None) -> None:
        """Move one thread to other cores: the first one, unless another is named."""
        self._move(process, {tid or process.pid: mask})

    def move_process(self, process: Process, mask: int) -> None:
        """Move all threads of a process to other cores."""
        self._move(process, dict.fromkeys(process.masks, mask))

    def leave_offline_cores(self, online: int) -> None:
        """Give threads whose cores are all offline every core of their cpuset, for ever."""
        for process in self.all():
            homeless = [tid for tid, mask in process.masks.items() if not mask & online]
            if homeless:
                self._move(process, dict.fromkeys(homeless, self.allowed_mask(process)))

    def _move(self, process: Process, masks: dict[int, int]) -> None:
        self._set_masks(process, masks)
        self.on_change(JournalEvent.PROCESS_AFFINITY, process)
        if process.on_mask_change is not None:
            process.on_mask_change()

    def _set_masks(self, process: Process, masks: dict[int, int]) -> None:
        process.mask = masks.get(process.pid, process.mask)
        process.threads.update((tid, mask) for tid, mask in masks.items() if tid != process.pid)

    def end_process(self, process: Process, status: int) -> None:
        """Remove a process from the table; init adopts its children."""
        if process.status is None:
            process.status = status
            self.on_change(JournalEvent.PROCESS_STOP, process)
        if process.on_end is not None:
            process.on_end()
        self._running.pop(process.pid, None)
        for other in self._running.values():
            if other.parent == process.pid:
                other.parent = 1

    def find(self, pid: int) -> Process | None:
        return self._running.get(pid)

    def find_by_thread(self, tid: int) -> Process | None:
        """Return the process that a thread belongs to."""
        owners = (process for process in self._running.values() if tid in process.masks)
        return next(owners, None)

    def all(self) -> list[Process]:
        return sorted(self._running.values(), key=lambda process: process.pid)

    def kill(self, process: Process, signal_number: int) -> None:
        """Deliver a signal: first the handler of the process, then the default action."""
        if process.status is not None or signal_number == 0 or process.pid < FIRST_PID:
            return
        if process.resume_event is not None and signal_number not in (
            signal.SIGKILL,
            signal.SIGCONT,
        ):
            process.pending_signals.append(signal_number)
            return
        if (
            signal_number != signal.SIGKILL
            and process.on_signal is not None
            and process.on_signal(signal_number)
        ):
            return
        if signal_number == signal.SIGHUP and process.ignores_sighup:
            return
        if signal_number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGCONT):
            self._pause(process, signal_number != signal.SIGCONT)
            return
        if signal_number in (signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG):
            return
        self.end_process(process, 128 + signal_number)
        if process.task is not None:
            process.task.cancel()

    def _pause(self, process: Process, stop: bool) -> None:
        """Handle SIGSTOP and SIGCONT: a stopped process makes no progress."""
        if stop == (process.resume_event is not None):
            return
        if stop:
            process.resume_event = asyncio.Event()
            process.state_before_stop, process.state = process.state, "T"
        else:
            assert process.resume_event is not None
            process.resume_event.set()
            process.resume_event = None
            process.state = process.state_before_stop
        if process.on_pause is not None:
            process.on_pause(stop)
        pending_signals, process.pending_signals = process.pending_signals, []
        for signal_number in pending_signals:
            self.kill(process, signal_number)

    def hang_up(self, session: int) -> None:
        """Send SIGHUP to every process of a session whose stream has closed."""
        for process in list(self._running.values()):
            if process.session == session:
                self.kill(process, signal.SIGHUP)

    def kill_group_of(self, service: str) -> None:
        """Kill every process in the cgroup of a service, as init does when it stops the service."""
        pids = {process.pid for process in self._running.values() if process.name == service}
        groups = {f"pid_{pid}" for pid in pids}
        for process in list(self._running.values()):
            if process.cgroup.rpartition("/")[2] in groups:
                self.kill(process, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill everything, as a power-off does."""
        for process in list(self._running.values()):
            process.on_signal = None
            self.kill(process, signal.SIGKILL)

    def _add(self, process: Process) -> Process:
        self._running[process.pid] = process
        return process


def _ignore_event(event: JournalEvent, process: Process) -> None:
    """Default callback: ignore."""
