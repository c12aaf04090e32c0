"""One round's choice, explained: who, why, how long it will take, and whom to measure next."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.selection.client import Census, Client
from orchestrator.selection.fleet import Array, Fleet, line_up, work_s
from orchestrator.selection.policies import POLICIES, Want, first_look

DRAWS = 2000
LEVEL = 0.95


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
    chosen: tuple[Chosen, ...]
    refused: tuple[tuple[str, str], ...]  # phone, why
    round_s: Expected | None
    energy_j: Expected | None
    measure_next: tuple[str, str] | None  # phone, why


@dataclass(frozen=True)
class Cohort:
    """Who is chosen out of whom, as indices."""

    fleet: Fleet
    picks: tuple[int, ...]
    samples: float


def advise(census: Census, policy: str, want: Want, samples: float, seed: int = 0) -> Advice:
    """Choose for one round of so many samples on each phone."""
    clients = census.clients
    fleet = line_up(clients)
    now = first_look(fleet, samples)
    choice = POLICIES[policy]().choose(now, want, np.random.default_rng(seed))
    cohort = Cohort(fleet, tuple(int(i) for i in choice.picks), samples)
    seconds = now.expected_s
    return Advice(
        policy,
        tuple(
            Chosen(clients[i], float(seconds[i]), why)
            for i, why in zip(cohort.picks, choice.why, strict=True)
        ),
        (*census.left_out, *_too_small(clients, fleet)),
        _round_time(cohort, want.link_s),
        _energy(clients, cohort),
        measure_next(clients, cohort),
    )


def _too_small(clients: Sequence[Client], fleet: Fleet) -> list[tuple[str, str]]:
    return [
        (client.phone, f"{client.peak_mb:.0f} MB is more than half of its {client.ram_mb} MB")
        for client, fits in zip(clients, fleet.fits, strict=True)
        if not fits
    ]


def _times(cohort: Cohort) -> Array:
    """Drawn times of a round for every phone of the fleet: draw, phone."""
    fleet = cohort.fleet
    n = len(fleet)
    expected = work_s(fleet, np.full(n, cohort.samples), np.zeros(n))
    luck = np.random.default_rng(0).standard_normal((DRAWS, n))
    return np.asarray(expected * np.exp(luck * fleet.doubt / 2))


def _round_time(cohort: Cohort, link_s: float) -> Expected | None:
    """A synchronous round lasts as long as its slowest phone."""
    if not cohort.picks:
        return None
    return _expected(_times(cohort)[:, cohort.picks].max(axis=1) + link_s)


def _energy(clients: Sequence[Client], cohort: Cohort) -> Expected | None:
    figures = [clients[i].energy_mj for i in cohort.picks]
    if not figures or any(figure is None for figure in figures):
        return None
    known = [figure for figure in figures if figure is not None]
    luck = np.random.default_rng(1).standard_normal((DRAWS, len(known)))
    values = np.array([figure.value for figure in known])
    spreads = np.array([figure.spread for figure in known])
    drawn = values * np.exp(luck * spreads / 2) * cohort.samples / 1000
    return _expected(drawn.sum(axis=1))


def _expected(drawn: Array) -> Expected:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Expected(float(np.median(drawn)), float(low), float(high))


def measure_next(clients: Sequence[Client], cohort: Cohort) -> tuple[str, str] | None:
    """The phone of which knowing more would shorten a round most.

    For a phone that was chosen: how much its slowest draws cost beyond the first that was not.
    For one that was not: how much its quickest draws would save.
    """
    unheated = [client for client in clients if client.sustained_ms is None]
    if unheated:
        return unheated[0].phone, "nobody knows what heat does to it"
    if len(clients) <= len(cohort.picks):
        return None
    times = _times(cohort)
    inside = np.zeros(len(clients), dtype=bool)
    inside[list(cohort.picks)] = True
    able = cohort.fleet.fits
    middle = np.median(times, axis=0)
    if not (able & ~inside).any() or not inside.any():
        return None
    slowest_in, best_out = middle[inside].max(), middle[able & ~inside].min()
    gain = np.where(
        inside,
        np.maximum(0.0, times - best_out).mean(axis=0),
        np.maximum(0.0, slowest_in - times).mean(axis=0),
    )
    gain[~able] = 0.0
    most = int(gain.argmax())
    if gain[most] <= 0.001 * slowest_in:
        return None
    doubt = cohort.fleet.doubt[most]
    why = f"its time is known to {doubt:.0%}; knowing it would save {gain[most]:.2g} s a round"
    return clients[most].phone, why
