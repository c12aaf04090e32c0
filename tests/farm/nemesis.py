"""The nemesis: breaks one thing after another, as its seed says, and lets the farm recover.

Everything happens from outside: signals to processes, a broker's memory wiped, a second scheduler
by mistake. Whatever it stopped it starts again, so that a sweep can end.
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
    """Keep every writer out of a SQLite store."""
    with closing(sqlite3.connect(farm.lab.root / "farm.db", isolation_level=None)) as store:
        store.execute("PRAGMA busy_timeout = 30000")
        store.execute("BEGIN IMMEDIATE")
        yield
        store.execute("ROLLBACK")


class Nemesis:
    """Faults drawn with a seed, one at a time; what was done is written down.

    It strikes from the thread that asks it: a child is ended with the thread that started it.
    """

    def __init__(self, farm: Farm, seed: int) -> None:
        self._farm = farm
        self._draw = random.Random(seed)
        self.done: list[str] = []

    def strike(self, until: Callable[[], bool]) -> None:
        """Break something every second or two, with a second scheduler there by mistake."""
        faults: tuple[Callable[[], str], ...] = (
            self._kill_an_agent,
            self._kill_the_middle,
            self._freeze_an_agent,
            self._wipe_the_broker,
            self._flap_the_broker,
            self._lose_the_broker,
            self._lock_the_store,
        )
        second = central_service(self._farm.lab, "scheduler")
        second.start()
        try:
            while not until():
                # Each kind once before any comes again.
                for fault in self._draw.sample(faults, len(faults)):
                    time.sleep(self._draw.uniform(0.5, 2.0))
                    self.done.append(fault())
        finally:
            stop_all([second])

    def _agent(self) -> str:
        return self._draw.choice([name for name in self._farm.children if "agent" in name])

    def _kill(self, name: str) -> None:
        child = self._farm.children[name]
        os.kill(child.pid, signal.SIGKILL)
        while child.alive:
            time.sleep(0.01)

    def _kill_an_agent(self) -> str:
        name = self._agent()
        self._kill(name)
        time.sleep(self._draw.uniform(0, LEASE_S))
        self._farm.children[name].start()
        return f"killed {name}"

    def _kill_the_middle(self) -> str:
        name = self._draw.choice(["scheduler", "ingest"])
        self._kill(name)
        self._farm.children[name].start()
        return f"killed {name}"

    def _freeze_an_agent(self) -> str:
        """Longer than its lease: it wakes up to a phone that may be somebody else's."""
        name = self._agent()
        pid = self._farm.children[name].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * LEASE_S)
        os.kill(pid, signal.SIGCONT)
        return f"froze {name}"

    def _wipe_the_broker(self) -> str:
        self._kill("broker")
        shutil.rmtree(self._farm.lab.root / "broker" / "appendonlydir", ignore_errors=True)
        self._farm.children["broker"].start()
        return "wiped the broker"

    def _lose_the_broker(self) -> str:
        """Longer than a lease: nobody hears of anybody, and silence proves nothing."""
        self._kill("broker")
        time.sleep(2 * LEASE_S)
        self._farm.children["broker"].start()
        return "lost the broker for a while"

    def _lock_the_store(self) -> str:
        """Longer than a lease: what runs finishes and waits in the spools."""
        with locked(self._farm):
            time.sleep(2 * LEASE_S)
        return "locked the store"

    def _flap_the_broker(self) -> str:
        for _ in range(3):
            self._kill("broker")
            self._farm.children["broker"].start()
            time.sleep(0.3)
        return "flapped the broker"
