"""Runs a lab: broker, scheduler, ingest and agents as child processes that are restarted."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from orchestrator.app.remote.api_port import open_port
from orchestrator.app.services.run_service import migrate_store
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import ServiceProcess, block_signals, service_command, stop_all
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmTrouble

log = logging.getLogger("farm.lab")

SUPERVISE_INTERVAL_S = 0.5
RESTART_DELAY_S = 2.0
AGENT_STOP_TIMEOUT_S = 60.0  # an agent restores every phone before it ends


@contextmanager
def services(lab: Lab, more: Sequence[ServiceProcess] = ()) -> Iterator[list[ServiceProcess]]:
    """Start the central services and other processes of this host; always stop all of them."""
    processes: list[ServiceProcess] = []

    def start(process: ServiceProcess) -> None:
        processes.append(process)  # first, so that it is stopped in every case
        process.start()

    try:
        if lab.has_embedded_broker:
            start(embedded_broker(lab))
        wait_for_broker(lab, processes[0] if processes else None)
        # SQLAlchemy logs a traceback if Ctrl-C arrives while it closes the file. A remote store may
        # take minutes to answer, so Ctrl-C must work there.
        with block_signals() if lab.has_embedded_store else nullcontext():
            migrate_store(lab)
        # The last to start is the first to stop: no new job is sent while agents restore their
        # phones, and ingest still stores their last reports.
        for process in (central_service(lab, "ingest"), *more, central_service(lab, "scheduler")):
            start(process)
        yield processes
    finally:
        stop_all(processes)


def central_service(lab: Lab, name: str) -> ServiceProcess:
    """Prepare a central service as a child process."""
    command = service_command("service", name, "--lab", lab.root)
    return ServiceProcess(name, command, lab.log_file(name))


def api_service(lab: Lab) -> list[ServiceProcess]:
    """Prepare the API as a child process; InvalidState if its port is taken."""
    open_port(lab.settings.api).close()
    return [central_service(lab, "api")]


def agent_process(
    lab: Lab, host: str, *options: str | Path, wrapper: Sequence[str] = ()
) -> ServiceProcess:
    """Prepare an agent as a child process; `wrapper` precedes its command, e.g. env X=1."""
    agent = service_command("service", "agent", "--lab", lab.root, "--host", host, *options)
    command = [*wrapper, *agent]
    log_file = lab.log_file(f"agent-{host}")
    return ServiceProcess(f"agent-{host}", command, log_file, stop_timeout_s=AGENT_STOP_TIMEOUT_S)


class Supervisor:
    """Restarts processes that ended; only in the thread that started them, as they end with it."""

    def __init__(
        self,
        processes: Sequence[ServiceProcess],
        failures_max: float = math.inf,
        on_restart: Callable[[str], None] = log.warning,
    ) -> None:
        self._processes = processes
        self._failures_max = failures_max
        self._on_restart = on_restart
        self._failures: Counter[str] = Counter()
        self._restarted_at: dict[str, float] = {}

    def restart_ended(self) -> bool:
        """Restart processes that ended, after a delay; return whether any had ended."""
        ended = [process for process in self._processes if not process.alive]
        for process in ended:
            name, now = process.name, time.monotonic()
            if now - self._restarted_at.get(name, -RESTART_DELAY_S) < RESTART_DELAY_S:
                continue
            self._restarted_at[name] = now
            self._failures[name] += process.failed
            if self._failures[name] > self._failures_max:
                raise FarmTrouble(f"{name} failed repeatedly: {process.end_reason()}")
            self._on_restart(f"{name} ended and is restarted: {process.end_reason()}")
            process.start()
        return bool(ended)


def supervise(
    lab: Lab, processes: Sequence[ServiceProcess], polls: Sequence[Callable[[], None]]
) -> None:
    """Restart processes that end, until interrupted; call `polls` twice per second."""
    supervisor = Supervisor(processes)
    while True:
        supervisor.restart_ended()
        for process in processes:
            process.rotate_log(int(lab.settings.log.file_mb_max * 1e6))
        for poll in polls:
            poll()
        time.sleep(SUPERVISE_INTERVAL_S)
