"""One round's choice, explained: who, why, how long it will take, and whom to measure next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.selection.client import Census, Client
from orchestrator.selection.fleet import MEMORY_SHARE, Array, Fleet, line_up, warmed
from orchestrator.selection.policies import POLICIES
from orchestrator.selection.situation import Situation, Want, first_look

DRAWS = 2000
LEVEL = 0.95
ROUND_S = 30.0  # a usual round's work on the median phone, unless the work is said
WORTH = 0.001  # of a round is the least gain for which a phone is worth being measured


@dataclass(frozen=True)
class State:
    """How a phone is at this moment."""

    temp_c: float | None = None
    charge: float | None = None
    away: bool = False


@dataclass(frozen=True)
class Work:
    """What is asked of every phone, and what they have done before."""

    samples: float | None = None  # of a round; None is half a minute of the median phone
    after_s: float = 0.0  # of training without a pause until now
    now: Mapping[str, State] | None = None  # by phone; None is cool, charged and there


@dataclass(frozen=True)
class Expected:
    """A figure of the round, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Chosen:
    """A phone, and why it."""

    client: Client
    seconds: float
    why: str


@dataclass(frozen=True)
class Advice:
    """What to do next."""

    policy: str
    samples: float
    chosen: tuple[Chosen, ...]
    refused: tuple[tuple[str, str], ...]  # phone, why
    round_s: Expected | None
    energy_j: Expected | None
    measure_next: tuple[str, str] | None  # phone, why


def advise(census: Census, policy: str, want: Want, work: Work, seed: int = 0) -> Advice:
    """Choose for one round of so many samples on each phone."""
    clients = census.clients
    fleet = line_up(clients)
    samples = work.samples or float(np.ceil(ROUND_S / np.median(fleet.cold_s)))
    now = _situation(clients, fleet, samples, work)
    choice = POLICIES[policy]().choose(now, want, np.random.default_rng(seed))
    picks = [int(i) for i in choice.picks]
    seconds = now.expected_s
    return Advice(
        policy,
        samples,
        tuple(
            Chosen(clients[i], float(seconds[i]), why)
            for i, why in zip(picks, choice.why, strict=True)
        ),
        (*census.left_out, *_unable(clients, now)),
        _round_time(now, picks, want.link_s),
        _energy([clients[i] for i in picks], samples),
        measure_next(clients, now, want.k),
    )


def _situation(clients: Sequence[Client], fleet: Fleet, samples: float, work: Work) -> Situation:
    now = first_look(fleet, samples)
    now.heat = warmed(fleet, now.heat, work.after_s)
    if work.now is None:
        return now
    for at, client in enumerate(clients):
        state = work.now.get(client.phone, State(away=True))
        now.online[at] = not state.away
        now.charge[at] = 1.0 if state.charge is None else state.charge
        if state.temp_c is not None and client.band_c is not None:
            cool, hot = client.band_c
            now.heat[at] = np.clip((state.temp_c - cool) / (hot - cool), 0.0, 1.0)
    return now


def _unable(clients: Sequence[Client], now: Situation) -> list[tuple[str, str]]:
    able = set(now.eligible.tolist())
    return [
        (client.phone, _why_not(client, now, at))
        for at, client in enumerate(clients)
        if at not in able
    ]


def _why_not(client: Client, now: Situation, at: int) -> str:
    if not now.fleet.fits[at]:
        share = f"more than {MEMORY_SHARE:.0%} of its {client.ram_mb} MB"
        return f"{client.peak_mb:.0f} MB is {share}"
    if not now.online[at]:
        return "it is not there now"
    return f"its battery is at {now.charge[at]:.0%}"


def _round_time(now: Situation, picks: Sequence[int], link_s: float) -> Expected | None:
    """A synchronous round lasts as long as its slowest phone."""
    if not picks:
        return None
    luck = np.random.default_rng(0).standard_normal((DRAWS, len(picks)))
    drawn = now.expected_s[picks] * np.exp(luck * now.doubt[picks] / 2)
    return _expected(drawn.max(axis=1) + link_s)


def _energy(chosen: Sequence[Client], samples: float) -> Expected | None:
    known = [client.energy_mj for client in chosen if client.energy_mj is not None]
    if not known or len(known) < len(chosen):
        return None
    luck = np.random.default_rng(1).standard_normal((DRAWS, len(known)))
    values = np.array([figure.value for figure in known])
    doubts = np.array([figure.doubt for figure in known])
    drawn = values * np.exp(luck * doubts / 2) * samples / 1000
    return _expected(drawn.sum(axis=1))


def _expected(drawn: Array) -> Expected:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Expected(float(np.median(drawn)), float(low), float(high))


def measure_next(clients: Sequence[Client], now: Situation, k: int) -> tuple[str, str] | None:
    """The phone of which knowing more would shorten a round of the k quickest most."""
    able = now.eligible
    unheated = [clients[i].phone for i in able if clients[i].sustained_ms is None]
    if unheated:
        return unheated[0], "nobody knows what heat does to it"
    if len(able) <= k:
        return None
    middle = now.expected_s[able]
    gain = expected_gain(middle, now.doubt[able] / 2, k)
    most = int(gain.argmax())
    if gain[most] <= WORTH * np.sort(middle)[k - 1]:
        return None
    client, doubt = clients[able[most]], now.doubt[able[most]]
    known = f"its time is known to {doubt:.0%}; knowing it would save {gain[most]:.2g} s a round"
    return client.phone, known


def expected_gain(middle: Array, sigma: Array, k: int) -> Array:
    """What a round of the k quickest would gain by knowing one phone's time, on average.

    A time is log-normal around its middle. Whoever is among the k quickest is replaced if it turns
    out slower than the best of the others; whoever is not comes in if it turns out quicker than
    the slowest of them, and then the round lasts as long as it or the slowest that stays.
    """
    ordered = np.sort(middle)
    inside = np.argsort(np.argsort(middle, kind="stable"), kind="stable") < k
    slowest, best_out = ordered[k - 1], ordered[k]
    stays = ordered[k - 2] if k > 1 else 0.0
    return np.where(
        inside,
        _beyond(middle, sigma, best_out),
        _below(middle, sigma, slowest) - _below(middle, sigma, stays),
    )


def _beyond(middle: Array, sigma: Array, limit: float) -> Array:
    """How far a log-normal time lies above a limit, on average."""
    return _below(middle, sigma, limit) + middle * np.exp(sigma**2 / 2) - limit


def _below(middle: Array, sigma: Array, limit: float) -> Array:
    """How far a log-normal time lies below a limit, on average."""
    from scipy.special import ndtr

    if limit <= 0:
        return np.zeros(len(middle))
    spread = np.maximum(sigma, 1e-9)
    ahead = np.log(limit / middle) / spread
    return np.asarray(limit * ndtr(ahead) - middle * np.exp(sigma**2 / 2) * ndtr(ahead - spread))
