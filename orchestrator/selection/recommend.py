"""Recommends the phones of one round, with reasons, duration, energy, and what to measure next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.client_types import Client, ClientExclusion, ClientTable, ExcludedClient
from orchestrator.selection.round_clock import Array, duty_heat, heat_after_work
from orchestrator.selection.round_fleet import MEMORY_SHARE, RoundFleet, build_round_fleet
from orchestrator.selection.round_state import RoundRequest, RoundState, initial_round_state

DRAWS = 2000
LEVEL = 0.95
ROUND_S = 30.0  # default work of a round on the median phone
GAIN_MIN = 0.001  # of a round: a smaller gain is not worth a measurement


@dataclass(frozen=True)
class ClientState:
    """The present state of a phone."""

    temp_c: float | None = None
    charge: float | None = None
    offline: bool = False


@dataclass(frozen=True)
class LocalWork:
    """The work of each phone in a round, and the state in which the phones start."""

    samples: float | None = None  # per round; None: as many as the median phone does in round_s
    round_s: float = ROUND_S  # of work for the median phone, while cool
    rest_s: float | None = None  # pause between two rounds of a phone; None: until it is cool
    heated_for_s: float = 0.0  # time of training without a pause before the round
    link_s: float = 0.0  # to fetch the model and send the update
    client_states: Mapping[str, ClientState] | None = None  # by phone; None: cool, charged, online

    def round_samples(self, fleet: RoundFleet) -> float:
        """Return the samples per round."""
        return self.samples or float(np.ceil(self.round_s / np.median(fleet.cold_s)))


@dataclass(frozen=True)
class RoundEstimate:
    """A value of the round, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ChosenClient:
    """A chosen phone, and why."""

    client: Client
    seconds: float
    reason: str


class MeasurementReason(StrEnum):
    """Why a phone should be measured."""

    NO_HOT_RUN = "no_hot_run"
    SAVES_TIME = "saves_time"


@dataclass(frozen=True)
class MeasurementSuggestion:
    """The phone whose measurement would help most, and why."""

    phone: str
    reason: MeasurementReason
    uncertainty: float = 0.0  # relative upper margin of its time
    saving_s: float = 0.0  # expected, per round

    @property
    def text(self) -> str:
        """The reason as text."""
        if self.reason is MeasurementReason.NO_HOT_RUN:
            return "it has no hot run, so its slowdown is unknown"
        margin = f"its time may be up to {self.uncertainty:.0%} longer than estimated"
        return f"{margin}; measuring it would save {self.saving_s:.2g} s per round"


@dataclass(frozen=True)
class Recommendation:
    """The recommended phones of a round."""

    policy: str
    samples: float
    chosen: tuple[ChosenClient, ...]
    excluded: tuple[ExcludedClient, ...]
    round_s: RoundEstimate | None
    energy_j: RoundEstimate | None
    measure_next: MeasurementSuggestion | None


def recommend_clients(
    table: ClientTable, policy: str, request: RoundRequest, work: LocalWork, seed: int = 0
) -> Recommendation:
    """Choose phones for one round."""
    clients = table.clients
    fleet = build_round_fleet(clients)
    samples = work.round_samples(fleet)
    state = _round_state(clients, fleet, samples, work)
    at_present = replace(state, fleet=_present_fleet(state))
    selection = POLICIES[policy]().choose(at_present, request, np.random.default_rng(seed))
    picks = [int(index) for index in selection.picks]
    seconds = state.expected_s
    return Recommendation(
        policy,
        samples,
        tuple(
            ChosenClient(clients[index], float(seconds[index]), reason)
            for index, reason in zip(picks, selection.reasons, strict=True)
        ),
        (*table.left_out, *_ineligible_clients(clients, state)),
        _round_time(state, picks),
        _round_energy([clients[index] for index in picks], samples),
        suggest_measurement(clients, state, request.k),
    )


def _round_state(
    clients: Sequence[Client], fleet: RoundFleet, samples: float, work: LocalWork
) -> RoundState:
    state = initial_round_state(fleet, samples, work.link_s)
    state.heat = heat_after_work(fleet, duty_heat(fleet, samples, work.rest_s), work.heated_for_s)
    if work.client_states is None:
        return state
    for index, client in enumerate(clients):
        present = work.client_states.get(client.phone, ClientState(offline=True))
        state.online[index] = not present.offline
        state.charge[index] = 1.0 if present.charge is None else present.charge
        if present.temp_c is not None and client.temp_range_c is not None:
            cool, hot = client.temp_range_c
            state.heat[index] = np.clip((present.temp_c - cool) / (hot - cool), 0.0, 1.0)
    return state


