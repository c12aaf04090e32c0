"""What an idle Android does while something is measured: short bursts, and a sync per minute.

In the mean it is a twentieth of a core (guessed), most of it on the little cores at nice 10, where
Android keeps what no user waits for.
"""

import random
from functools import partial

from agent.virtual.engines import load_engine
from agent.virtual.phone_clock import ScheduledAction
from agent.virtual.physics.soc import Soc
from agent.virtual.physics.thread_placement import CoreLoad

_BURST_EVERY_S, _BURST_S = 1.0, (0.01, 0.08)
_SYNC_EVERY_S, _SYNC_S, _SYNC_THREADS, _SYNC_SHARE = 60.0, (0.8, 2.0), 2, 0.4
_LITTLE_SHARE = 0.7  # of the bursts
_NICE_10 = 110 / 1024  # the weight of the Linux kernel, relative to nice 0
_ACTIVITY, _GBS = 0.6, 0.5  # scalar code that misses the caches now and then


class IdleBackground:
    """The work in the background of one run."""

    def __init__(self, soc: Soc, rng: random.Random) -> None:
        self._soc = soc
        self._rng = rng
        self._events: dict[str, ScheduledAction] = {}
        self._loads: dict[str, CoreLoad] = {}

    def start(self) -> None:
        """Begin at a random moment between two syncs."""
        self._schedule("burst", self._rng.expovariate(1 / _BURST_EVERY_S))
        self._schedule("sync", self._rng.uniform(0.0, _SYNC_EVERY_S))

    def stop(self) -> None:
        """End what is active and what would follow."""
        for event in self._events.values():
            event.cancel()
        self._events.clear()
        for load in self._loads.values():
            self._soc.detach(load)
        self._loads.clear()

    def _schedule(self, kind: str, seconds: float) -> None:
        clock = self._soc.clock
        self._events[kind] = clock.schedule(clock.now + seconds, partial(self._begin, kind))

    def _begin(self, kind: str) -> None:
        rng, clusters = self._rng, self._soc.clusters
        is_nice = kind == "sync" or rng.random() < _LITTLE_SHARE
        clusters = clusters[:1] if is_nice else clusters
        mask = sum(1 << cpu for cluster in clusters for cpu in cluster.cpus)
        threads = _SYNC_THREADS if kind == "sync" else 1
        load = CoreLoad(mask, threads, load_engine("farmhand"), lambda _: None)
        load.demand = _SYNC_SHARE if kind == "sync" else 1.0
        load.weight = _NICE_10 if is_nice else 1.0
        load.first_core_activity = load.other_cores_activity = _ACTIVITY
        load.gbs = _GBS
        self._loads[kind] = load
        self._soc.attach(load)
        low, high = _SYNC_S if kind == "sync" else _BURST_S
        clock = self._soc.clock
        end = clock.now + low * (high / low) ** rng.random()
        self._events[kind] = clock.schedule(end, partial(self._end, kind))

    def _end(self, kind: str) -> None:
        self._soc.detach(self._loads.pop(kind))
        every = _SYNC_EVERY_S if kind == "sync" else self._rng.expovariate(1 / _BURST_EVERY_S)
        self._schedule(kind, every)
