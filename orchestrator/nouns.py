"""What the rooms in the middle hand to each other: plain frozen values, no rows, no messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.fit import Fit
from workloads.measure import Metric, Provenance, Standing, Verdict
from workloads.phone import ControlLevel, PhoneFacts


@dataclass(frozen=True)
class Trial:
    """One case, under one condition, on one phone: the unit of completeness."""

    id: str
    case: Case
    condition: Condition
    phone: str


@dataclass(frozen=True)
class PlannedRun:
    """A place in the order: the given repeat of a trial, in its randomised block.

    Where several orders of a block were drawn, `places` says where the run stands in each of them,
    counted from 0 within the block; the position is that of the first one until one is chosen.
    """

    trial: str
    repeat: int
    block: int
    position: int
    places: tuple[int, ...] = ()


class RunState(StrEnum):
    """Where a run of the backlog stands."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    SPARED = "spared"  # its trial is known well enough without it, or its budget is spent
    HELD = "held"  # its case killed attempts on two phones; somebody has to look
    CANCELLED = "cancelled"


class SweepState(StrEnum):
    """Whether a sweep gets phones."""

    ACTIVE = "active"
    PAUSED = "paused"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Lease:
    """What a phone is leased for, and until when (epoch seconds) silence is taken for life."""

    sweep: str
    trial: str
    repeat: int
    attempt: int
    until: float
    label: str


@dataclass(frozen=True)
class Cell:
    """A square of a sweep's matrix: one case under one condition, on all its phones."""

    case: str
    condition: str
    runs: dict[RunState, int]
    void: int = 0


@dataclass(frozen=True)
class KnownPhone:
    """A phone as the store knows it, joined with its latest heartbeat."""

    serial: str
    host: str
    facts: PhoneFacts
    state: str = "away"
    why: str = ""
    stage: str = ""
    progress: float | None = None
    temp_c: float | None = None
    battery_pct: int | None = None
    ready_s: tuple[float, float, float] | None = None
    seen_at: datetime | None = None
    run: str = ""
    health: str = "good"
    health_why: str = ""
    tags: tuple[str, ...] = ()
    reserved_by: str = ""
    reserved_until: float = 0.0
    reserved_why: str = ""
    lease: Lease | None = None
    waiting: int = 0  # runs of the followed sweep that wait for it
    left_s: float | None = None
    steps: int | None = None
    locked_khz: dict[int, int] = field(default_factory=dict)
    clocks_khz: dict[int, int] = field(default_factory=dict)
    power_w: float | None = None


@dataclass(frozen=True)
class SweepSummary:
    """A sweep in one line."""

    id: str
    name: str
    created_at: datetime
    trials: int
    runs: dict[RunState, int] = field(default_factory=dict)
    state: SweepState = SweepState.ACTIVE
    state_why: str = ""
    owner: str = ""
    priority: int = 50
    deadline: float | None = None
    begun_at: float | None = None
    wall_s: float | None = None  # of its budget, as are the two below
    failures_max: int | None = None
    failures_share_max: float | None = None

    @property
    def total(self) -> int:
        """All runs that were planned."""
        return sum(self.runs.values())

    @property
    def done(self) -> int:
        """Runs with an accepted report."""
        return self.runs.get(RunState.DONE, 0)

    @property
    def failed(self) -> int:
        """Runs that were given up."""
        return self.runs.get(RunState.FAILED, 0)

    @property
    def left(self) -> int:
        """Runs that are queued or under way; held and cancelled ones wait for nobody."""
        return self.runs.get(RunState.QUEUED, 0) + self.runs.get(RunState.LEASED, 0)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.left == 0


@dataclass(frozen=True)
class MeasuredRun:
    """An accepted report, as comparisons and exports read it."""

    sweep: str
    trial: str
    repeat: int
    attempt: int
    block: int
    position: int
    phone: str
    host: str
    facts: PhoneFacts
    case: Case
    condition: Condition
    control: ControlLevel | None
    verdict: Verdict
    metrics: dict[str, Metric]
    started_at: datetime
    ended_at: datetime
    telemetry: str | None = None  # digest of its blob
    curve: tuple[tuple[float, float], ...] = ()  # of a long run: seconds, and step time in ms

    @property
    def valid(self) -> bool:
        """Whether the run may count in a comparison."""
        return self.verdict.standing is Standing.VALID


@dataclass(frozen=True)
class RunOutcome:
    """What became of a planned run, with figures or without."""

    trial: str
    repeat: int
    block: int
    position: int
    phone: str
    case: Case
    condition: Condition
    state: RunState
    verdict: Standing | None
    fit: Fit | None
    peak_rss_mb: float | None
    why: str


class Making(NamedTuple):
    """How a figure came to be: figures of unlike making are not compared unless that is meant."""

    source: str
    control: str
    grade: str  # of an energy: how it was found


@dataclass(frozen=True)
class MeasuredTrial:
    """A trial as comparisons know it."""

    sweep: str
    trial: str
    phone: str
    model: str
    soc: str
    case: Case
    condition: Condition


class Figure(NamedTuple):
    """One metric of one run, counting or not."""

    of: MeasuredTrial
    metric: str
    block: int
    at: datetime
    standing: Standing
    control: str
    grade: str
    value: float | None
    provenance: Provenance | None


@dataclass(frozen=True)
class TrialFigures(MeasuredTrial):
    """One metric over the runs of a trial: what comparisons are made of."""

    metric: str
    values: tuple[float, ...]  # of the valid runs, by block
    blocks: tuple[int, ...]
    times: tuple[datetime, ...]
    provenance: Provenance | None  # the weakest of them
    makings: frozenset[Making]
    left_out: Mapping[str, int]  # why runs do not count


@dataclass(frozen=True)
class Decided:
    """A line of the audit: who changed what, and how it is taken back."""

    at: datetime
    who: str
    verb: str
    object: str
    before: dict[str, Any]
    after: dict[str, Any]
    undo: str
