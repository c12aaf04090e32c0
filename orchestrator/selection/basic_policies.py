"""Selection policies by name: random, fastest, FedCS, power-of-choice, Oort and frugal.

All policies see the same: the measured values, the estimated heat and the charge of each phone, and
the results of its last update. None sees the actual times in advance. Every choice has a reason.
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


class RandomPolicy:
    """Any eligible phones, 1.3 times as many as needed: the baseline of production systems.

    Bonawitz et al., "Towards federated learning at scale", MLSys 2019, section 9, ask 130 % of the
    wanted phones and end a round at a deadline or when enough updates have arrived.
    """

    over_selection = 1.3

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Draw uniformly."""
        eligible = state.eligible
        picks = draw_clients(eligible, request.k, rng)
        return Selection(picks, (f"drawn from {len(eligible)}",) * len(picks))


class FastestPolicy:
    """The fastest phones by their cold, or by their sustained time."""

    over_selection = 1.0

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
    """FedCS (Nishio and Yonetani, ICC 2019, algorithm 3): as many phones as fit into a deadline.

    A random sample of phones states its times; the phone that lengthens the round least is added
    while the round still ends in time. Updates are sent one after the other, so a phone may work
    while others send. Deviations: at most k phones, so that all policies choose equally many; the
    sample has 2 k phones (a tenth of all in the paper); without a deadline, the median time of the
    sample is used, which about half of the phones meet, as with the paper's 3 minutes.
    """

    over_selection = 1.0
    POOL = 2  # times k phones are sampled

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Add the fastest of the sample while the round still ends in time."""
        pool = draw_clients(state.eligible, request.k * self.POOL, rng)
        durations, links = state.profiled_duration_s[pool], state.link_s[pool]
        deadline = request.deadline_s
        if deadline is None:
            deadline = float(np.median(durations)) if len(pool) else 0.0
        picks: list[int] = []
        reasons: list[str] = []
        elapsed = 0.0
        for index in np.argsort(durations, kind="stable"):
            end = max(elapsed, float(durations[index] - links[index])) + float(links[index])
            if len(picks) == request.k:
                break
            if end > deadline:
                continue
            picks.append(int(pool[index]))
            reasons.append(f"its update arrives after {end:.3g} of {deadline:.3g} s")
            elapsed = end
        return Selection(np.array(picks, dtype=np.int64), tuple(reasons))


class PowerOfChoicePolicy:
    """Power-of-choice (Cho, Wang and Joshi, AISTATS 2022): the highest losses of a random sample.

    The variant rpow-d, which ranks the sample by the last reported loss and needs no extra
    messages; a phone without an update counts as infinite. The sample is drawn in proportion to the
    size of the data, with d = 2 k (the paper's smallest: d = 6 for 3 phones).
    """

    over_selection = 1.0
    SAMPLE = 2

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Draw the sample, and take its k highest losses."""
        eligible = state.eligible
        sample = draw_clients(
            eligible, request.k * self.SAMPLE, rng, state.samples[eligible].astype(float)
        )
        loss = state.utility[sample] / np.maximum(state.samples[sample], 1)
        loss = np.where(np.isnan(loss), np.inf, loss)
        order = np.argsort(-loss, kind="stable")[: request.k]
        reasons = tuple(f"loss {loss[i]:.3g}, of {len(sample)} drawn" for i in order)
        return Selection(sample[order], reasons)


POLICIES: dict[str, Callable[[], SelectionPolicy]] = {
    "random": RandomPolicy,
    "fastest": lambda: FastestPolicy(sustained=False),
    "fastest-sustained": lambda: FastestPolicy(sustained=True),
    "fedcs": FedCSPolicy,
    "power-of-choice": PowerOfChoicePolicy,
    "oort": OortPolicy,
    "frugal": FrugalPolicy,
}
