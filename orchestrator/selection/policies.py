"""Who is chosen for the next round: five rules of the literature, and ours.

All see the same: what was measured, how hot and how charged each phone is, what was learned from
its last update. None sees what is true. Every choice comes with its reason.
"""

from collections.abc import Callable

import numpy as np

from orchestrator.selection.frugal import Frugal
from orchestrator.selection.oort import Oort
from orchestrator.selection.situation import Choice, Policy, Situation, Want, draw
from orchestrator.selection.tifl import TiFL


class Random:
    """Anybody who can: what federated averaging does unless told otherwise."""

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Draw without looking."""
        able = now.eligible
        picks = draw(able, want.k, rng)
        return Choice(picks, (f"drawn from {len(able)}",) * len(picks))


class Fastest:
    """The quickest by what was measured of a cool phone, or of a hot one."""

    def __init__(self, sustained: bool = False) -> None:
        self._sustained = sustained

    def choose(self, now: Situation, want: Want, _: np.random.Generator) -> Choice:
        """Take the first k of a list that never changes."""
        fleet = now.fleet
        pace = fleet.cold_s * (fleet.slowdown if self._sustained else 1.0) * now.samples
        able = now.eligible
        picks = able[np.argsort(pace[able], kind="stable")[: want.k]]
        kind = "sustained" if self._sustained else "cold"
        return Choice(picks, tuple(f"{pace[i]:.3g} s a round, {kind}" for i in picks))


class FedCS:
    """FedCS (Nishio and Yonetani, ICC 2019): as many as fit into a deadline.

    A random few tell what they can do; whoever lengthens the round least is added while it still
    ends in time. Updates are sent one after the other, so a phone may work while others send. The
    paper adds without end; here k are enough, so that all policies ask equally many. Where no
    deadline is said, it is half more than the pool's median time.
    """

    POOL = 3  # times k are asked what they can do
    SLACK = 1.5

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Add the quickest of the pool while the round still ends in time."""
        pool = draw(now.eligible, want.k * self.POOL, rng)
        took = now.profiled_s[pool]
        deadline = want.deadline_s
        if deadline is None:
            deadline = (
                float(np.median(took) * self.SLACK) + want.k * want.link_s if len(pool) else 0
            )
        picks: list[int] = []
        why: list[str] = []
        elapsed = 0.0
        for at in np.argsort(took, kind="stable"):
            until = max(elapsed, float(took[at])) + want.link_s
            if until > deadline or len(picks) == want.k:
                break  # all links are alike, so whoever follows would be later still
            picks.append(int(pool[at]))
            why.append(f"its update is there after {until:.3g} of {deadline:.3g} s")
            elapsed = until
        return Choice(np.array(picks, dtype=np.int64), tuple(why))


POLICIES: dict[str, Callable[[], Policy]] = {
    "random": Random,
    "fastest": lambda: Fastest(sustained=False),
    "fastest-sustained": lambda: Fastest(sustained=True),
    "fedcs": FedCS,
    "tifl": TiFL,
    "oort": Oort,
    "frugal": Frugal,
}
