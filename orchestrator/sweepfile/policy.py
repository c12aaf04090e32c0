"""The execution policy of a sweep: owner, priority, repeats, stopping, retries and budget.

A policy is stored with its sweep. It declares its keys of the sweep file; the rules that use it are
in store/.
"""

import math
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from workloads.protocol.base import WireModel
from workloads.protocol.file_keys import Problem, RuledModel, Seconds, Share, key, rule
from workloads.protocol.metrics import METRICS
from workloads.text import safe_text

PRIORITY_DEFAULT, PRIORITY_MAX = 50, 100
RUNS_MAX = 100  # of one trial
ATTEMPTS_DEFAULT, ATTEMPTS_MAX = 3, 20
OWNER_MAX = 64
WALL_MAX_S = 10_000 * 3600.0
BASELINE_EVERY = 8
TAG_PATTERN = r"[a-z0-9][a-z0-9._-]{0,31}"
_TIME = "2026-11-20T18:00+01:00"


def check_label(text: str, pattern: str, what: str, longest: int) -> str:
    """Return a name of limited length and characters."""
    if re.fullmatch(pattern, text) is None:
        allowed = f"up to {longest} lower case letters, digits, '.', '_' and '-'"
        raise ValueError(
            f"'{safe_text(text, 70)}' is not {what}; write {allowed}, the first a letter or digit"
        )
    return text


def _check_tag(tag: str) -> str:
    return check_label(tag, TAG_PATTERN, "a tag", 32)


def _sorted_unique(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))


def _check_owner(name: str) -> str:
    if len(name.strip()) > OWNER_MAX:
        raise ValueError(f"a name must have 1 to {OWNER_MAX} characters")
    return safe_text(name.strip(), OWNER_MAX)


def _parse_deadline(text: object) -> object:
    if not isinstance(text, str):
        return text
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        shown = safe_text(text, 40)
        raise ValueError(f"'{shown}' is not a time; write it like {_TIME}") from None
    if when.tzinfo is None:
        raise ValueError(f"the time zone is missing; write it like {_TIME}, or with Z for UTC")
    return when


Attempts = Annotated[int, Field(ge=1, le=ATTEMPTS_MAX)]
Runs = Annotated[int, Field(ge=2, le=RUNS_MAX)]
Tag = Annotated[str, AfterValidator(_check_tag)]
BaselineEvery = Annotated[int, Field(ge=2, le=1000)]


def runs_needed(confidence: float) -> int:
    """Return the minimum number of runs: with fewer, even their range misses the confidence."""
    return 1 + math.ceil(-math.log2(1 - confidence))


class StopRule(RuledModel):
    """When a trial stops: its median's interval is narrow enough, or it has the most runs.

    The interval is checked only at a fixed grid of run counts, `grid`: every look may stop by
    chance, so the number of looks is part of the statistics.
    """

    half_width_rel: Share = key(
        ...,
        "half width of the median's confidence interval",
        name="until",
        example="2%",
        ge=0.0001,
        le=1,
    )
    confidence: Share = key(0.95, "of that interval", ge=0.5, le=0.999)
    n_min: Runs = key(6, "fewest runs", name="min")
    n_max: Runs = key(32, "most runs", name="max")
    metric: str | None = key(
        None,
        "usually the headline metric of the protocol",
        choices=tuple(sorted(name for name, kind in METRICS.items() if not kind.per)),
        values="a [metric](metrics.md)",
    )

    @rule("n_min", "n_max", "confidence")
    def _check_counts(self) -> Iterator[Problem]:
        needed = runs_needed(self.confidence)
        if self.n_min < needed:
            interval = f"{self.confidence:.1%} interval"
            yield ("min",), f"{self.n_min} runs cannot give a {interval}; use at least {needed}"
        elif self.n_max < self.n_min:
            problem = f"{self.n_max} is less than the minimum number of runs, {self.n_min}"
            yield ("max",), problem

    @property
    def grid(self) -> tuple[int, ...]:
        """The run counts of the looks: 6, 9, 14, 21, 32; each is 1.5 times the one before."""
        counts = [self.n_min]
        while counts[-1] < self.n_max:
            counts.append(min(self.n_max, -(-counts[-1] * 3 // 2)))
        return tuple(counts)


class Budget(WireModel):
    """The limits of a sweep; when one is exceeded, the sweep is paused, not cancelled."""

    wall_s: Seconds | None = key(None, "since the first run was leased", gt=0, le=WALL_MAX_S)
    failures: int | None = key(
        None,
        "failed runs. A percentage is of all planned runs. If more than half of the first 20 fail, "
        "the sweep is paused too",
        ge=0,
        le=1_000_000,
    )
    failures_share: Share | None = key(None, name="failures", ge=0, le=1)


class RetryLimits(WireModel):
    """How often a run is attempted, by blame; deterministic failures are never retried."""

    phone: Attempts = key(ATTEMPTS_DEFAULT, "attempts when the phone failed")
    condition: Attempts = key(ATTEMPTS_DEFAULT, "attempts when the condition was not met")


class Collect(WireModel):
    """What is stored of a run besides its report."""

    telemetry: bool = key(
        True,
        "whether windows and sensor readings are stored",
        words={"keep": True, "none": False},
    )


class Baseline(WireModel):
    """The cell that recurs within every block; its trials are controls and never stop early."""

    case_digest: str
    condition_digest: str
    every: BaselineEvery

    @property
    def cell(self) -> tuple[str, str]:
        """The key of the cell."""
        return self.case_digest, self.condition_digest

    def runs_per_block(self, others: int) -> int:
        """Return how often it runs in a block with this number of other trials."""
        return max(1, -(-others // self.every))


class Policy(WireModel):
    """How a sweep is executed."""

    repeat: int = key(5, "runs per cell and phone", ge=1, le=RUNS_MAX)
    stop: StopRule | None = key(None, name="repeat", example="{until: 2%}")
    retry: RetryLimits = key(
        RetryLimits(), "attempts per run, by blame", example="{phone: 3, condition: 3}"
    )
    budget: Budget = key(
        Budget(), "limits at which the sweep is paused", example="{wall: 36h, failures: 10%}"
    )
    accept: Literal["timing"] | None = key(
        None,
        "which runs count. `timing` also takes the times and the memory of runs that fail only "
        "the check of what they learned",
        words={"all": None, "timing": "timing"},
    )
    collect: Collect = key(
        Collect(), "what is kept besides the report", example="{telemetry: none}"
    )
    owner: Annotated[str, AfterValidator(_check_owner)] = key(
        "",
        "whose share of the lab is charged; usually who submits",
        values=f"1 to {OWNER_MAX} characters",
    )
    priority: int = key(
        PRIORITY_DEFAULT, "ten points more double the share of the lab", ge=0, le=PRIORITY_MAX
    )
    deadline: Annotated[AwareDatetime | None, BeforeValidator(_parse_deadline)] = key(
        None,
        "among sweeps of one priority, one that is about to miss it is preferred",
        values=f"a time such as `{_TIME}`",
    )
    tags: Annotated[tuple[Tag, ...], AfterValidator(_sorted_unique)] = key(
        (), "labels for your own use", values="a list of names"
    )
    baseline: Baseline | None = None

    @property
    def blocks(self) -> int:
        """The number of planned blocks: all that may be needed."""
        return self.stop.n_max if self.stop is not None else self.repeat
