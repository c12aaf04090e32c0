"""Random variation of step times in a simulated run, as phones show it."""

import random
from math import log, sqrt

from agent.virtual.physics.phone_noise import NoiseLevel, NoiseShape

# A late step is followed by an early one (lag-1 correlations of phones lie between -0.7 and 0.15),
# the first steps are slower, neighbouring windows drift together, and now and then another process
# takes a core for a moment.
_REBOUND = 0.3
_WARMUP_SLOWDOWN = 0.3
_DRIFT, _DRIFT_KEPT = 0.0015, 0.95
_INTERRUPTION_CHANCE, _INTERRUPTION_STEPS = 0.004, 0.2
# Of a recording: blocks that are replayed in a row, in the mean; deviations that one step caused.
_REPLAYED_BLOCKS = 16
_INTERRUPTED_FROM = 3.0  # usual deviations
_FASTEST, _STEP_SPREAD_MAX = -0.4, 0.3


class StepNoise:
    """The noise of one run: a factor for the whole run, and one per window."""

    def __init__(self, rng: random.Random, level: NoiseLevel) -> None:
        self._rng = rng
        self._level = level
        self.run_factor = 1.0 + rng.gauss(0.0, level.run_cv)
        self.window_factor = 1.0
        self.usual_factor = 1.0  # of the steps of this window that were not interrupted
        self.interruption_steps = 0.0  # time of an interruption in this window, in steps
        self._drift = 0.0
        self._deviation = 0.0  # of the previous window
        self._scale, self._block = 1.0, 0
        if level.shape is not None:
            self._scale = level.step_cv / level.shape.cv
            self._block = rng.randrange(len(level.shape.deviations))

    def draw_window(self, expected_steps: float, step_s: float, is_warmup: bool) -> None:
        """Draw the factor of the next window."""
        rng, shape = self._rng, self._level.shape
        self._drift = self._drift * _DRIFT_KEPT + rng.gauss(0.0, _DRIFT)
        if shape is not None:
            self._replay(shape, expected_steps, step_s, is_warmup)
            return
        is_interrupted = rng.random() < _INTERRUPTION_CHANCE
        self.interruption_steps = _INTERRUPTION_STEPS if is_interrupted else 0.0
        new_deviation = rng.gauss(0.0, self._level.step_cv) / sqrt(expected_steps)
        self._deviation = new_deviation - _REBOUND * self._deviation
        self.window_factor = self.usual_factor = (
            1.0
            + self._drift
            + self._deviation
            + self.interruption_steps / expected_steps
            + (_WARMUP_SLOWDOWN if is_warmup else 0.0)
        )

    def expected_extreme(self, steps: int) -> float:
        """Return how far the fastest and slowest of some steps lie from the mean, as a share."""
        if steps <= 1:
            return 0.0
        spread = sqrt(2 * log(steps))
        if self._level.shape is None:
            return self._level.step_cv * spread
        return min(self._scale * self._level.shape.usual_cv * spread, _STEP_SPREAD_MAX)

    def _replay(
        self, shape: NoiseShape, expected_steps: float, step_s: float, is_warmup: bool
    ) -> None:
        """Take the deviations of the recorded blocks that this window lasts, at least one."""
        blocks = max(round(expected_steps * step_s / shape.block_s), 1)
        total = sum(self._next_deviation(shape) for _ in range(blocks))
        deviation = max(self._scale * total / blocks, _FASTEST)
        usual = self._scale * shape.usual_cv
        is_interrupted = deviation > _INTERRUPTED_FROM * usual
        self.interruption_steps = deviation * expected_steps if is_interrupted else 0.0
        slowdown = shape.first_slowdown if is_warmup else 0.0
        self.usual_factor = 1.0 + self._drift + slowdown + (0.0 if is_interrupted else deviation)
        self.window_factor = 1.0 + self._drift + slowdown + deviation

    def _next_deviation(self, shape: NoiseShape) -> float:
        """Return the deviation of the next recorded block; now and then go on from another one."""
        count = len(shape.deviations)
        is_cut = self._rng.random() < 1.0 / _REPLAYED_BLOCKS
        self._block = self._rng.randrange(count) if is_cut else (self._block + 1) % count
        return shape.deviations[self._block]
