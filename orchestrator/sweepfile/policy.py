"""The execution policy of a sweep: owner, priority, repeats, stopping, retries and budget.

A policy is stored with its sweep. It holds values only; decisions/ has the rules that use them.
"""

import math
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from workloads.protocol.base import WireModel

PRIORITY_DEFAULT, PRIORITY_MAX = 50, 100
RUNS_MAX = 100  # of one trial
ATTEMPTS_DEFAULT, ATTEMPTS_MAX = 3, 20
TAG_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,31}$"

Tag = Annotated[str, Field(pattern=TAG_PATTERN)]
Attempts = Annotated[int, Field(ge=1, le=ATTEMPTS_MAX)]


def runs_needed(confidence: float) -> int:
    """Return the minimum number of runs: with fewer, even their range misses the confidence."""
    return 1 + math.ceil(-math.log2(1 - confidence))


class StopRule(WireModel):
    """When a trial stops: its median's interval is narrow enough, or it has the most runs.

    The interval is checked only at a fixed grid of run counts, `grid`: every look may stop by
    chance, so the number of looks is part of the statistics.
    """

    half_width_rel: float = Field(default=0.02, gt=0, le=1, description="0.02: plus or minus 2 %")
    confidence: float = Field(default=0.95, ge=0.5, le=0.999)
    n_min: int = Field(default=6, ge=2, le=RUNS_MAX)
    n_max: int = Field(default=32, ge=2, le=RUNS_MAX)
    metric: str | None = Field(default=None, description="None: the headline of the condition")

    @property
    def grid(self) -> tuple[int, ...]:
        """The run counts of the looks: 6, 9, 14, 21, 32; each is 1.5 times the one before."""
        counts = [self.n_min]
        while counts[-1] < self.n_max:
            counts.append(min(self.n_max, -(-counts[-1] * 3 // 2)))
        return tuple(counts)


class Budget(WireModel):
    """The limits of a sweep; when one is exceeded, the sweep is paused, not cancelled."""

    wall_s: float | None = Field(
        default=None, gt=0, description="seconds since its first run was leased"
    )
    failures: int | None = Field(default=None, ge=0, description="failed runs allowed")
    failures_share: float | None = Field(
        default=None, ge=0, le=1, description="of the planned runs"
    )


class RetryLimits(WireModel):
    """How often a run is attempted, by blame; deterministic failures are never retried."""

    phone: Attempts = ATTEMPTS_DEFAULT
    condition: Attempts = ATTEMPTS_DEFAULT


class Collect(WireModel):
    """What is stored of a run besides its report."""

    telemetry: bool = True


class Baseline(WireModel):
    """The cell that recurs within every block; its trials are controls and never stop early."""

    case_digest: str
    condition_digest: str
    every: int = Field(ge=2, description="one run of it per this many other runs")

    @property
    def cell(self) -> tuple[str, str]:
        """The key of the cell."""
        return self.case_digest, self.condition_digest

    def runs_per_block(self, others: int) -> int:
        """Return how often it runs in a block with this number of other trials."""
        return max(1, -(-others // self.every))


def _sorted_unique(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))


class Policy(WireModel):
    """How a sweep is executed."""

    owner: str = Field(default="", max_length=64)
    priority: int = Field(
        default=PRIORITY_DEFAULT,
        ge=0,
        le=PRIORITY_MAX,
        description="ten points more double the share",
    )
    deadline: AwareDatetime | None = None
    tags: Annotated[tuple[Tag, ...], AfterValidator(_sorted_unique)] = ()
    repeat: int = Field(default=3, ge=1, le=RUNS_MAX, description="used without a stop rule")
    stop: StopRule | None = None
    baseline: Baseline | None = None
    retry: RetryLimits = RetryLimits()
    budget: Budget = Budget()
    collect: Collect = Collect()

    @property
    def blocks(self) -> int:
        """The number of planned blocks: all that may be needed."""
        return self.stop.n_max if self.stop is not None else self.repeat