def _present_fleet(state: RoundState) -> RoundFleet:
    """Return the phones with the speed that they have in this round, at their present heat."""
    fleet, present_s = state.fleet, state.expected_s / state.samples
    sustained_s = fleet.cold_s * fleet.slowdown
    return replace(fleet, cold_s=present_s, slowdown=np.maximum(1.0, sustained_s / present_s))


def _ineligible_clients(clients: Sequence[Client], state: RoundState) -> list[ExcludedClient]:
    eligible = set(state.eligible.tolist())
    return [
        _excluded_client(client, state, index)
        for index, client in enumerate(clients)
        if index not in eligible
    ]


def _excluded_client(client: Client, state: RoundState, index: int) -> ExcludedClient:
    if not state.fleet.fits[index]:
        share = f"more than {MEMORY_SHARE:.0%} of its {client.ram_mb} MB"
        text = f"it needs {client.peak_mb:.0f} MB, {share}"
        return ExcludedClient(client.phone, ClientExclusion.TOO_LITTLE_MEMORY, text)
    if not state.online[index]:
        return ExcludedClient(client.phone, ClientExclusion.OFFLINE, "it is offline")
    text = f"its battery is at {state.charge[index]:.0%}"
    return ExcludedClient(client.phone, ClientExclusion.BATTERY_LOW, text)


def _round_time(state: RoundState, picks: Sequence[int]) -> RoundEstimate | None:
    """Estimate the time of a synchronous round, which lasts as long as its slowest phone."""
    if not picks:
        return None
    normal = np.random.default_rng(0).standard_normal((DRAWS, len(picks)))
    drawn = state.expected_s[picks] * np.exp(normal * state.uncertainty[picks] / 2)
    return _interval((drawn + state.link_s[picks]).max(axis=1))


def _round_energy(chosen: Sequence[Client], samples: float) -> RoundEstimate | None:
    known = [client.energy_mj for client in chosen if client.energy_mj is not None]
    if not known or len(known) < len(chosen):
        return None
    normal = np.random.default_rng(1).standard_normal((DRAWS, len(known)))
    values = np.array([estimate.value for estimate in known])
    uncertainties = np.array([estimate.uncertainty for estimate in known])
    drawn = values * np.exp(normal * uncertainties / 2) * samples / 1000
    return _interval(drawn.sum(axis=1))


def _interval(drawn: Array) -> RoundEstimate:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return RoundEstimate(float(np.median(drawn)), float(low), float(high))


def suggest_measurement(
    clients: Sequence[Client], state: RoundState, k: int
) -> MeasurementSuggestion | None:
    """Return the phone whose measurement would shorten a round of the k fastest most."""
    eligible = state.eligible
    unheated = [clients[index].phone for index in eligible if clients[index].sustained_ms is None]
    if unheated:
        return MeasurementSuggestion(unheated[0], MeasurementReason.NO_HOT_RUN)
    if len(eligible) <= k:
        return None
    expected_s = state.expected_s[eligible]
    gain = expected_gain(expected_s, state.uncertainty[eligible] / 2, k)
    best = int(gain.argmax())
    if gain[best] <= GAIN_MIN * np.sort(expected_s)[k - 1]:
        return None
    index = eligible[best]
    return MeasurementSuggestion(
        clients[index].phone,
        MeasurementReason.SAVES_TIME,
        float(state.uncertainty[index]),
        float(gain[best]),
    )


def expected_gain(middle: Array, sigma: Array, k: int) -> Array:
    """Return how much a round of the k fastest gains on average by knowing one phone's time.

    A time is log-normal around its middle. A phone among the k fastest is replaced if it turns out
    slower than the best of the others. Another phone is taken if it turns out faster than the
    slowest of the k; the round then lasts as long as that phone or the slowest that stays.
    """
    ordered = np.sort(middle)
    inside = np.argsort(np.argsort(middle, kind="stable"), kind="stable") < k
    slowest, best_outside = ordered[k - 1], ordered[k]
    stays = ordered[k - 2] if k > 1 else 0.0
    return np.where(
        inside,
        _mean_above(middle, sigma, best_outside),
        _mean_below(middle, sigma, slowest) - _mean_below(middle, sigma, stays),
    )


def _mean_above(middle: Array, sigma: Array, limit: float) -> Array:
    """Return the mean distance of a log-normal time above a limit."""
    return _mean_below(middle, sigma, limit) + middle * np.exp(sigma**2 / 2) - limit


def _mean_below(middle: Array, sigma: Array, limit: float) -> Array:
    """Return the mean distance of a log-normal time below a limit."""
    from scipy.special import ndtr

    if limit <= 0:
        return np.zeros(len(middle))
    spread = np.maximum(sigma, 1e-9)
    ahead = np.log(limit / middle) / spread
    return np.asarray(limit * ndtr(ahead) - middle * np.exp(sigma**2 / 2) * ndtr(ahead - spread))
