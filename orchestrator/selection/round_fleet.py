"""Clients as columns of numbers: thousands of phones are one vector."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.selection.client_types import Client
from orchestrator.selection.round_clock import Array

Mask = NDArray[np.bool_]
Picks = NDArray[np.int64]

# Used where a phone's own time constant is unknown: that of a recorded trace of a real phone.
HEATING_S = 560.0
MEMORY_SHARE = 0.5  # of a phone's memory that an app may use


@dataclass(frozen=True)
class RoundFleet:
    """Clients as columns; times are seconds per sample."""

    cold_s: Array
    slowdown: Array
    heating_s: Array
    uncertainty: Array  # relative upper margin of the time: two standard deviations
    energy_j: Array  # per sample; NaN if unknown
    battery_j: Array  # NaN if unknown
    fits: Mask

    def __len__(self) -> int:
        return len(self.cold_s)

    def subset(self, picks: Picks) -> "RoundFleet":
        """Return these clients; an index may occur several times."""
        return RoundFleet(**{name: column[picks] for name, column in vars(self).items()})

    def scale(self, times: Array) -> "RoundFleet":
        """Return the same clients with times multiplied by these factors."""
        return replace(self, cold_s=self.cold_s * times)

    def misestimate(self, error: float, rng: np.random.Generator) -> "RoundFleet":
        """Return the clients with every figure wrong by a random factor of this relative size."""
        factor = np.exp(rng.standard_normal((5, len(self))) * error)
        return replace(
            self,
            cold_s=self.cold_s * factor[0],
            slowdown=np.maximum(1.0, self.slowdown * factor[1]),
            heating_s=self.heating_s * factor[2],
            energy_j=self.energy_j * factor[3],
            battery_j=self.battery_j * factor[4],
        )


def build_round_fleet(clients: Sequence[Client]) -> RoundFleet:
    """Turn rows into columns."""
    worst_slowdown = max((client.slowdown for client in clients), default=1.0)
    return RoundFleet(
        cold_s=np.array([client.cold_ms.value / 1000 for client in clients]),
        slowdown=np.array([client.slowdown for client in clients]),
        heating_s=np.array([client.heating_s or HEATING_S for client in clients]),
        uncertainty=np.array([_uncertainty(client, worst_slowdown) for client in clients]),
        energy_j=np.array([c.energy_mj.value / 1000 if c.energy_mj else np.nan for c in clients]),
        battery_j=np.array([client.battery_j or np.nan for client in clients]),
        fits=np.array([fits_in_memory(client) for client in clients], dtype=bool),
    )


def _uncertainty(client: Client, worst_slowdown: float) -> float:
    """Return that of the less certain time; without a hot run, the worst slowdown is assumed."""
    if client.sustained_ms is None:
        return (1 + client.cold_ms.uncertainty) * worst_slowdown - 1
    return max(client.cold_ms.uncertainty, client.sustained_ms.uncertainty)


def fits_in_memory(client: Client) -> bool:
    """Return whether a phone has enough memory; assumed if the memory use is unknown."""
    return client.peak_mb is None or client.peak_mb <= MEMORY_SHARE * client.ram_mb
