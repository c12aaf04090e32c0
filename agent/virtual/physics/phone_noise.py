"""How much the times of one phone scatter: little, or as recorded on a real phone.

The recordings are means of ten steps, with pinned and with free clocks: some phones alternate
between fast and slow steps, others are even and interrupted now and then. A phone keeps the shape
of one recording of each kind, scaled to its own scatter.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import fmean, median, pstdev

_RECORDINGS = Path(__file__).with_name("recorded_step_times.json")
_BLOCK_STEPS = 10
# Coefficients of variation that were recorded on phones, and of whole runs.
_PINNED_STEP_CV, _FREE_STEP_CV = (0.005, 0.07), (0.02, 0.16)
_RUN_CV = (0.01, 0.025)


class NoiseKind(StrEnum):
    """How the times of a phone scatter."""

    LOW = "low"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Unrest:
    """What lets two runs of the same work differ on a phone."""

    noise: NoiseKind = NoiseKind.LOW
    background: bool = False  # the bursts of work of an idle Android


DEFAULT_UNREST = Unrest()


@dataclass(frozen=True, slots=True)
class NoiseShape:
    """A recording: the relative deviations of consecutive blocks of steps from their mean."""

    deviations: tuple[float, ...]
    block_s: float
    first_slowdown: float  # of the first block
    cv: float  # coefficient of variation
    usual_cv: float  # the same without rare interruptions

    @classmethod
    def of(cls, block_ms: Sequence[float]) -> "NoiseShape":
        """Make a shape of the times per step of consecutive blocks."""
        first, *later = block_ms
        mean, middle = fmean(later), median(later)
        deviations = tuple(ms / mean - 1.0 for ms in later)
        usual_cv = 1.4826 * median(abs(ms - middle) for ms in later) / middle
        block_s = _BLOCK_STEPS * middle / 1e3
        return cls(deviations, block_s, max(first / middle - 1, 0.0), pstdev(deviations), usual_cv)


@dataclass(frozen=True, slots=True)
class NoiseLevel:
    """How the steps and the runs of one phone scatter under one kind of clocks."""

    step_cv: float
    run_cv: float
    shape: NoiseShape | None = None  # None: normally distributed


@dataclass(frozen=True, slots=True)
class PhoneNoise:
    """How the times of one phone scatter."""

    pinned: NoiseLevel
    free: NoiseLevel

    def level(self, is_pinned: bool) -> NoiseLevel:
        """Return what applies to pinned or free clocks."""
        return self.pinned if is_pinned else self.free


# At the low end of what phones show (0.5-7 % and 2-16 %).
LOW_NOISE = PhoneNoise(NoiseLevel(0.01, 0.005), NoiseLevel(0.025, 0.008))


def draw_noise(kind: NoiseKind, rng: random.Random) -> PhoneNoise:
    """Draw the noise of one phone."""
    if kind is NoiseKind.LOW:
        return LOW_NOISE
    shapes = _shapes()
    rank, run_cv = rng.random(), rng.uniform(*_RUN_CV)  # one phone is noisy in all it does
    return PhoneNoise(
        NoiseLevel(_between(_PINNED_STEP_CV, rank), run_cv, rng.choice(shapes["pinned"])),
        NoiseLevel(_between(_FREE_STEP_CV, rank), run_cv, rng.choice(shapes["free"])),
    )


def _between(limits: tuple[float, float], rank: float) -> float:
    low, high = limits
    return low * float((high / low) ** rank)


@cache
def _shapes() -> dict[str, tuple[NoiseShape, ...]]:
    recordings = json.loads(_RECORDINGS.read_text(encoding="utf-8"))
    return {
        clocks: tuple(NoiseShape.of(block_ms) for block_ms in recordings[clocks].values())
        for clocks in ("pinned", "free")
    }
