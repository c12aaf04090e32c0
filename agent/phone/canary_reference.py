"""How long a canary takes on a phone: learned once, then only compared. Pure.

A reference belongs to one canary, one build of the runner, and one set of cores and clocks. Its
first six runs teach how much the canary varies from run to run, which canaries in a row do not
show. Then it changes only when the phone is commissioned again: a reference that followed the phone
would never show that the phone becomes slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, median
from typing import NamedTuple

from pydantic import Field

from workloads.protocol.base import WireModel

SECONDS, SECONDS_MAX = 0.25, 2.0
SHOWN_CHANGE = 0.03  # a canary is so long that it shows this change at two standard errors
# Canaries differ by about half a percent on phones with pinned clocks; a short series cannot show
# that they differ less, so this counts like some canaries more.
USUAL_SPREAD, USUAL_WEIGHT = 0.005, 4
COMPUTER_SPREAD = 0.025  # other programs of a computer use its caches and its memory
CHANGE_MIN, DRIFT_MIN = 0.02, 0.03  # limits of one canary are never lower
FREE_MIN = 0.035  # on free clocks, which vary more than pinned ones
# Limits of a phone are never higher: a reference that was learned while something disturbed the
# phone has a large spread, and must not excuse later disturbances.
# Six runs show how noisy the phone is itself.
LIMIT_MAX, LEARNED_LIMIT_MAX, COMPUTER_LIMIT_MAX = 0.06, 0.1, 0.25
RUNS_LEARNED, RUNS_JUDGED = 6, 3  # a canary of one moment is not yet a reference
LIMIT_ERRORS = 4.0  # standard errors
# A canary that is beyond its limit, but not by more than this factor, is measured once more. The
# mean of both varies less, and has a lower limit, so that true changes are still found.
DOUBTFUL, REPEATED_LIMIT = 2.0, 0.8
# The sums (CUSUM) take what exceeds an allowance; a sum above the limit is a slow drift.
ALLOWANCE_MIN, ALLOWANCE_SPREADS = 0.0075, 1.5
SUM_MIN, SUM_SPREADS = 0.05, 8.0
SUM_KEPT = 1.5  # times its limit at most, so that a repaired phone is soon trusted again


class CanarySeries(NamedTuple):
    """How a reference is learned: from how many canaries, and how long they may become."""

    canaries: int
    seconds_max: float


FULL_SERIES, QUICK_SERIES = CanarySeries(6, SECONDS_MAX), CanarySeries(4, SECONDS_MAX / 2)


class CanaryReference(WireModel):
    """The time of one canary, its spread, and how far later runs were from it in total."""

    ms: float = Field(gt=0)
    spread: float = Field(ge=0, description="relative standard deviation of one canary")
    count: int = Field(ge=1, description="canaries that it was learned from")
    seconds: float = Field(default=SECONDS, gt=0, description="length of the canary")
    usual_spread: float = Field(default=USUAL_SPREAD, ge=0, description="before it is known")
    times_ms: tuple[float, ...] = Field(
        default=(), max_length=64, description="of the runs it is being learned from"
    )
    runs: int = Field(default=RUNS_LEARNED, ge=0, description="it was learned from, at most six")
    slower: float = Field(default=0.0, ge=0, description="accumulated over the runs since")
    faster: float = Field(default=0.0, ge=0)

    @property
    def detectable(self) -> float:
        """The smallest relative change that one canary shows, at two standard errors."""
        return 2 * self._error

    @property
    def change_max(self) -> float:
        """The largest normal change within a run."""
        return max(CHANGE_MIN, LIMIT_ERRORS * sqrt(2) * self.spread)

    @property
    def drift_max(self) -> float:
        """The largest normal distance of one canary from this reference."""
        return max(DRIFT_MIN, LIMIT_ERRORS * self._error)

    @property
    def sum_max(self) -> float:
        """The largest normal accumulated distance."""
        return max(SUM_MIN, SUM_SPREADS * self.spread)

    @property
    def allowance(self) -> float:
        """The distance of a run that does not accumulate."""
        return max(ALLOWANCE_MIN, ALLOWANCE_SPREADS * self.spread)

    @property
    def _error(self) -> float:
        return self.spread * sqrt(1 + 1 / self.count)

    @property
    def limit_max(self) -> float:
        """What no limit exceeds, as long as this is all that is known of the phone."""
        if self.usual_spread >= COMPUTER_SPREAD:
            return COMPUTER_LIMIT_MAX
        return LEARNED_LIMIT_MAX if self.runs >= RUNS_LEARNED else LIMIT_MAX

    def learned_from(self, times_ms: Sequence[float]) -> "CanaryReference":
        """The reference after one more run that was not disturbed; the same once it is known."""
        if self.runs >= RUNS_LEARNED:
            return self
        known = (*(self.times_ms or (self.ms,)), *times_ms)
        learned = learn_reference(known, self.seconds, self.usual_spread)
        assert learned is not None
        runs = self.runs + 1
        kept = known if runs < RUNS_LEARNED else ()
        return learned.model_copy(update={"times_ms": kept, "runs": runs})

    def after_run(self, distance: float) -> "CanaryReference":
        """The reference with the distance of one more run in its sums; its time stays.

        One run counts at most as much as a single canary may differ, so that one disturbance does
        not look like a drift.
        """
        counted = min(max(distance, -self.drift_max), self.drift_max)
        highest = SUM_KEPT * self.sum_max
        sums = {
            "slower": min(max(0.0, self.slower + counted - self.allowance), highest),
            "faster": min(max(0.0, self.faster - counted - self.allowance), highest),
        }
        return self.model_copy(update=sums)


def learn_reference(
    times_ms: Sequence[float], seconds: float = SECONDS, usual_spread: float = USUAL_SPREAD
) -> CanaryReference | None:
    """The reference that a series of canaries gives, before any run; None for an empty series."""
    if not times_ms:
        return None
    middle_ms = median(times_ms)
    mean_ms = fmean(times_ms)
    squares = sum((time_ms / mean_ms - 1) ** 2 for time_ms in times_ms)
    squares += USUAL_WEIGHT * usual_spread**2
    spread = sqrt(squares / (len(times_ms) - 1 + USUAL_WEIGHT))
    return CanaryReference(
        ms=middle_ms,
        spread=spread,
        count=len(times_ms),
        seconds=seconds,
        usual_spread=usual_spread,
        runs=0,
    )


def choose_seconds(learned: CanaryReference, longest_s: float = SECONDS_MAX) -> float:
    """The length with which the canary may show SHOWN_CHANGE: as it is, or at least doubled."""
    factor = (learned.detectable / SHOWN_CHANGE) ** 2
    if factor <= 1:
        return learned.seconds
    return min(learned.seconds * max(factor, 2.0), longest_s)


@dataclass(frozen=True)
class CanaryTimes:
    """Step times in ms of one canary before and after a run, and what they are compared with."""

    before_ms: float | None = None
    after_ms: float | None = None
    reference: CanaryReference | None = None
    is_new: bool = False  # the reference was learned for this run
    is_held: bool = True  # the clocks
    # Measured twice, before or after the run: the times are means.
    is_first_repeated: bool = False
    is_repeated: bool = False

    @property
    def change(self) -> float | None:
        """How much longer it took after the run than before, as a fraction.

        The mean of two canaries is compared with the mean of the first one and the reference:
        otherwise one canary that happened to be fast would still decide.
        """
        base_ms = self.before_ms
        if self.is_repeated and base_ms is not None and self.reference is not None:
            base_ms = (base_ms + self.reference.ms) / 2
        return _relative_change(self.after_ms, base_ms)

    @property
    def change_max(self) -> float:
        """The largest normal change."""
        return self._limit((self.reference or _UNKNOWN).change_max, self.is_repeated)

    @property
    def drift(self) -> float | None:
        """How much longer it took before the run than the reference, as a fraction."""
        return _relative_change(self.before_ms, self.reference.ms if self.reference else None)

    @property
    def drift_max(self) -> float:
        """The largest normal drift."""
        reference = self.reference or _UNKNOWN
        normal = reference.drift_max if reference.runs >= RUNS_JUDGED else reference.limit_max
        return self._limit(normal, self.is_first_repeated)

    def _limit(self, normal: float, is_repeated: bool) -> float:
        limit_max = (self.reference or _UNKNOWN).limit_max
        limit = min(max(normal, 0.0 if self.is_held else FREE_MIN), limit_max)
        return REPEATED_LIMIT * limit if is_repeated else limit

    @property
    def is_stable(self) -> bool:
        """Whether the phone was equally fast before and after the run."""
        return self.change is not None and abs(self.change) <= self.change_max

    @property
    def is_doubtful(self) -> bool:
        """Whether the last canary is beyond its limit by so little that chance may explain it."""
        is_first = self.after_ms is None
        off = self.drift if is_first else self.change
        limit = self.drift_max if is_first else self.change_max
        return off is not None and limit < abs(off) <= DOUBTFUL * limit

    def measured_again(self, time_ms: float) -> "CanaryTimes":
        """The times with one more measurement of the last canary."""
        if self.after_ms is not None:
            return replace(self, after_ms=(self.after_ms + time_ms) / 2, is_repeated=True)
        before_ms = ((self.before_ms or time_ms) + time_ms) / 2
        return replace(self, before_ms=before_ms, is_first_repeated=True)

    @property
    def accumulated(self) -> float:
        """The accumulated distance of all runs in the direction of this one."""
        if self.reference is None:
            return 0.0
        return self.reference.slower if (self.drift or 0.0) > 0 else -self.reference.faster

    @property
    def has_drifted(self) -> bool:
        """Whether this canary, or it together with those before it, is too far from its reference.

        A sum that exceeds its limit counts only as long as the phone is still away from it.
        """
        if self.reference is None or self.drift is None:
            return False
        is_away = abs(self.drift) > self.reference.allowance
        has_crept = is_away and abs(self.accumulated) > self.reference.sum_max
        return has_crept or abs(self.drift) > self.drift_max

    def with_this_run(self) -> "CanaryTimes":
        """The same times; the sums of the reference include this run."""
        if self.reference is None or self.before_ms is None or self.after_ms is None:
            return self
        if self.reference.runs < RUNS_LEARNED:
            return self
        distance = (self.before_ms + self.after_ms) / 2 / self.reference.ms - 1
        return replace(self, reference=self.reference.after_run(distance))


_UNKNOWN = CanaryReference(ms=1.0, spread=USUAL_SPREAD, count=1)


def _relative_change(now_ms: float | None, then_ms: float | None) -> float | None:
    return now_ms / then_ms - 1 if now_ms is not None and then_ms else None
