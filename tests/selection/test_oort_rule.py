"""Our Oort beside an oracle written from its authors' rule, in many random states.

The oracle is plain Python and follows the description of SymbioticLab/Oort, oort/oort.py at f5fccf3
with the defaults of training/argParser.py at 25c8853, step by step.
"""

import copy
import math

import numpy as np
import pytest

from orchestrator.selection.oort_policy import OortPolicy
from orchestrator.selection.round_state import RoundRequest, RoundState, initial_round_state
from tests.selection.fleets import a_fleet

STATES = 20
Pool = tuple[list[int], list[float], int]  # members, weights, how many are drawn


def oracle_pools(state: RoundState, k: int, call: int, explore: float) -> tuple[Pool, Pool]:
    """Return the pool of exploitation and that of exploration for one call of the selector."""
    everyone = range(len(state.fleet))
    reward = {
        i: state.samples[i] if math.isnan(state.utility[i]) else state.utility[i] for i in everyone
    }
    duration = {i: float(state.profiled_duration_s[i]) for i in everyone}
    feasible = [int(i) for i in state.eligible]
    ordered = sorted(duration.values())
    preferred = ordered[min(int(len(ordered) * 10 / 100), len(ordered) - 1)]
    rewards = sorted(reward[i] for i in feasible if reward[i] > 0)
    clip = rewards[min(int(len(rewards) * 0.98), len(rewards) - 1)]
    lowest = rewards[0] * 0.999
    spread = max(rewards[-1] - lowest, 1e-4)

    def slow(i: int) -> float:
        return (preferred / max(1e-4, duration[i])) ** 2 if duration[i] > preferred else 1.0

    scores = {}
    for i in feasible:
        if not math.isnan(state.utility[i]):
            useful = (min(reward[i], clip) - lowest) / spread
            stale = math.sqrt(0.1 * math.log(call) / state.last_round[i])
            scores[i] = (useful + stale) * slow(i)
    explore = max(explore * 0.95, 0.2)
    exploited = min(int(k * (1 - explore)), len(scores))
    by_score = sorted(scores, key=lambda i: -scores[i])
    cut_off = scores[by_score[exploited]] * 0.7
    pool = [i for i in by_score if scores[i] >= cut_off]
    unexplored = [i for i in feasible if math.isnan(state.utility[i])]
    prior = {i: reward[i] * slow(i) for i in unexplored}
    explored = min(len(unexplored), k - exploited)
    window = sorted(prior, key=lambda i: -prior[i])[: int(5.0 * explored)]
    return (
        (pool, [scores[i] for i in pool], exploited),
        (window, [prior[i] for i in window], explored),
    )


def oracle_shares(pools: tuple[Pool, Pool], n: int, draws: int, seed: int) -> np.ndarray:
    """Draw from the pools without replacement, one member after the other."""
    rng, counts = np.random.default_rng(seed), np.zeros(n)
    for members, weights, wanted in pools:
        if not wanted:
            continue
        for _ in range(draws):
            left, weight = list(members), list(weights)
            for _ in range(wanted):
                at = min(
                    int(np.searchsorted(np.cumsum(weight), rng.random() * sum(weight))),
                    len(left) - 1,
                )
                counts[left[at]] += 1
                del left[at], weight[at]
    return counts / counts.sum()


def a_state(seed: int) -> tuple[RoundState, int, int]:
    """Draw a state in the middle of a training; return it with k and the number of the call."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 80))
    state = initial_round_state(a_fleet(n, cold_s=rng.lognormal(-4, 0.6, n)), 100)
    state.samples = rng.integers(32, 300, n).astype(float)
    has_update = rng.random(n) < 0.6
    state.utility[has_update] = rng.lognormal(4, 0.7, int(has_update.sum()))
    call = int(rng.integers(2, 18))
    state.round = call + 1
    state.last_round[has_update] = rng.integers(1, call + 1, int(has_update.sum()))
    state.last_duration_s[has_update] = rng.lognormal(0, 0.5, int(has_update.sum()))
    state.online = rng.random(n) < 0.9
    return state, int(rng.integers(4, 9)), call


def distance_to_rule(seed: int, draws: int) -> float:
    """Return the total variation between our choices and the oracle's."""
    state, k, call = a_state(seed)
    policy = OortPolicy()
    policy._calls = call - 1
    policy._explore = explore = max(0.9 * 0.95 ** (call - 1), 0.2)
    counts, rng = np.zeros(len(state.fleet)), np.random.default_rng(seed + 1000)
    for _ in range(draws):
        picks = copy.copy(policy).choose(state, RoundRequest(k=k), rng).picks
        assert len(set(picks.tolist())) == k
        counts[picks] += 1
    pools = oracle_pools(state, k, call, explore)
    expected = oracle_shares(pools, len(counts), max(200, draws // 5), seed + 2000)
    return float(np.abs(counts / counts.sum() - expected).sum() / 2)


def test_a_choice_is_one_that_the_rule_allows() -> None:
    for seed in range(3):
        state, k, call = a_state(seed)
        policy = OortPolicy()
        policy._calls, policy._explore = call - 1, max(0.9 * 0.95 ** (call - 1), 0.2)
        exploit, explore = oracle_pools(state, k, call, policy._explore)
        for draw in range(30):
            picks = set(
                copy.copy(policy)
                .choose(state, RoundRequest(k=k), np.random.default_rng(draw))
                .picks.tolist()
            )
            assert len(picks & set(exploit[0])) == exploit[2]
            assert len(picks & set(explore[0])) == explore[2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(STATES))
def test_choices_are_distributed_as_by_the_published_rule(seed: int) -> None:
    assert distance_to_rule(seed, 100_000) <= 0.05
