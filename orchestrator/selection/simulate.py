"""Policies tried on a virtual clock: real learning, the fleet's own figures, the same luck for all.

A seed decides the data, which measured phone each client is, how far its figures are from the
truth, and who is online when; every policy meets the same. So policies are compared in pairs, seed
by seed, and the interval is over seeds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.selection.fleet import Array, Fleet, Picks, cooled, warmed, work_s
from orchestrator.selection.learning import Task, accuracy, draw_task, train, within_reach
from orchestrator.selection.policies import BATTERY_FLOOR, POLICIES, Situation, Want, first_look

ONLINE = 0.8
TARGET_SHARE = 0.92  # of what is within reach
CHARGE_MIN = 0.35
RESAMPLES = 4000
LEVEL = 0.95
ROUND_S = 30.0  # a usual round's work on the median phone, unless the work is said
GAP_S = 2.0  # between two rounds: aggregation, and what the server does


@dataclass(frozen=True)
class World:
    """One seed's share of chance, the same for every policy."""

    task: Task
    samples: Array  # of a round on the phone, which trains something larger than the task
    believed: Fleet
    true: Fleet
    charge: Array
    online: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # round, client
    target: float


@dataclass(frozen=True)
class Outcome:
    """What one policy made of one seed."""

    policy: str
    seed: int
    reached: bool
    rounds: int  # until the target, or all
    time_s: float  # likewise: at least so long when it was not reached
    energy_j: float
    final_accuracy: float
    round_s: float
    unfairness: float  # Gini coefficient of how often each phone served
    flat: int  # phones whose battery fell to the floor
    late: int  # updates thrown away because they came after the deadline


@dataclass(frozen=True)
class Plan:
    """What is simulated."""

    want: Want
    clients: int = 200
    rounds: int = 120
    work: float | None = None  # samples that a phone trains on for each of the small task's
    noise: float = 0.0  # by which the server's figures are wrong, beyond their own intervals


def simulate(
    fleet: Fleet, policies: Iterable[str], seeds: Iterable[int], plan: Plan
) -> list[Outcome]:
    """Try every policy on every seed."""
    return [
        run_once(name, seed, world, plan)
        for seed in seeds
        for world in [make_world(fleet, seed, plan)]
        for name in policies
    ]


def make_world(fleet: Fleet, seed: int, plan: Plan) -> World:
    """Draw clients from the measured phones, and the truth around what was measured."""
    rng = np.random.default_rng([seed, 1])
    believed = fleet.of(rng.integers(0, len(fleet), plan.clients))
    # An interval of 95 % is about two standard deviations on either side.
    wrong = np.exp(rng.standard_normal(plan.clients) * believed.doubt / 2)
    noisy = np.exp(rng.standard_normal(plan.clients) * plan.noise)
    task = draw_task(plan.clients, seed)
    usual_s = float(np.median(task.samples * believed.cold_s))
    return World(
        task,
        task.samples * (ROUND_S / usual_s if plan.work is None else plan.work),
        believed.with_times(noisy),
        believed.with_times(wrong),
        charge=rng.uniform(CHARGE_MIN, 1.0, plan.clients),
        online=rng.random((plan.rounds, plan.clients)) < ONLINE,
        target=TARGET_SHARE * within_reach(task),
    )


def run_once(name: str, seed: int, world: World, plan: Plan) -> Outcome:
    """One policy, one seed, from untrained weights to the last round."""
    rng = np.random.default_rng([seed, 2])
    policy = POLICIES[name]()
    now = first_look(world.believed, 0)
    now.samples, now.charge = world.samples, world.charge.copy()
    weights, clock, energy, late = world.task.nothing, 0.0, 0.0, 0
    took: list[float] = []
    reached: tuple[int, float, float] | None = None
    for index in range(plan.rounds):
        now.round, now.online = index + 1, world.online[index]
        picks = policy.choose(now, plan.want, rng).picks
        seconds, spent, kept = _carry_out(world, now, picks, plan.want)
        late += len(picks) - len(kept)
        if len(kept):
            weights, losses = train(world.task, weights, kept)
            now.utility[kept] = losses * now.samples[kept]
        now.last_round[picks], now.chosen[picks] = now.round, now.chosen[picks] + 1
        clock, energy = clock + seconds + GAP_S, energy + spent
        took.append(seconds)
        if reached is None and accuracy(world.task, weights) >= world.target:
            reached = (now.round, clock, energy)
    rounds, time_s, energy_j = reached or (plan.rounds, clock, energy)
    return Outcome(
        name,
        seed,
        reached is not None,
        rounds,
        time_s,
        energy_j,
        final_accuracy=accuracy(world.task, weights),
        round_s=float(np.mean(took)),
        unfairness=gini(now.chosen),
        flat=int((now.charge <= BATTERY_FLOOR).sum()),
        late=late,
    )


def _carry_out(
    world: World, now: Situation, picks: Picks, want: Want
) -> tuple[float, float, Picks]:
    """Let the phones do it: seconds of the round, joules, and whose update came in time."""
    if not len(picks):
        return GAP_S, 0.0, picks
    true = world.true.of(picks)
    busy = work_s(true, now.samples[picks], now.heat[picks])
    joules = np.nan_to_num(true.energy_j * now.samples[picks])
    ends = busy + want.link_s
    in_time = ends <= want.deadline_s if want.deadline_s is not None else np.ones(len(picks), bool)
    seconds = float(ends.max() if in_time.all() else want.deadline_s or 0.0)
    hotter = cooled(true, warmed(true, now.heat[picks], busy), np.maximum(0.0, seconds - busy))
    now.heat = cooled(world.true, now.heat, seconds)
    now.heat[picks] = hotter
    now.heat = cooled(world.true, now.heat, GAP_S)
    now.charge[picks] -= np.nan_to_num(joules / true.battery_j)
    return seconds, float(joules.sum()), picks[in_time]


def gini(served: Array) -> float:
    """0 when all served equally often, near 1 when one did everything."""
    if served.sum() == 0:
        return 0.0
    ordered = np.sort(served)
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * ordered.sum()))


@dataclass(frozen=True)
class Ratio:
    """A policy against random, paired by seed: below 1 it needs less."""

    value: float
    low: float
    high: float
    unreached: int  # seeds on which one of the two never got there: the ratio is only a bound


def against_random(outcomes: Sequence[Outcome], policy: str, figure: str) -> Ratio:
    """The geometric mean of the ratios, with a bootstrap interval over seeds."""
    base = {o.seed: o for o in outcomes if o.policy == "random"}
    pairs = [(o, base[o.seed]) for o in outcomes if o.policy == policy]
    logs = np.log([getattr(a, figure) / max(getattr(b, figure), 1e-12) for a, b in pairs])
    draws = np.random.default_rng(0).integers(0, len(logs), (RESAMPLES, len(logs)))
    means = logs[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    unreached = sum(not (a.reached and b.reached) for a, b in pairs)
    return Ratio(float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high)), unreached)
