"""Places threads on the cores of their affinity mask, as an energy-aware scheduler does.

The first thread of a load never sleeps and runs on the fastest idle core. Other threads start on
the most efficient idle cores, and leave them once they are busy there for most of the time.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.virtual.engines import EngineModel
from agent.virtual.physics.step_timing import ComputeSpeed, StepTiming


class CoreUse(NamedTuple):
    """What a load has used of the cores so far."""

    cpu_s: float = 0.0  # of all threads
    first_cpu_s: float = 0.0  # of the first thread
    first_waited_s: float = 0.0  # for its core, which others had
    cycles: float = 0.0  # of the processor in that time

    def after(
        self, cpu_s: float, first_cpu_s: float, first_waited_s: float, cycles: float
    ) -> "CoreUse":
        """Return what has been used after some more."""
        return CoreUse(
            self.cpu_s + cpu_s,
            self.first_cpu_s + first_cpu_s,
            self.first_waited_s + first_waited_s,
            self.cycles + cycles,
        )


_UNUSED = CoreUse()


@dataclass(eq=False, slots=True)
class CoreLoad:
    """A load on the cores: what it may use, what it draws, and a callback for changes of speed."""

    mask: int
    threads: int
    engine: EngineModel
    on_speed_change: Callable[[ComputeSpeed], None]
    first_core_activity: float = 1.0  # of the first thread's core
    other_cores_activity: float = 1.0
    gbs: float = 0.0
    shared_gbs: float = 0.0  # traffic of the shared caches, whether it reaches memory or not
    first_cpu: int = 0  # core of the first thread
    helpers_fit: bool = False  # helper threads sleep enough to stay on the most frugal cores
    helpers_busy: float = 1.0  # share of the time in which helper threads do not wait for the first
    gpu_busy: float = 0.0  # above 0 if the GPU does the arithmetic
    busy_share: float = 1.0  # share of the time in which its threads are not idle
    demand: float = 1.0  # share of a core that each thread asks for
    weight: float = 1.0  # against other loads on its core: nice 10 is a ninth of nice 0
    shares: dict[int, float] = field(default_factory=dict)
    first_share: float = 0.0  # of its core that the first thread gets
    # seconds by which the energy of a part of the chip is ahead of its mean, at a moment of a step
    lead_s: Callable[[str, float], float] = lambda part, moment: 0.0
    use: CoreUse = _UNUSED
    counted: CoreUse = _UNUSED  # when something last changed

    def apply_timing(self, timing: StepTiming) -> None:
        """Adopt the activity and memory traffic of a step."""
        self.first_core_activity, self.other_cores_activity, self.gbs = (
            timing.first_core_activity,
            timing.other_cores_activity,
            timing.gbs,
        )
        self.busy_share, self.shared_gbs = timing.busy_share, timing.shared_gbs
        self.helpers_busy = 1.0 - timing.serial_share
        self.gpu_busy = timing.gpu_busy

    def activity(self, cpu: int) -> float:
        """Return how busy this load keeps a core."""
        if cpu == self.first_cpu:
            return self.first_core_activity
        return self.other_cores_activity


def place_threads(loads: Iterable[CoreLoad], speeds: dict[int, float]) -> None:
    """Give each load its shares of cores.

    `speeds` has the online cores. A mask without an online core falls back to all of them, as the
    kernel does when it breaks an affinity that it can no longer honour.
    """
    threads_on: dict[int, list[CoreLoad]] = {cpu: [] for cpu in speeds}
    for load in loads:
        allowed = [cpu for cpu in speeds if load.mask >> cpu & 1] or list(speeds)
        load.shares = {}
        for thread in range(max(load.threads, 1)):
            sign = 1.0 if thread and load.helpers_fit else -1.0
            best = min(allowed, key=lambda cpu: (len(threads_on[cpu]), sign * speeds[cpu]))
            threads_on[best].append(load)
            if thread == 0:
                load.first_cpu = best
    for cpu, threads in threads_on.items():
        left, weights = 1.0, math.fsum(load.weight for load in threads)
        # A fair scheduler: who asks for less than its part gets it, the others share the rest.
        for load in sorted(threads, key=lambda load: load.demand / load.weight):
            share = min(load.demand, left * load.weight / weights)
            load.shares[cpu] = load.shares.get(cpu, 0.0) + share
            if cpu == load.first_cpu:
                load.first_share = share
            left, weights = left - share, weights - load.weight
