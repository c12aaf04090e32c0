"""The clock of a federated round: how long, and how many joules, a phone needs for its samples.

A phone that works slows down towards its sustained speed; one that rests recovers:

    heat approaches 1 while busy and 0 while idle, with the phone's own time constant
    time per sample = cold · (1 + heat · (slowdown - 1))

`farm select`, the simulation and every export use these functions. Exports contain a copy of this
file, so it needs nothing but numpy. Columns are by phone: thousands of phones are one vector.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Power of Wi-Fi in W per Mbit/s and W while sending, receiving and connected; measured on phones
# by Huang et al., "A close examination of performance and power characteristics of 4G LTE
# networks", MobiSys 2012, doi 10.1145/2307636.2307658, table 4.
UP_W_PER_MBPS, DOWN_W_PER_MBPS, CONNECTED_W = 0.28317, 0.13701, 0.13286
SETTLED, CYCLES_MAX = 1e-9, 2000


@dataclass(frozen=True)
class WorkCost:
    """What some samples cost, by phone."""

    seconds: Array
    joules: Array  # NaN if the energy per sample is unknown
    heat: Array  # after the work and the pause


def work_cost(
    phones: Any, samples: ArrayLike, heat: ArrayLike = 0.0, rest_s: ArrayLike = 0.0
) -> WorkCost:
    """Return the cost of samples from this heat on, and the heat after a pause.

    `phones` has the columns cold_s and energy_j (per sample), slowdown and heating_s. The seconds
    are the exact solution of the model above: the phone heats up while it works.
    """
    work = np.asarray(samples, dtype=float) * phones.cold_s
    rise = (phones.slowdown - 1) * (1 - np.asarray(heat, dtype=float))
    with np.errstate(divide="ignore"):
        grown = np.logaddexp(
            np.log(rise), np.log(phones.slowdown - rise) + phones.slowdown * work / phones.heating_s
        )
    seconds = phones.heating_s * (grown - np.log(phones.slowdown))
    after = heat_after_rest(phones, heat_after_work(phones, heat, seconds), rest_s)
    return WorkCost(seconds, samples * phones.energy_j, after)


def heat_after_work(phones: Any, heat: ArrayLike, busy_s: ArrayLike) -> Array:
    """Return the heat after this time of work."""
    return np.asarray(1 - (1 - np.asarray(heat)) * np.exp(-np.asarray(busy_s) / phones.heating_s))


def heat_after_rest(phones: Any, heat: ArrayLike, rest_s: ArrayLike) -> Array:
    """Return the heat after this time of rest."""
    return np.asarray(np.asarray(heat) * np.exp(-np.asarray(rest_s) / phones.heating_s))


def duty_heat(phones: Any, samples: ArrayLike, rest_s: float | None) -> Array:
    """Return the heat at the start of a round after many rounds with this pause in between.

    Without a pause given, the phones rest until they are cool.
    """
    heat = np.zeros(len(phones.cold_s))
    if rest_s is None:
        return heat
    for _ in range(CYCLES_MAX):
        before, heat = heat, work_cost(phones, samples, heat, rest_s).heat
        if np.abs(heat - before).max(initial=0.0) < SETTLED:
            break
    return heat


def link_cost(kbit: ArrayLike, down_kbps: ArrayLike, up_kbps: ArrayLike) -> tuple[Array, Array]:
    """Return seconds and joules of fetching a model of this size and sending it back."""
    down, up = np.asarray(down_kbps, dtype=float), np.asarray(up_kbps, dtype=float)
    down_s, up_s = np.asarray(kbit) / down, np.asarray(kbit) / up
    down_w = CONNECTED_W + DOWN_W_PER_MBPS * down / 1000
    up_w = CONNECTED_W + UP_W_PER_MBPS * up / 1000
    return np.asarray(down_s + up_s), np.asarray(down_s * down_w + up_s * up_w)
