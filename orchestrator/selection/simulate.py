"""Simulates policies on a virtual clock: real training, the fleet's measured times and energies.

A seed decides the data, the measured phone behind each client, the errors of the estimates, who is
online, and whose update is lost; every policy gets the same. So policies are compared in pairs,
seed by seed, and the interval is over seeds. A policy sees only what a server would know: its own
estimate of every figure, the heat that follows from it, and what phones reported.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.client_types import Client
from orchestrator.selection.federated_task import (
    FederatedTask,
    accuracy,
    draw_task,
    train,
)
from orchestrator.selection.population import (
    HOUR_S,
    LINKS,
    LinkDistribution,
    Population,
    PopulationPlan,
    draw_population,
)
from orchestrator.selection.round_clock import (
    CONNECTED_W,
    Array,
    duty_heat,
    heat_after_rest,
    heat_after_work,
    link_cost,
    work_cost,
)
from orchestrator.selection.round_fleet import Picks, RoundFleet
from orchestrator.selection.round_state import (
    BATTERY_FLOOR,
    RoundRequest,
    RoundState,
    Selection,
    SelectionPolicy,
    initial_round_state,
)

CHARGE_MIN = 0.35
CHARGER_W = 7.5
ROUND_NOISE = 0.05  # relative deviation of a phone's time from round to round
GAP_S = 2.0  # between two rounds, for aggregation
WAIT_S = 60.0  # until the server asks again if no phone can take part
START_S = 18 * HOUR_S  # time of day of the first round
DrawTask = Callable[[Population, int], FederatedTask]  # clients, seed


@dataclass(frozen=True)
class SimulationPlan:
    """What is simulated: the training, the clients, and how a round is run."""

    k: int = 10
    clients: int = 200
    rounds: int = 300
    task: DrawTask | None = draw_task  # None: only the clock, nothing is trained
    target: float = 0.95  # share of the best possible accuracy
    over_selection: float | None = None  # phones asked over k; None: as the policy asks
    round_s: float = 30.0  # work of the median phone, while cool
    deadline_s: float | None = None  # of a round
    cutoff: float = 3.0  # of a round, times the median expected time of all clients
    model_mb: float = 1.0
    links: LinkDistribution = LINKS["flash-wifi"]
    rhythm: bool = False  # availability with a rhythm of a day
    online: float = 0.8  # probability that an available client is online in a round
    lost: float = 0.05  # probability that an update never arrives
    error: float = 0.0  # relative error of every figure that the server knows
    warm: bool = False  # the phones have trained before the first round


@dataclass(frozen=True)
class SimulatedWorld:
    """What one seed decides, the same for every policy."""

    seed: int
    plan: SimulationPlan
    task: FederatedTask | None
    population: Population
    samples: Array  # per round on the phone, which trains a larger model than the small task
    estimated: RoundFleet
    actual: RoundFleet
    link_s: Array
    link_j: Array
    estimated_link_s: Array
    charge: Array
    cutoff_s: float


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
    late_updates: int  # updates that were lost or came too late
    mean_heat: float  # of the chosen phones at the start of their rounds


@dataclass
class _Progress:
    """What has happened so far, and what only the simulation knows."""

    heat: Array
    charge: Array
    clock_s: float = START_S
    energy_j: float = 0.0
    late: int = 0
    asked: int = 0
    heat_sum: float = 0.0
    round_sum_s: float = 0.0
    seen_s: float = START_S  # when the server last looked


def simulate_policies(
    phones: Sequence[Client], policies: Sequence[str], seed: int, plan: SimulationPlan
) -> list[SimulationOutcome]:
    """Simulate every policy with one seed."""
    world = draw_world(phones, seed, plan)
    return [simulate_training(name, POLICIES[name], world) for name in policies]


def draw_world(phones: Sequence[Client], seed: int, plan: SimulationPlan) -> SimulatedWorld:
    """Draw clients from the measured phones, and their actual times around the measured ones."""
    rng = np.random.default_rng([seed, 1])
    population = draw_population(
        phones, PopulationPlan(plan.clients, seed, links=plan.links, rhythm=plan.rhythm)
    )
    measured, n = population.fleet, len(population)
    # A 95 % interval is about two standard deviations on either side.
    actual = measured.scale(np.exp(rng.standard_normal(n) * measured.uncertainty / 2))
    task = plan.task(population, seed) if plan.task else None
    samples = task.samples if task else rng.lognormal(0.0, 0.5, n)
    samples = samples * plan.round_s / float(np.median(samples * measured.cold_s))
    assert population.link_kbps is not None
    link_s, link_j = link_cost(plan.model_mb * 8000, *population.link_kbps)
    estimated = measured.misestimate(plan.error, rng) if plan.error else measured
    estimated_link_s = link_s * np.exp(rng.standard_normal(n) * plan.error)
    usual_s = float(np.median(work_cost(estimated, samples).seconds + estimated_link_s))
    return SimulatedWorld(
        *(seed, plan, task, population, samples, estimated, actual),
        *(link_s, link_j, estimated_link_s),
        charge=rng.uniform(CHARGE_MIN, 1.0, n),
        cutoff_s=plan.deadline_s or plan.cutoff * usual_s,
    )


def simulate_training(
    name: str,
    make_policy: Callable[[], SelectionPolicy],
    world: SimulatedWorld,
    stop_at_target: bool = False,
) -> SimulationOutcome:
    """Simulate one policy, from untrained weights to the last round or to the target."""
    plan, task = world.plan, world.task
    rng, policy = np.random.default_rng([world.seed, 2]), make_policy()
    asked = plan.over_selection or policy.over_selection
    k = math.ceil(asked * plan.k)
    request = RoundRequest(k, plan.deadline_s)
    state = initial_round_state(world.estimated, world.samples, world.estimated_link_s)
    progress = _Progress(np.zeros(len(world.samples)), world.charge.copy())
    if plan.warm:
        state.heat = duty_heat(world.estimated, world.samples, plan.round_s)
        progress.heat = duty_heat(world.actual, world.samples, plan.round_s)
    weights = task.initial_weights() if task else []
    reached: tuple[int, float, float] | None = None
    for index in range(plan.rounds):
        state.round = index + 1
        noise = np.random.default_rng([world.seed, 3, index])
        _show_clients(world, state, progress, noise)
        selection = policy.choose(state, request, rng)
        arrived = _run_round(world, state, progress, selection, noise)
        if task is None:
            state.utility[arrived] = world.samples[arrived]
        elif len(arrived):
            weights, losses = train(task, weights, arrived)
            error = np.exp(noise.standard_normal(len(arrived)) * plan.error)
            state.utility[arrived] = losses * task.samples[arrived] * error
        if (
            reached is None
            and task is not None
            and accuracy(task, weights) >= plan.target * task.best
        ):
            reached = (state.round, progress.clock_s - START_S, progress.energy_j)
            if stop_at_target:
                break
    ended = (state.round, progress.clock_s - START_S, progress.energy_j)
    rounds, time_s, energy_j = reached or ended
    return SimulationOutcome(
        name,
        world.seed,
        reached is not None,
        rounds,
        time_s,
        None if np.isnan(world.actual.energy_j).any() else energy_j,
        final_accuracy=accuracy(task, weights) if task else math.nan,
        round_s=progress.round_sum_s / state.round,
        unfairness=gini(state.times_chosen),
        flat_batteries=int((progress.charge <= BATTERY_FLOOR).sum()),
        late_updates=progress.late,
        mean_heat=progress.heat_sum / max(1, progress.asked),
    )


def _show_clients(
    world: SimulatedWorld, state: RoundState, progress: _Progress, noise: np.random.Generator
) -> None:
    """Tell the server who is online, and how well charged."""
    n = len(world.samples)
    present, charging = world.population.availability.present(progress.clock_s)
    state.online = present & (noise.random(n) < world.plan.online)
    share = CHARGER_W * (progress.clock_s - progress.seen_s) / world.actual.battery_j
    progress.charge += np.where(charging, np.nan_to_num(share), 0.0)
    progress.charge, progress.seen_s = np.minimum(1.0, progress.charge), progress.clock_s
    error = np.exp(noise.standard_normal(n) * world.plan.error) if world.plan.error else 1.0
    state.charge = np.minimum(1.0, progress.charge * error)


def _run_round(
    world: SimulatedWorld,
    state: RoundState,
    progress: _Progress,
    selection: Selection,
    noise: np.random.Generator,
) -> Picks:
    """Run a round: advance clock, heat and charge; return the phones whose update counts."""
    n, picks = len(world.samples), selection.picks
    slower, is_lost = np.exp(noise.standard_normal(n) * ROUND_NOISE), noise.random(n)
    if not len(picks):
        _rest(world, state, progress, WAIT_S)
        return picks
    actual, samples = world.actual.subset(picks), world.samples[picks]
    heat = progress.heat[picks]
    cost = work_cost(actual, samples, heat)
    busy_s = cost.seconds * slower[picks]
    ends_s = np.where(is_lost[picks] < world.plan.lost, np.inf, busy_s + world.link_s[picks])
    cutoff_s = min(selection.deadline_s or math.inf, world.cutoff_s)
    round_s = _round_end(ends_s, world.plan.k, cutoff_s)
    in_time = np.flatnonzero(ends_s <= round_s)
    in_time = in_time[np.argsort(ends_s[in_time], kind="stable")][: world.plan.k]
    worked_s = np.minimum(busy_s, round_s)
    waited_s = np.maximum(0.0, round_s - busy_s - world.link_s[picks])
    joules = (
        np.nan_to_num(cost.joules) * worked_s / busy_s
        + world.link_j[picks]
        + CONNECTED_W * waited_s
    )
    progress.charge[picks] -= np.nan_to_num(joules / actual.battery_j)
    progress.energy_j += float(joules.sum())
    progress.late += len(picks) - len(in_time)
    progress.asked += len(picks)
    progress.heat_sum += float(heat.sum())
    _report(world, state, picks, busy_s, in_time, noise)
    _rest(world, state, progress, round_s, (picks, worked_s))
    return picks[in_time]


def _round_end(ends_s: Array, k: int, cutoff_s: float) -> float:
    """Return when the k-th update has arrived, or all that were asked; at most the cut-off."""
    wanted = min(k, len(ends_s))
    return min(float(np.partition(ends_s, wanted - 1)[wanted - 1]), cutoff_s)


def _report(
    world: SimulatedWorld,
    state: RoundState,
    picks: Picks,
    busy_s: Array,
    in_time: Picks,
    noise: np.random.Generator,
) -> None:
    """Store what the phones of a round reported."""
    arrived = picks[in_time]
    reported_s = busy_s[in_time] * np.exp(noise.standard_normal(len(arrived)) * world.plan.error)
    state.last_duration_s[arrived] = reported_s + state.link_s[arrived]
    state.last_round[arrived] = state.round
    state.times_chosen[picks] += 1


def _rest(
    world: SimulatedWorld,
    state: RoundState,
    progress: _Progress,
    round_s: float,
    worked: tuple[Picks, Array] | None = None,
) -> None:
    """Advance the clock; the phones that worked heat up before they rest, as the server assumes."""
    for fleet, owner in ((world.actual, progress), (world.estimated, state)):
        heat = heat_after_rest(fleet, owner.heat, round_s)
        if worked is not None:
            picks, busy_s = worked
            some = fleet.subset(picks)
            hot = heat_after_work(some, owner.heat[picks], busy_s)
            heat[picks] = heat_after_rest(some, hot, round_s - busy_s)
        owner.heat = heat_after_rest(fleet, heat, GAP_S)
    progress.clock_s += round_s + GAP_S
    progress.round_sum_s += round_s


def gini(times_chosen: Array) -> float:
    """Return 0 if all were chosen equally often, near 1 if one phone was always chosen."""
    if times_chosen.sum() == 0:
        return 0.0
    ordered = np.sort(times_chosen)
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * ordered.sum()))
