"""The states of runs, sweeps, reports and phones, as the store keeps them."""

from enum import StrEnum


class RunState(StrEnum):
    """The state of a planned run."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # the trial is precise enough without it, or the budget is exceeded
    BLOCKED = "blocked"  # it crashed on two phones, or cannot work; an operator has to decide
    CANCELLED = "cancelled"


class SweepState(StrEnum):
    """Whether runs of a sweep are dispatched."""

    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"  # no run is queued or running
    CANCELLED = "cancelled"


class PausedBy(StrEnum):
    """Who paused a sweep; resuming one that its budget paused removes that budget."""

    PERSON = "person"
    BUDGET = "budget"


class ReportStatus(StrEnum):
    """How the store classified a report."""

    ACCEPTED = "accepted"
    VOID = "void"
    FAULT = "fault"
    STALE = "stale"  # a newer attempt had started before it arrived


class Health(StrEnum):
    """Whether a phone gets runs."""

    GOOD = "good"
    SUSPECT = "suspect"
    QUARANTINED = "quarantined"
    RETIRED = "retired"  # permanently: neither runs nor trials of new sweeps
