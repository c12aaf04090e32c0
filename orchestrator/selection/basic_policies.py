"""Selection policies by name: random, fastest, FedCS, TiFL, Oort and frugal.

All policies see the same: the measured values, heat and charge of each phone, and the results of
its last update. None sees the actual times in advance. Every choice has a reason.
"""

from collections.abc import Callable

import numpy as np

from orchestrator.selection.frugal_policy import FrugalPolicy
from orchestrator.selection.oort_policy import OortPolicy
from orchestrator.selection.round_state import (
    RoundRequest,
    RoundState,
    Selection,
    SelectionPolicy,
    draw_clients,
)
from orchestrator.selection.tifl_policy import TiFLPolicy


class RandomPolicy:
    """Any eligible phones: the default of federated averaging."""

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Draw uniformly."""
        eligible = state.eligible
        picks = draw_clients(eligible, request.k, rng)
        return Selection(picks, (f"drawn from {len(eligible)}",) * len(picks))


class FastestPolicy:
    """The fastest phones by their cold, or by their sustained time."""

    def __init__(self, sustained: bool = False) -> None:
        self._sustained = sustained

    def choose(self, state: RoundState, request: RoundRequest, _: np.random.Generator) -> Selection:
        """Take the first k of a fixed ranking."""
        fleet = state.fleet
        round_s = fleet.cold_s * (fleet.slowdown if self._sustained else 1.0) * state.samples
        eligible = state.eligible
        picks = eligible[np.argsort(round_s[eligible], kind="stable")[: request.k]]
        kind = "sustained" if self._sustained else "cold"
        return Selection(picks, tuple(f"{round_s[i]:.3g} s per round, {kind}" for i in picks))


class FedCSPolicy:
    """FedCS (Nishio and Yonetani, ICC 2019): as many phones as fit into a deadline.

    A random sample of phones states its times; the phone that lengthens the round least is added
    while the round still ends in time. Updates are sent one after the other, so a phone may work
    while others send. The paper adds phones without limit; here at most k, so that all policies
    choose equally many. Without a deadline, 1.5 times the median time of the sample is used.
    """

    POOL = 3  # times k phones are sampled
    SLACK = 1.5

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Add the fastest of the sample while the round still ends in time."""
        pool = draw_clients(state.eligible, request.k * self.POOL, rng)
        durations = state.profiled_duration_s[pool]
        deadline = request.deadline_s
        if deadline is None:
            sending_s = request.k * request.link_s
            deadline = float(np.median(durations) * self.SLACK) + sending_s if len(pool) else 0
        picks: list[int] = []
        reasons: list[str] = []
        elapsed = 0.0
        for index in np.argsort(durations, kind="stable"):
            end = max(elapsed, float(durations[index])) + request.link_s
            if end > deadline or len(picks) == request.k:
                break  # all links are equal, so every later phone would end later still
            picks.append(int(pool[index]))
            reasons.append(f"its update arrives after {end:.3g} of {deadline:.3g} s")
            elapsed = end
        return Selection(np.array(picks, dtype=np.int64), tuple(reasons))


POLICIES: dict[str, Callable[[], SelectionPolicy]] = {
    "random": RandomPolicy,
    "fastest": lambda: FastestPolicy(sustained=False),
    "fastest-sustained": lambda: FastestPolicy(sustained=True),
    "fedcs": FedCSPolicy,
    "tifl": TiFLPolicy,
    "oort": OortPolicy,
    "frugal": FrugalPolicy,
}
