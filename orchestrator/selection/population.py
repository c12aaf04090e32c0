"""A population of clients drawn from measured phones: models, units, links, availability.

The same seed gives the same population, bit for bit.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orchestrator.selection.client_estimate import pool_spread
from orchestrator.selection.client_types import Client
from orchestrator.selection.round_clock import Array
from orchestrator.selection.round_fleet import Mask, Picks, RoundFleet, build_round_fleet
from workloads.protocol.faults import InvalidRequest

DAY_S, HOUR_S = 86_400.0, 3600.0
TRACE_ROWS_MAX = 5_000_000
TRACE_COLUMNS = ("client", "start_s", "end_s")


class LinkDistribution(NamedTuple):
    """Log-normal speeds of both directions in kbit/s."""

    down_kbps: float  # medians
    up_kbps: float
    down_sigma: float = 0.0
    up_sigma: float = 0.0
    correlation: float = 0.0


# Fitted to the mean speeds of the 19 users in models/speed_distri.json of
# https://github.com/PKU-Chengxu/FLASH at 70e47eb.
LINKS = {"flash-wifi": LinkDistribution(41_400.0, 24_800.0, 0.484, 0.701, 0.448)}


@dataclass(frozen=True)
class Availability:
    """When clients can take part: windows by client, repeated after a period; NaN: none."""

    start_s: Array  # client, window; in ascending order
    end_s: Array
    charging: Mask
    period_s: float

    def __len__(self) -> int:
        return len(self.start_s)

    def present(self, time_s: float) -> tuple[Mask, Mask]:
        """Return who is available at a time, and who is charging."""
        now = time_s % self.period_s
        inside = (self.start_s <= now) & (now < self.end_s)
        charging = inside & self.charging
        return np.asarray(inside.any(axis=1)), np.asarray(charging.any(axis=1))

    def subset(self, picks: Picks) -> "Availability":
        """Return the windows of these clients."""
        return Availability(
            self.start_s[picks], self.end_s[picks], self.charging[picks], self.period_s
        )


def always_available(n: int) -> Availability:
    """Return clients that can always take part, on the charger."""
    return Availability(np.zeros((n, 1)), np.full((n, 1), DAY_S), np.ones((n, 1), bool), DAY_S)


def draw_day_rhythm(n: int, rng: np.random.Generator) -> Availability:
    """Draw a night on the charger, and for half of the clients an idle time in the afternoon.

    The hours are assumed: people charge their phones at night, and a phone takes part while idle.
    """
    start = np.clip(rng.normal(23.0, 1.0, n), 21.5, 26.0) * HOUR_S
    end = start + np.clip(rng.normal(7.5, 1.5, n), 4.0, 10.0) * HOUR_S
    idle = rng.uniform(12.5, 20.0, n) * HOUR_S
    is_idle = rng.random(n) < 0.5
    idle_s = np.clip(rng.lognormal(0.0, 0.5, n), 0.25, 1.4) * HOUR_S
    before_midnight = start < DAY_S
    starts = [
        np.where(before_midnight, 0.0, start - DAY_S),
        np.where(is_idle, idle, np.nan),
        np.where(before_midnight, start, np.nan),
    ]
    ends = [end - DAY_S, idle + idle_s, np.full(n, DAY_S)]
    known = ~np.isnan(np.column_stack(starts))
    return Availability(
        np.column_stack(starts),
        np.where(known, np.column_stack(ends), np.nan),
        known & np.array([True, False, True]),
        DAY_S,
    )


_CHARGING = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def read_availability(lines: Iterable[str]) -> Availability:
    """Read windows from a table with the columns client, start_s, end_s and perhaps charging."""
    windows: dict[str, list[tuple[float, float, bool]]] = {}
    reader = csv.DictReader(lines)
    if not set(TRACE_COLUMNS) <= set(reader.fieldnames or ()):
        raise InvalidRequest(f"the trace lacks a column; it needs {', '.join(TRACE_COLUMNS)}")
    for row in reader:
        if reader.line_num > TRACE_ROWS_MAX:
            raise InvalidRequest(f"the trace has more than {TRACE_ROWS_MAX} rows; shorten it")
        try:
            start_s, end_s = float(row["start_s"]), float(row["end_s"])
        except (TypeError, ValueError):
            start_s = end_s = math.nan
        if not 0 <= start_s < end_s < math.inf:
            raise InvalidRequest(
                f"line {reader.line_num} of the trace is not a window; "
                "write 0 <= start_s < end_s, in seconds"
            )
        charging = _CHARGING.get((row.get("charging") or "0").strip().lower())
        if charging is None:
            raise InvalidRequest(
                f"line {reader.line_num} of the trace has no valid charging; write 0 or 1"
            )
        windows.setdefault(row["client"], []).append((start_s, end_s, charging))
    if not windows:
        raise InvalidRequest("the trace has no window; write one row per window")
    return _pad_windows([sorted(each) for each in windows.values()])


def _pad_windows(windows: Sequence[Sequence[tuple[float, float, bool]]]) -> Availability:
    shape = (len(windows), max(len(each) for each in windows))
    start_s, end_s = np.full(shape, np.nan), np.full(shape, np.nan)
    charging = np.zeros(shape, dtype=bool)
    for index, each in enumerate(windows):
        for number, window in enumerate(each):
            start_s[index, number], end_s[index, number], charging[index, number] = window
    period_s = math.ceil(float(np.nanmax(end_s)) / DAY_S) * DAY_S
    return Availability(start_s, end_s, charging, period_s)


@dataclass(frozen=True)
class PopulationPlan:
    """How a population is drawn from the measured phones."""

    clients: int | None = None  # None: the measured phones themselves
    seed: int = 0
    model_shares: Mapping[str, float] | None = None  # None: equal for every measured phone
    links: LinkDistribution | None = None
    rhythm: bool = False  # availability with a rhythm of a day
    trace: Availability | None = None
    unit_spread: float | None = None  # between units of a model; None: that of measured siblings


@dataclass(frozen=True)
class Population:
    """Clients with the measured phone behind each of them; arrays are by client."""

    phones: tuple[Client, ...]
    phone_of: Picks
    speed_factor: Array  # time of this unit over that of its measured phone
    fleet: RoundFleet
    link_kbps: tuple[Array, Array] | None  # down, up; None: unknown
    availability: Availability

    def __len__(self) -> int:
        return len(self.phone_of)


def draw_population(phones: Sequence[Client], plan: PopulationPlan) -> Population:
    """Draw clients from measured phones."""
    rng = np.random.default_rng([plan.seed, 11])
    if plan.clients is None:
        phone_of = np.arange(len(phones))
        factor = np.ones(len(phones))
    else:
        phone_of = rng.permutation(_allocate(phones, plan.clients, plan.model_shares))
        spread = plan.unit_spread if plan.unit_spread is not None else sibling_spread(phones)
        factor = np.exp(rng.standard_normal(plan.clients) * (spread or 0.0))
    n = len(phone_of)
    links = _draw_links(plan.links, n, rng) if plan.links else None
    if plan.trace is not None:
        availability = plan.trace.subset(rng.permutation(n) % len(plan.trace))
    else:
        availability = draw_day_rhythm(n, rng) if plan.rhythm else always_available(n)
    fleet = build_round_fleet(phones).subset(phone_of).scale(factor)
    return Population(tuple(phones), phone_of, factor, fleet, links, availability)


def _draw_links(links: LinkDistribution, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    normal = rng.standard_normal((2, n))
    mixed = links.correlation * normal[0] + math.sqrt(1 - links.correlation**2) * normal[1]
    return (
        links.down_kbps * np.exp(links.down_sigma * normal[0]),
        links.up_kbps * np.exp(links.up_sigma * mixed),
    )


def _allocate(phones: Sequence[Client], n: int, model_shares: Mapping[str, float] | None) -> Picks:
    """Return the phone of every client: counts differ from share · n by less than one."""
    models = [phone.model for phone in phones]
    if model_shares is None:
        equal = np.full(len(phones), n / len(phones))
        return np.repeat(np.arange(len(phones)), _round_to_total(equal, n))
    unknown = sorted(set(model_shares) - set(models))
    if unknown:
        known = ", ".join(sorted(set(models)))
        raise InvalidRequest(f"no phone of model '{unknown[0]}' was measured; choose from {known}")
    shares = np.array(list(model_shares.values()))
    if shares.min() < 0:
        raise InvalidRequest("a share of the models is negative; make it 0 or more")
    if abs(shares.sum() - 1) > 1e-3:
        raise InvalidRequest(f"the shares of the models add up to {shares.sum():.4g}; make them 1")
    parts = []
    for model, count in zip(model_shares, _round_to_total(shares * n, n), strict=True):
        members = np.array([index for index, name in enumerate(models) if name == model])
        parts.append(members[np.arange(count) % len(members)])
    return np.concatenate(parts)


def _round_to_total(wanted: Array, n: int) -> Picks:
    counts = np.floor(wanted + 1e-9).astype(np.int64)
    largest = np.argsort(-(wanted - counts), kind="stable")
    counts[largest[: n - int(counts.sum())]] += 1
    return counts


def sibling_spread(phones: Iterable[Client]) -> float | None:
    """Return the relative deviation of the time between units of a model; None if unknown."""
    times: dict[str, list[float]] = {}
    for phone in phones:
        times.setdefault(phone.model, []).append(phone.cold_ms.value)
    spread = pool_spread(times.values())
    return spread.deviation if spread.degrees_of_freedom else None
