"""Random variation of step times in a simulated run, as phones show it."""

import random
from math import log, sqrt

# Noise of a single step and of a whole run, with pinned and with free clocks: at the low end of
# what phones show (0.5-7 % and 2-16 %). A late step is followed by an early one (lag-1
# correlations of phones lie between -0.7 and 0.15), the first steps are slower, neighbouring
# windows drift together, and now and then another process takes a core for a moment.
_STEP_NOISE, _FREE_STEP_NOISE = 0.01, 0.025
_RUN_NOISE, _FREE_RUN_NOISE = 0.005, 0.008
_REBOUND = 0.3
_WARMUP_SLOWDOWN = 0.3
_DRIFT, _DRIFT_KEPT = 0.0015, 0.95
_INTERRUPTION_CHANCE, _INTERRUPTION_STEPS = 0.004, 0.2


class StepNoise:
    """The noise of one run: a factor for the whole run, and one per window."""

    def __init__(self, rng: random.Random, is_pinned: bool) -> None:
        self._rng = rng
        self._step_noise = _STEP_NOISE if is_pinned else _FREE_STEP_NOISE
        self.run_factor = 1.0 + rng.gauss(0.0, _RUN_NOISE if is_pinned else _FREE_RUN_NOISE)
        self.window_factor = 1.0
        self.interruption_steps = 0.0  # time of an interruption in this window, in steps
        self._drift = 0.0
        self._deviation = 0.0  # of the previous window

    def draw_window(self, expected_steps: float, is_warmup: bool) -> None:
        """Draw the factor of the next window."""
        rng = self._rng
        self._drift = self._drift * _DRIFT_KEPT + rng.gauss(0.0, _DRIFT)
        is_interrupted = rng.random() < _INTERRUPTION_CHANCE
        self.interruption_steps = _INTERRUPTION_STEPS if is_interrupted else 0.0
        new_deviation = rng.gauss(0.0, self._step_noise) / sqrt(expected_steps)
        self._deviation = new_deviation - _REBOUND * self._deviation
        self.window_factor = (
            1.0
            + self._drift
            + self._deviation
            + self.interruption_steps / expected_steps
            + (_WARMUP_SLOWDOWN if is_warmup else 0.0)
        )

    def expected_extreme(self, steps: int) -> float:
        """Return how far the fastest and slowest of some steps lie from the mean, as a share."""
        return self._step_noise * sqrt(2 * log(steps)) if steps > 1 else 0.0
