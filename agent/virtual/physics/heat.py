"""Heat: die, body and battery as three capacities joined by resistances.

Solved exactly by its three exponentials, so the size of a time step never shapes the answer.
"""

from math import exp

import numpy as np

from agent.virtual.profiles import HeatNode, HeatProfile

NODES: tuple[HeatNode, ...] = ("die", "body", "battery")

Triple = tuple[float, float, float]


class HeatNetwork:
    """Temperatures of the three nodes, in °C."""

    def __init__(self, profile: HeatProfile, ambient_c: float, spread: float = 1.0) -> None:
        self.ambient_c = ambient_c
        die_body = 1.0 / (profile.die_body_k_per_w * spread)
        body_air = 1.0 / (profile.body_ambient_k_per_w * spread)
        body_battery = 1.0 / profile.body_battery_k_per_w
        conductance = np.array(
            [
                [die_body, -die_body, 0.0],
                [-die_body, die_body + body_air + body_battery, -body_battery],
                [0.0, -body_battery, body_battery],
            ]
        )
        roots = np.sqrt([profile.die_j_per_k, profile.body_j_per_k, profile.battery_j_per_k])
        # Scaled by the roots of the capacities the system is symmetric: real rates, no surprises.
        rates, modes = np.linalg.eigh(conductance / np.outer(roots, roots))
        self._rates = [float(rate) for rate in rates]
        self._into = [[float(x) for x in row] for row in modes.T * roots]
        self._back = [[float(x) for x in row] for row in (modes.T / roots).T]
        self._resistance = [[float(x) for x in row] for row in np.linalg.inv(conductance)]
        self.temps: list[float] = [ambient_c] * 3

    @property
    def slowest_s(self) -> float:
        """The time constant of the slowest mode: the body against the air."""
        return 1.0 / min(self._rates)

    def node(self, name: HeatNode) -> float:
        return self.temps[NODES.index(name)]

    def rest(self, watts: Triple) -> list[float]:
        """Where the nodes settle under constant power."""
        return [
            self.ambient_c + sum(r * w for r, w in zip(row, watts, strict=True))
            for row in self._resistance
        ]

    def advance(self, seconds: float, watts: Triple) -> None:
        """Let heat flow for a while under constant power."""
        rest = self.rest(watts)
        above = [temp - end for temp, end in zip(self.temps, rest, strict=True)]
        modes = [
            exp(-rate * seconds) * sum(weight * a for weight, a in zip(row, above, strict=True))
            for rate, row in zip(self._rates, self._into, strict=True)
        ]
        self.temps = [
            end + sum(weight * mode for weight, mode in zip(row, modes, strict=True))
            for end, row in zip(rest, self._back, strict=True)
        ]
