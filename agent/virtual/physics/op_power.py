"""How the power of a step is spread over its operations.

A core draws more while it multiplies than while it waits for memory, a GPU nothing while it waits
for its next kernel. Heat and charge follow the mean of a step; a meter that is faster than a step
sees each operation.
"""

from collections.abc import Mapping

import numpy as np

from agent.virtual.physics.step_timing import Array

FIRST_CORE, OTHER_CORES, MEMORY, GPU = "first_core", "other_cores", "memory", "gpu"


class StepPower:
    """The energy of a step over its time, by part of the chip; both from 0 to 1."""

    def __init__(self, time_shares: Array, drawn: Mapping[str, Array]) -> None:
        """Take the shares of loading and of each operation, and what each part draws then."""
        self._time = _running_share(time_shares)
        self._energy = {part: _running_share(parts) for part, parts in drawn.items()}

    def lead(self, part: str, steps: float) -> float:
        """Return how far the energy is ahead of the mean after some steps, in steps."""
        fraction = steps % 1.0
        energy = self._energy.get(part)
        return 0.0 if energy is None else float(np.interp(fraction, self._time, energy)) - fraction


def _running_share(parts: Array) -> Array:
    total = float(parts.sum())
    if total <= 0:  # this part draws nothing in any operation: it has no shape
        return np.linspace(0.0, 1.0, len(parts) + 1)
    return np.concatenate([[0.0], np.cumsum(parts) / total])
