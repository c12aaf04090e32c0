"""The process table: who runs, under which user, on which cores, in which session.

A process is killed by its number; what dies with a stream is decided by session alone.
"""

import asyncio
import itertools
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.virtual.files.nodes import ROOT, SHELL

FIRST_PID = 6000


@dataclass(eq=False, slots=True)
class Process:
    """One process; `vacant` while a fork has not yet become a program."""

    pid: int
    parent: int
    session: int
    uid: int
    mask: int
    argv: list[str]
    started: float
    vacant: bool = False
    ignores_hangup: bool = False
    status: int | None = None
    rss_kb: int = 3400
    swapped_kb: int = 0
    threads: dict[int, int] = field(default_factory=dict)  # further threads and their masks
    on_signal: Callable[[int], bool] | None = None
    on_end: Callable[[], None] | None = None
    on_mask: Callable[[int], None] | None = None
    work: "asyncio.Task[int] | None" = None
    cpu_s: Callable[[], float] = float  # its time on cores so far; most have hardly any
    state: str = "S"
    running_state: str = "S"  # what it goes back to after a stop
    stopped: "asyncio.Event | None" = None  # set again by SIGCONT
    on_pause: Callable[[bool], None] | None = None
    pending: list[int] = field(default_factory=list)  # signals that came while it was stopped
    nice: int = 0
    cpuset: str = "/"

    @property
    def name(self) -> str:
        return self.argv[0].rpartition("/")[2][:15] if self.argv else "sh"


class ProcessTable:
    """Every process of one phone."""

    def __init__(self, all_cores: int, now: Callable[[], float]) -> None:
        self.all_cores = all_cores
        self._now = now
        self._pids = itertools.count(FIRST_PID)
        self._running: dict[int, Process] = {}
        self.witness: Callable[..., None] = _nobody
        self.cpusets: dict[str, int] = {"/": all_cores}
        self.clamps: dict[str, float] = {}  # uclamp.max by group, in per cent
        self.current = 1  # who asks for /proc/self

    def boot(self, services: tuple[str, ...]) -> None:
        """Only init and its children run."""
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
        """A child that inherits user, mask and session; without a parent, a new session."""
        pid = next(self._pids)
        if parent is None:
            adbd = next((p.pid for p in self._running.values() if p.name == "adbd"), 1)
            process = Process(
                pid, adbd, pid, SHELL if uid is None else uid, self.all_cores, argv, self._now()
            )
        else:
            process = Process(
                pid,
                parent.pid,
                parent.session,
                parent.uid if uid is None else uid,
                parent.mask,
                argv,
                self._now(),
                ignores_hangup=parent.ignores_hangup,
                nice=parent.nice,
                cpuset=parent.cpuset,
            )
        self.witness("process_start", process)
        return self._add(process)

    def become(self, process: Process, argv: list[str], uid: int | None = None) -> None:
        """exec: a process becomes another program."""
        process.vacant = False
        process.argv = argv
        process.uid = process.uid if uid is None else uid
        self.witness("process_exec", process)

    def add_thread(self, process: Process, mask: int) -> int:
        """One more thread of a process, with a mask of its own."""
        tid = next(self._pids)
        process.threads[tid] = mask
        return tid

    def allowed(self, process: Process) -> int:
        """The cores that a process's cpuset leaves it."""
        return self.cpusets[process.cpuset]

    def set_mask(self, process: Process, mask: int) -> None:
        """Move a running process to other cores."""
        process.mask = mask
        self.witness("affinity", process)
        if process.on_mask is not None:
            process.on_mask(mask)

    def end(self, process: Process, status: int) -> None:
        """Take a process out of the table; its orphans go to init."""
        if process.status is None:
            process.status = status
            self.witness("process_stop", process)
        if process.on_end is not None:
            process.on_end()
        self._running.pop(process.pid, None)
        for other in self._running.values():
            if other.parent == process.pid:
                other.parent = 1

    def find(self, pid: int) -> Process | None:
        return self._running.get(pid)

    def all(self) -> list[Process]:
        return sorted(self._running.values(), key=lambda process: process.pid)

    def kill(self, process: Process, number: int) -> None:
        """Deliver a signal: the process's own answer first, then the default one."""
        if process.status is not None or number == 0 or process.pid < FIRST_PID:
            return
        if process.stopped is not None and number not in (signal.SIGKILL, signal.SIGCONT):
            process.pending.append(number)
            return
        if number != signal.SIGKILL and process.on_signal is not None and process.on_signal(number):
            return
        if number == signal.SIGHUP and process.ignores_hangup:
            return
        if number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGCONT):
            self._pause(process, number != signal.SIGCONT)
            return
        if number in (signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG):
            return
        self.end(process, 128 + number)
        if process.work is not None:
            process.work.cancel()

    def _pause(self, process: Process, stop: bool) -> None:
        """SIGSTOP and SIGCONT: nothing of the process moves in between."""
        if stop == (process.stopped is not None):
            return
        if stop:
            process.stopped = asyncio.Event()
            process.running_state, process.state = process.state, "T"
        else:
            assert process.stopped is not None
            process.stopped.set()
            process.stopped = None
            process.state = process.running_state
        if process.on_pause is not None:
            process.on_pause(stop)
        pending, process.pending = process.pending, []
        for number in pending:
            self.kill(process, number)

    def hang_up(self, session: int) -> None:
        """A stream is gone: everybody in its session hears SIGHUP."""
        for process in list(self._running.values()):
            if process.session == session:
                self.kill(process, signal.SIGHUP)

    def kill_all(self) -> None:
        """The phone goes down."""
        for process in list(self._running.values()):
            process.on_signal = None
            self.kill(process, signal.SIGKILL)

    def _add(self, process: Process) -> Process:
        self._running[process.pid] = process
        return process


def _nobody(event: str, process: Process) -> None:
    """Nobody looks."""
