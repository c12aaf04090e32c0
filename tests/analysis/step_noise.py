"""Runs with noise as recorded on phones, for checks of the statistics.

Steps scatter by 0.5 to 16 %, depend on the step before (lag-1 correlation -0.7 to +0.15), and the
first of them take up to twice as long. A run is the median of its steps, times its own random
factor.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEPS, FIRST = 20, 4


@dataclass(frozen=True)
class Noise:
    """How a phone's step times scatter, within a run and between runs."""

    scatter: float
    correlation: float
    between: float = 0.01


PINNED = Noise(0.005, -0.7, 0.005)
USUAL = Noise(0.03, -0.5)
LOOSE = Noise(0.07, 0.15, 0.02)
UNPINNED = Noise(0.16, 0.0, 0.03)


def run_medians(
    rng: np.random.Generator, noise: Noise, runs: int, step_ms: float
) -> NDArray[np.float64]:
    """Draw the step times of runs whose true median is step_ms."""
    normals = rng.normal(size=(runs, STEPS))
    for index in range(1, STEPS):
        inherited = noise.correlation * normals[:, index - 1]
        normals[:, index] = inherited + np.sqrt(1 - noise.correlation**2) * normals[:, index]
    steps = np.exp(noise.scatter * normals)
    steps[:, :FIRST] *= 1 + rng.random((runs, 1))
    run_factors = np.exp(rng.normal(0, noise.between, runs))
    return np.asarray(step_ms * run_factors * np.median(steps, axis=1))
