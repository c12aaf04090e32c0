"""Injects faults into a farm in a random order, one at a time, and lets the farm recover.

All faults come from outside: signals to processes, a wiped broker, a locked store, a second
scheduler. Every stopped process is started again, so that a sweep can end.
"""

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from orchestrator.supervisor.process import stop_all
from orchestrator.supervisor.services import central_service
from tests.farm.conftest import LEASE_S, Farm


@contextmanager
def locked(farm: Farm) -> Iterator[None]:
    """Lock a SQLite store against every writer."""
    with closing(sqlite3.connect(farm.lab.root / "farm.db", isolation_level=None)) as store:
        store.execute("PRAGMA busy_timeout = 30000")
        store.execute("BEGIN IMMEDIATE")
        yield
        store.execute("ROLLBACK")


class FaultInjector:
    """Draws faults from a seed and records them.

    It runs in the calling thread, because a process ends with the thread that started it.
    """

    def __init__(self, farm: Farm, seed: int) -> None:
        self._farm = farm
        self._random = random.Random(seed)
        self.injected: list[str] = []
        self._faults: tuple[Callable[[], str], ...] = (
            self._kill_an_agent,
            self._kill_central_service,
            self._freeze_an_agent,
            self._wipe_the_broker,
            self._flap_the_broker,
            self._lose_the_broker,
            self._lock_the_store,
        )
        self._next: list[Callable[[], str]] = []

    def inject(self) -> None:
        """Inject one fault; every fault occurs once before any occurs twice."""
        if not self._next:
            self._next = self._random.sample(self._faults, len(self._faults))
        self.injected.append(self._next.pop()())

    def run(self, until: Callable[[], bool]) -> None:
        """Inject a fault every second or two, while a second scheduler runs."""
        second = central_service(self._farm.lab, "scheduler")
        second.start()
        try:
            while not until():
                for _ in self._faults:
                    time.sleep(self._random.uniform(0.5, 2.0))
                    self.inject()
        finally:
            stop_all([second])

    def _agent(self) -> str:
        return self._random.choice([name for name in self._farm.processes if "agent" in name])

    def _kill(self, name: str) -> None:
        process = self._farm.processes[name]
        os.kill(process.pid, signal.SIGKILL)
        while process.alive:
            time.sleep(0.01)

    def _kill_an_agent(self) -> str:
        name = self._agent()
        self._kill(name)
        time.sleep(self._random.uniform(0, LEASE_S))
        self._farm.processes[name].start()
        return f"killed {name}"

    def _kill_central_service(self) -> str:
        name = self._random.choice(["scheduler", "ingest"])
        self._kill(name)
        self._farm.processes[name].start()
        return f"killed {name}"

    def _freeze_an_agent(self) -> str:
        """Freeze an agent for longer than its lease; its phone may be leased to another attempt."""
        name = self._agent()
        pid = self._farm.processes[name].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * LEASE_S)
        os.kill(pid, signal.SIGCONT)
        return f"froze {name}"

    def _wipe_the_broker(self) -> str:
        self._kill("broker")
        shutil.rmtree(self._farm.lab.root / "broker" / "appendonlydir", ignore_errors=True)
        self._farm.processes["broker"].start()
        return "wiped the broker"

    def _lose_the_broker(self) -> str:
        """Stop the broker for longer than a lease; silence must not count as a lost agent."""
        self._kill("broker")
        time.sleep(2 * LEASE_S)
        self._farm.processes["broker"].start()
        return "lost the broker for a while"

    def _lock_the_store(self) -> str:
        """Lock the store for longer than a lease; finished runs wait in the spools."""
        with locked(self._farm):
            time.sleep(2 * LEASE_S)
        return "locked the store"

    def _flap_the_broker(self) -> str:
        for _ in range(3):
            self._kill("broker")
            self._farm.processes["broker"].start()
            time.sleep(0.3)
        return "flapped the broker"
