"""Policies tried on a virtual clock: real learning, the fleet's own figures, the same luck for all.

A seed decides the data, which measured phone each client is, how far its figures are from the
truth, and who is online when; every policy meets the same. So policies are compared in pairs, seed
by seed, and the interval is over seeds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.selection.advice import ROUND_S
from orchestrator.selection.fleet import Array, Fleet, Picks, cooled, warmed, work_s
from orchestrator.selection.learning import Task, accuracy, draw_task, train, within_reach
from orchestrator.selection.policies import POLICIES
from orchestrator.selection.situation import BATTERY_FLOOR, Situation, Want, first_look

ONLINE = 0.8
TARGET_SHARE = 0.92  # of what is within reach
CHARGE_MIN = 0.35
LUCK = 0.05  # by which a phone's time differs from round to round
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
    luck: Array  # round, client
    target: float


@dataclass(frozen=True)
class Outcome:
    """What one policy made of one seed."""

    policy: str
    seed: int
    reached: bool
    rounds: int  # until the target, or all
    time_s: float  # likewise: at least so long when it was not reached
    energy_j: float | None  # likewise; None where nobody knows what the phones draw
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
    work: float | None = None  # samples that a phone trains on for each of the small task's
    noise: float = 0.0  # by which the server's figures are wrong, beyond their own intervals


def simulate(
    fleet: Fleet, policies: Iterable[str], seeds: Iterable[int], plan: Plan
) -> list[Outcome]:
    """Try every policy on every seed."""
    names = list(policies)
    return [outcome for seed in seeds for outcome in try_all(fleet, names, seed, plan)]


def try_all(fleet: Fleet, policies: Iterable[str], seed: int, plan: Plan) -> list[Outcome]:
    """Try every policy on one seed."""
    world = make_world(fleet, seed, plan)
    return [run_once(name, seed, world, plan.want) for name in policies]


def make_world(fleet: Fleet, seed: int, plan: Plan) -> World:
    """Draw clients from the measured phones, and the truth around what was measured."""
    rng = np.random.default_rng([seed, 1])
    n, rounds = plan.clients, plan.want.rounds
    measured = fleet.of(rng.integers(0, len(fleet), n))
    # An interval of 95 % is about two standard deviations on either side.
    wrong = np.exp(rng.standard_normal(n) * measured.doubt / 2)
    misjudged = np.exp(rng.standard_normal((2, n)) * plan.noise)
    task = draw_task(n, seed)
    usual_s = float(np.median(task.samples * measured.cold_s))
    return World(
        task,
        task.samples * (ROUND_S / usual_s if plan.work is None else plan.work),
        measured.with_other(misjudged[0], misjudged[1]),
        measured.with_other(wrong),
        charge=rng.uniform(CHARGE_MIN, 1.0, n),
        online=rng.random((rounds, n)) < ONLINE,
        luck=np.exp(rng.standard_normal((rounds, n)) * LUCK),
        target=TARGET_SHARE * within_reach(task),
    )


def run_once(name: str, seed: int, world: World, want: Want) -> Outcome:
    """One policy, one seed, from untrained weights to the last round."""
    rng = np.random.default_rng([seed, 2])
    policy = POLICIES[name]()
    now = first_look(world.believed, world.samples)
    now.charge = world.charge.copy()
    weights, clock, energy, late = world.task.nothing, 0.0, 0.0, 0
    took: list[float] = []
    reached: tuple[int, float, float] | None = None
    for index in range(want.rounds):
        now.round, now.online = index + 1, world.online[index]
        picks = policy.choose(now, want, rng).picks
        seconds, spent, kept = _carry_out(world, now, picks, want)
        late += len(picks) - len(kept)
        if len(kept):
            weights, losses = train(world.task, weights, kept)
            now.utility[kept] = losses * now.samples[kept]
        now.last_round[picks], now.chosen[picks] = now.round, now.chosen[picks] + 1
        clock, energy = clock + seconds + GAP_S, energy + spent
        took.append(seconds)
        if reached is None and accuracy(world.task, weights) >= world.target:
            reached = (now.round, clock, energy)
    rounds, time_s, energy_j = reached or (want.rounds, clock, energy)
    return Outcome(
        name,
        seed,
        reached is not None,
        rounds,
        time_s,
        None if np.isnan(world.true.energy_j).any() else energy_j,
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
    true, samples, heat = world.true.of(picks), now.samples[picks], now.heat[picks]
    busy = work_s(true, samples, heat) * world.luck[now.round - 1, picks]
    now.took_s[picks] = busy
    now.off[picks] = busy / work_s(now.fleet.of(picks), samples, heat)
    joules = np.nan_to_num(true.energy_j * samples)
    ends = busy + want.link_s
    in_time = ends <= want.deadline_s if want.deadline_s is not None else np.ones(len(picks), bool)
    seconds = float(ends.max() if in_time.all() else want.deadline_s or 0.0)
    hotter = cooled(true, warmed(true, heat, busy), np.maximum(0.0, seconds - busy))
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


def renamed(outcomes: Iterable[Outcome], name: str) -> list[Outcome]:
    """The same outcomes as those of a contender of its own."""
    return [replace(outcome, policy=name) for outcome in outcomes]
