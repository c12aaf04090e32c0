"""Which run a phone gets next: a pure decision from temperature, usage and deadlines.

Owners share the lab by what they have used. Ten levels of priority more halve what a run counts for
its owner. A sweep that is about to miss its deadline goes first among sweeps of its priority. The
order of the runs within a sweep never changes. While a phone cools for its next run, it gets a run
of another sweep that may start warm, if that run fits into the pause (backfill).

The thermal model is one body: the heat of a run decays with the phone's own time constant towards
its resting temperature. This is enough to compare pauses; whether a run may start is decided by the
phone's temperature sensors alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.store.next_runs import NextRun

PRIORITY_DOUBLING = 10  # levels of priority that double a share
DEADLINE_MARGIN = 1.25  # a sweep is urgent when its remaining time times this does not fit any more
NEVER_S = 3600.0
PAUSE_MIN_S = 1.0
DELAY_SHARE_MAX = 0.5  # of the backfilled run's time, by which it may delay the waiting run


@dataclass(frozen=True)
class ThermalState:
    """A phone's temperature, its resting temperature and its time constant on the host's clock."""

    temp_c: float
    rest_c: float
    time_constant_s: float

    def wait_s(self, start_max_c: float | None) -> float:
        """Return the time until the phone has cooled to the start temperature."""
        if start_max_c is None or self.temp_c <= start_max_c:
            return 0.0
        if start_max_c <= self.rest_c:
            return NEVER_S
        fall = (self.temp_c - self.rest_c) / (start_max_c - self.rest_c)
        return min(NEVER_S, self.time_constant_s * math.log(fall))

    def after(self, seconds: float, rise_c: float = 0.0) -> "ThermalState":
        """Return the state after some seconds in which work added `rise_c` degrees."""
        left = (self.temp_c - self.rest_c) * math.exp(-seconds / self.time_constant_s)
        return ThermalState(self.rest_c + left + rise_c, self.rest_c, self.time_constant_s)


@dataclass(frozen=True)
class ExpectedDuration:
    """How long a run is expected to take, and by how much it warms the phone."""

    run_s: float
    rise_c: float
    start_max_c: float | None
    start_above_rest_k: float | None = None  # where it is relative to the phone's rest


@dataclass(frozen=True)
class SweepShare:
    """The owner of a sweep, and what its share of the lab depends on."""

    owner: str
    priority: int = 50
    deadline: float | None = None
    created_at_s: float = 0.0
    remaining_s: float = 0.0  # of its busiest phone

    @property
    def weight(self) -> float:
        """The share of the lab of this sweep, relative to a sweep of priority 50."""
        return float(2.0 ** ((self.priority - 50) / PRIORITY_DOUBLING))

    def is_urgent(self, now: float) -> bool:
        """Return whether the deadline will be missed; a missed deadline is no longer urgent."""
        if self.deadline is None or now > self.deadline:
            return False
        return DEADLINE_MARGIN * self.remaining_s >= self.deadline - now


def assign_runs(
    waiting: Sequence[NextRun],
    expected: Mapping[int, ExpectedDuration],
    shares: Mapping[str, SweepShare],
    used_s: Mapping[str, float],
    thermal_states: Mapping[str, ThermalState],
    now: float,
) -> list[NextRun]:
    """Choose a run for each phone that has one: fairly, and without pauses that could be used."""
    used = dict(used_s)
    by_phone: dict[str, list[NextRun]] = {}
    for run in waiting:
        by_phone.setdefault(run.phone, []).append(run)
    chosen = []
    for phone, runs in sorted(by_phone.items()):
        ranked = sorted(runs, key=lambda run: _priority_key(run, shares[run.sweep], used, now))
        run = _backfill(ranked, expected, thermal_states.get(phone))
        share = shares[run.sweep]
        used[share.owner] = used.get(share.owner, 0.0) + expected[run.run].run_s / share.weight
        chosen.append(run)
    return chosen


def _priority_key(
    run: NextRun, share: SweepShare, used: Mapping[str, float], now: float
) -> tuple[float | str, ...]:
    """Sort by urgency, then by what the owner has used, then by the owner's own priorities."""
    urgency = -share.priority if share.is_urgent(now) else 1
    deadline = math.inf if share.deadline is None or now > share.deadline else share.deadline
    own_order = (-share.priority, deadline, share.created_at_s, run.sweep)
    return (urgency, used.get(share.owner, 0.0), *own_order)


def _backfill(
    ranked: Sequence[NextRun],
    expected: Mapping[int, ExpectedDuration],
    state: ThermalState | None,
) -> NextRun:
    """Return the first run, or, while the phone cools for it, another that hardly delays it."""
    first = ranked[0]
    start_max_c = expected[first.run].start_max_c
    pause_s = state.wait_s(start_max_c) if state is not None else 0.0
    if state is None or pause_s < PAUSE_MIN_S:
        return first
    for other in ranked[1:]:
        run = expected[other.run]
        if state.wait_s(run.start_max_c) > 0.0:
            continue
        cooling_s = state.after(run.run_s, run.rise_c).wait_s(start_max_c)
        if run.run_s + cooling_s - pause_s <= DELAY_SHARE_MAX * run.run_s:
            return other
    return first
