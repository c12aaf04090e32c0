"""Keeping a lab up: broker, scheduler, ingest and agents as children that are brought back."""

import fcntl
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.app.app_errors import InvalidState
from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import ServiceProcess, service_command, stop_all
from workloads.lab_settings import Lab
from workloads.protocol.faults import FarmTrouble

log = logging.getLogger("farm.lab")

LOOK_S = 0.5
REST_S = 2.0
AGENT_STOP_S = 60.0  # it puts every phone back first


@contextmanager
def lab_lock(lab: Lab) -> Iterator[None]:
    """Hold the lab folder: two sets of services on one folder would fight over it."""
    lab.root.mkdir(parents=True, exist_ok=True)
    folder = os.open(lab.root, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InvalidState(f"the lab in {lab.root} is already up") from None
    finally:
        os.close(folder)


@contextmanager
def services(lab: Lab, more: Sequence[ServiceProcess] = ()) -> Iterator[list[ServiceProcess]]:
    """Start the middle and whatever else belongs to this host; always stop all of it."""
    children: list[ServiceProcess] = []

    def start(child: ServiceProcess) -> None:
        children.append(child)  # first, so that it is stopped whatever happens next
        child.start()

    try:
        if lab.has_embedded_broker:
            start(embedded_broker(lab))
        wait_for_broker(lab, children[0] if children else None)
        database = Database(lab.store_url)
        database.migrate()
        database.close()
        # The last to start is the first to stop: no new job while agents put their phones back,
        # and somebody to take their last reports.
        for child in (central_services(lab, "ingest"), *more, central_services(lab, "scheduler")):
            start(child)
        yield children
    finally:
        stop_all(children)


def central_services(lab: Lab, name: str) -> ServiceProcess:
    """A service of the middle as a child."""
    command = service_command("service", name, "--lab", lab.root)
    return ServiceProcess(name, command, lab.log_file(name))


def agent_process(
    lab: Lab, host: str, *options: str | Path, wrapper: Sequence[str] = ()
) -> ServiceProcess:
    """An agent as a child process; `wrapper` are words before its command, such as env X=1."""
    agent = service_command("agent", "run", "--lab", lab.root, "--host", host, *options)
    command = [*wrapper, *agent]
    log_file = lab.log_file(f"agent-{host}")
    return ServiceProcess(f"agent-{host}", command, log_file, stop_s=AGENT_STOP_S)


class Supervisor:
    """Brings back children that ended; from the thread that made them, for they end with it."""

    def __init__(
        self,
        children: Sequence[ServiceProcess],
        failures_max: float = math.inf,
        tell: Callable[[str], None] = log.warning,
    ) -> None:
        self._children = children
        self._failures_max = failures_max
        self._tell = tell
        self._failures: Counter[str] = Counter()
        self._ended: dict[str, float] = {}

    def look(self) -> bool:
        """Start whoever has ended, each with a rest in between; say whether anybody had."""
        dead = [child for child in self._children if not child.alive]
        for child in dead:
            if time.monotonic() - self._ended.get(child.name, -REST_S) < REST_S:
                continue
            self._ended[child.name] = time.monotonic()
            self._failures[child.name] += child.failed
            if self._failures[child.name] > self._failures_max:
                raise FarmTrouble(f"{child.name} fails again and again: {child.last_words()}")
            self._tell(f"{child.name} ended and is started again: {child.last_words()}")
            child.start()
        return bool(dead)


def supervise(children: Sequence[ServiceProcess], look: Callable[[], None]) -> None:
    """Bring back children that ended, for ever, and look around meanwhile."""
    keeper = Supervisor(children)
    while True:
        keeper.look()
        look()
        time.sleep(LOOK_S)
