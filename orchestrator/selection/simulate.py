"""Simulates policies on a virtual clock: real training, the fleet's measured times and energies.

A seed decides the data, the measured phone behind each client, the errors of the estimates, and
which clients are online in each round; every policy gets the same. So policies are compared in
pairs, seed by seed, and the interval is over seeds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.recommend import ROUND_S
from orchestrator.selection.round_fleet import (
    Array,
    Picks,
    RoundFleet,
    heat_after_rest,
    heat_after_work,
    work_seconds,
)
from orchestrator.selection.round_state import (
    BATTERY_FLOOR,
    RoundRequest,
    RoundState,
    initial_round_state,
)
from orchestrator.selection.toy_training import (
    ToyTask,
    accuracy,
    best_accuracy,
    draw_toy_task,
    train,
)

ONLINE = 0.8  # probability that a client is online in a round
TARGET_SHARE = 0.92  # of the best accuracy
CHARGE_MIN = 0.35
ROUND_NOISE = 0.05  # relative deviation of a phone's time from round to round
GAP_S = 2.0  # between two rounds, for aggregation


@dataclass(frozen=True)
class SimulatedWorld:
    """What one seed decides, the same for every policy."""

    task: ToyTask
    samples: Array  # per round on the phone, which trains a larger model than the toy task
    estimated: RoundFleet
    actual: RoundFleet
    charge: Array
    online: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # round, client
    round_noise: Array  # round, client
    target: float


@dataclass(frozen=True)
class SimulationOutcome:
    """The result of one policy with one seed."""

    policy: str
    seed: int
    reached: bool
    rounds: int  # until the target is reached, or all
    time_s: float  # likewise: a lower bound if the target was not reached
    energy_j: float | None  # likewise; None if the phones' energy is unknown
    final_accuracy: float
    round_s: float
    unfairness: float  # Gini coefficient of how often each phone was chosen
    flat_batteries: int  # phones whose battery fell to the floor
    late_updates: int  # updates discarded because they missed the deadline


@dataclass(frozen=True)
class SimulationPlan:
    """What is simulated."""

    request: RoundRequest
    clients: int = 200
    samples_scale: float | None = None  # phone samples per sample of the toy task
    estimate_error: float = 0.0  # relative error of the server's estimates, beyond their intervals


def simulate(
    fleet: RoundFleet, policies: Iterable[str], seeds: Iterable[int], plan: SimulationPlan
) -> list[SimulationOutcome]:
    """Simulate every policy with every seed."""
    names = list(policies)
    return [outcome for seed in seeds for outcome in simulate_policies(fleet, names, seed, plan)]


def simulate_policies(
    fleet: RoundFleet, policies: Iterable[str], seed: int, plan: SimulationPlan
) -> list[SimulationOutcome]:
    """Simulate every policy with one seed."""
    world = draw_world(fleet, seed, plan)
    return [simulate_training(name, seed, world, plan.request) for name in policies]


def draw_world(fleet: RoundFleet, seed: int, plan: SimulationPlan) -> SimulatedWorld:
    """Draw clients from the measured phones, and their actual times around the measured ones."""
    rng = np.random.default_rng([seed, 1])
    n, rounds = plan.clients, plan.request.rounds
    measured = fleet.subset(rng.integers(0, len(fleet), n))
    # A 95 % interval is about two standard deviations on either side.
    actual_factor = np.exp(rng.standard_normal(n) * measured.uncertainty / 2)
    estimate_factor = np.exp(rng.standard_normal((2, n)) * plan.estimate_error)
    task = draw_toy_task(n, seed)
    usual_s = float(np.median(task.samples * measured.cold_s))
    scale = ROUND_S / usual_s if plan.samples_scale is None else plan.samples_scale
    return SimulatedWorld(
        task,
        task.samples * scale,
        measured.scale(estimate_factor[0], estimate_factor[1]),
        measured.scale(actual_factor),
        charge=rng.uniform(CHARGE_MIN, 1.0, n),
        online=rng.random((rounds, n)) < ONLINE,
        round_noise=np.exp(rng.standard_normal((rounds, n)) * ROUND_NOISE),
        target=TARGET_SHARE * best_accuracy(task),
    )


def simulate_training(
    name: str, seed: int, world: SimulatedWorld, request: RoundRequest
) -> SimulationOutcome:
    """Simulate one policy with one seed, from untrained weights to the last round."""
    rng = np.random.default_rng([seed, 2])
    policy = POLICIES[name]()
    state = initial_round_state(world.estimated, world.samples)
    state.charge = world.charge.copy()
    weights, clock, energy, late = world.task.initial_weights, 0.0, 0.0, 0
    durations: list[float] = []
    reached: tuple[int, float, float] | None = None
    for index in range(request.rounds):
        state.round, state.online = index + 1, world.online[index]
        picks = policy.choose(state, request, rng).picks
        seconds, joules, in_time = _run_round(world, state, picks, request)
        late += len(picks) - len(in_time)
        if len(in_time):
            weights, losses = train(world.task, weights, in_time)
            state.utility[in_time] = losses * state.samples[in_time]
        state.last_round[picks] = state.round
        state.times_chosen[picks] += 1
        clock, energy = clock + seconds + GAP_S, energy + joules
        durations.append(seconds)
        if reached is None and accuracy(world.task, weights) >= world.target:
            reached = (state.round, clock, energy)
    rounds, time_s, energy_j = reached or (request.rounds, clock, energy)
    return SimulationOutcome(
        name,
        seed,
        reached is not None,
        rounds,
        time_s,
        None if np.isnan(world.actual.energy_j).any() else energy_j,
        final_accuracy=accuracy(world.task, weights),
        round_s=float(np.mean(durations)),
        unfairness=gini(state.times_chosen),
        flat_batteries=int((state.charge <= BATTERY_FLOOR).sum()),
        late_updates=late,
    )


def _run_round(
    world: SimulatedWorld, state: RoundState, picks: Picks, request: RoundRequest
) -> tuple[float, float, Picks]:
    """Run a round: return its seconds, its joules, and the phones whose update came in time."""
    if not len(picks):
        return GAP_S, 0.0, picks
    actual, samples, heat = world.actual.subset(picks), state.samples[picks], state.heat[picks]
    busy = work_seconds(actual, samples, heat) * world.round_noise[state.round - 1, picks]
    state.last_duration_s[picks] = busy
    state.duration_ratio[picks] = busy / work_seconds(state.fleet.subset(picks), samples, heat)
    joules = np.nan_to_num(actual.energy_j * samples)
    ends = busy + request.link_s
    deadline_s = request.deadline_s
    in_time = ends <= deadline_s if deadline_s is not None else np.ones(len(picks), bool)
    seconds = float(ends.max() if in_time.all() else deadline_s or 0.0)
    after_work = heat_after_work(actual, heat, busy)
    after_round = heat_after_rest(actual, after_work, np.maximum(0.0, seconds - busy))
    state.heat = heat_after_rest(world.actual, state.heat, seconds)
    state.heat[picks] = after_round
    state.heat = heat_after_rest(world.actual, state.heat, GAP_S)
    state.charge[picks] -= np.nan_to_num(joules / actual.battery_j)
    return seconds, float(joules.sum()), picks[in_time]


def gini(times_chosen: Array) -> float:
    """Return 0 if all were chosen equally often, near 1 if one phone was always chosen."""
    if times_chosen.sum() == 0:
        return 0.0
    ordered = np.sort(times_chosen)
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * ordered.sum()))


def rename_policy(outcomes: Iterable[SimulationOutcome], name: str) -> list[SimulationOutcome]:
    """Return the same outcomes under another policy name."""
    return [replace(outcome, policy=name) for outcome in outcomes]
