"""Who runs where: threads spread over the cores of their mask, idlest and fastest first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agent.virtual.engines import Engine
from agent.virtual.physics.roofline import Pace, StepCost


@dataclass(eq=False, slots=True)
class Load:
    """Work on the cores: what it may use, what it draws, and who hears of a change of pace."""

    mask: int
    threads: int
    engine: Engine
    on_pace: Callable[[Pace], None]
    lead: float = 1.0  # activity of the first thread's core
    others: float = 1.0
    gbs: float = 0.0
    first: int = 0  # the core of the first thread
    gpu_busy: float = 0.0  # above 0 for work whose arithmetic is the GPU's
    shares: dict[int, float] = field(default_factory=dict)
    cpu_s: float = 0.0  # of all its threads, as far as it was counted

    def take(self, cost: StepCost) -> None:
        """Work as hard as a step says."""
        self.lead, self.others, self.gbs = cost.lead, cost.others, cost.gbs

    def activity(self, cpu: int) -> float:
        """How hard a core works for this load."""
        if cpu == self.first:
            return self.lead
        return self.others


def place(loads: Iterable[Load], speeds: dict[int, float]) -> None:
    """Give each load its shares of cores.

    `speeds` names the online cores. A mask without an online core falls back to all of them, as
    the kernel does when it breaks an affinity it can no longer honour.
    """
    threads_on: dict[int, list[Load]] = {cpu: [] for cpu in speeds}
    for load in loads:
        allowed = [cpu for cpu in speeds if load.mask >> cpu & 1] or list(speeds)
        load.shares = {}
        for thread in range(max(load.threads, 1)):
            best = min(allowed, key=lambda cpu: (len(threads_on[cpu]), -speeds[cpu]))
            threads_on[best].append(load)
            if thread == 0:
                load.first = best
    for cpu, threads in threads_on.items():
        for load in threads:
            load.shares[cpu] = load.shares.get(cpu, 0.0) + 1.0 / len(threads)
