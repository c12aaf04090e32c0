"""Heat flow: die, body and battery as three heat capacities joined by thermal resistances.

Solved exactly by its three exponentials, so the result does not depend on the time step.
"""

from math import exp

import numpy as np

from agent.virtual.profiles import HeatNode, HeatProfile

NODE_INDEX: dict[HeatNode, int] = {"die": 0, "body": 1, "battery": 2}

NodeTriple = tuple[float, float, float]


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
        capacity_roots = np.sqrt(
            [profile.die_j_per_k, profile.body_j_per_k, profile.battery_j_per_k]
        )
        # Scaled by the square roots of the capacities the system is symmetric: all rates are real.
        rates, modes = np.linalg.eigh(conductance / np.outer(capacity_roots, capacity_roots))
        self._rates = [float(rate) for rate in rates]
        self._to_modes = _to_triples(modes.T * capacity_roots)
        self._from_modes = _to_triples((modes.T / capacity_roots).T)
        self._resistance = _to_triples(np.linalg.inv(conductance))
        self.temps: NodeTriple = (ambient_c, ambient_c, ambient_c)

    def node(self, name: HeatNode) -> float:
        return self.temps[NODE_INDEX[name]]

    def steady_state(self, watts: NodeTriple) -> NodeTriple:
        """Return the temperatures that constant power leads to."""
        ambient = self.ambient_c
        first, second, third = self._resistance
        return (
            ambient + _dot(first, watts),
            ambient + _dot(second, watts),
            ambient + _dot(third, watts),
        )

    def advance(self, seconds: float, watts: NodeTriple) -> None:
        """Let heat flow for some seconds under constant power."""
        target = self.steady_state(watts)
        temps = self.temps
        difference = (temps[0] - target[0], temps[1] - target[1], temps[2] - target[2])
        rates, to_modes, from_modes = self._rates, self._to_modes, self._from_modes
        modes = (
            exp(-rates[0] * seconds) * _dot(to_modes[0], difference),
            exp(-rates[1] * seconds) * _dot(to_modes[1], difference),
            exp(-rates[2] * seconds) * _dot(to_modes[2], difference),
        )
        self.temps = (
            target[0] + _dot(from_modes[0], modes),
            target[1] + _dot(from_modes[1], modes),
            target[2] + _dot(from_modes[2], modes),
        )


def _dot(left: NodeTriple, right: NodeTriple) -> float:
    # Written out because it runs for every reading of every phone.
    return left[0] * right[0] + left[1] * right[1] + left[2] * right[2]


def _to_triples(matrix: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[NodeTriple]:
    return [(float(row[0]), float(row[1]), float(row[2])) for row in matrix]
