"""How a sweep wants to be carried out: whose it is, what comes first, when enough is enough.

A policy is stored with its sweep and obeyed by the dispatcher. It holds values and no judgement;
what follows from them is decided by `stopping` and `retry`.
"""

from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from workloads.fault import Blame
from workloads.noun import Noun

PRIORITY_DEFAULT, PRIORITY_MAX = 50, 100
RUNS_MAX = 100  # of one trial
ORDERS_DEFAULT, ORDERS_MAX = 4, 16
TRIES_DEFAULT, TRIES_MAX = 3, 20
TAG_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,31}$"

Tag = Annotated[str, Field(pattern=TAG_PATTERN)]
Tries = Annotated[int, Field(ge=1, le=TRIES_MAX)]


class StopRule(Noun):
    """When a trial is known: its median's interval is narrow enough, or it had runs enough.

    It is looked at on a fixed grid of run counts, `grid`, and never in between: every look is a
    chance to stop by luck, so their number is part of the statistics.
    """

    half_width_rel: float = Field(default=0.02, gt=0, le=1, description="0.02: plus or minus 2 %")
    confidence: float = Field(default=0.95, ge=0.5, le=0.999)
    n_min: int = Field(default=6, ge=2, le=RUNS_MAX)
    n_max: int = Field(default=32, ge=2, le=RUNS_MAX)
    metric: str | None = Field(default=None, description="None: the headline of the condition")

    @property
    def grid(self) -> tuple[int, ...]:
        """The run counts at which it is looked: 6, 9, 14, 21, 32, each half as many more."""
        counts = [self.n_min]
        while counts[-1] < self.n_max:
            counts.append(min(self.n_max, -(-counts[-1] * 3 // 2)))
        return tuple(counts)


class Budget(Noun):
    """What a sweep may use up; beyond it the sweep is paused, not killed."""

    wall_s: float | None = Field(default=None, gt=0, description="since its first run was leased")
    failures: int | None = Field(default=None, ge=0, description="runs that may be given up")
    failures_share: float | None = Field(
        default=None, ge=0, le=1, description="of the runs that ended; judged from 10 ended runs on"
    )


class RetryLimits(Noun):
    """How often a run is tried, by blame; what is wrong in itself is never tried again."""

    phone: Tries = TRIES_DEFAULT
    condition: Tries = TRIES_DEFAULT

    def of(self, blame: Blame) -> int:
        """How often a run with this blame is tried at most."""
        return self.phone if blame is Blame.PHONE else self.condition


class Collect(Noun):
    """What is kept of a run besides its report."""

    telemetry: bool = True


class Baseline(Noun):
    """The cell that recurs within every block; its trials are controls and never stop early."""

    case_digest: str
    condition_digest: str
    every: int = Field(ge=2, description="one run of it among so many others")

    @property
    def cell(self) -> tuple[str, str]:
        """Which cell it is."""
        return self.case_digest, self.condition_digest

    def runs_in(self, others: int) -> int:
        """How often it runs in a block with so many other trials."""
        return max(1, -(-others // self.every))


def _each_once(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))


class Policy(Noun):
    """Everything that a sweep asks of whoever carries it out."""

    owner: str = Field(default="", max_length=64)
    priority: int = Field(default=PRIORITY_DEFAULT, ge=0, le=PRIORITY_MAX, description="high first")
    deadline: AwareDatetime | None = None
    tags: Annotated[tuple[Tag, ...], AfterValidator(_each_once)] = ()
    repeat: int = Field(default=3, ge=1, le=RUNS_MAX, description="where no stop rule is given")
    stop: StopRule | None = None
    orders: int = Field(default=ORDERS_DEFAULT, ge=1, le=ORDERS_MAX, description="drawn per block")
    baseline: Baseline | None = None
    retry: RetryLimits = RetryLimits()
    budget: Budget = Budget()
    collect: Collect = Collect()

    @property
    def blocks(self) -> int:
        """How many blocks are planned: all that may be needed."""
        return self.stop.n_max if self.stop is not None else self.repeat
