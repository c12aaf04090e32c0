"""The states of runs, sweeps, reports and phones: one word each, with its meaning."""

from enum import StrEnum

from workloads.text import TextEnum


class RunState(TextEnum):
    """The state of a planned run."""

    QUEUED = "queued", "waits for its phone"
    LEASED = "leased", "an agent is executing it"
    DONE = "done", "has an accepted report with a valid or suspect verdict"
    FAILED = "failed", "will not be repeated; the last report has the reason"
    SKIPPED = (
        "skipped",
        "not needed: its trial reached its precision, or the budget is used up",
    )
    BLOCKED = (
        "blocked",
        "its case crashed attempts on two phones, or an earlier run of its trial showed that it "
        "cannot work; `farm sweep retry` unblocks it",
    )
    CANCELLED = "cancelled", "was cancelled by an operator"


class SweepState(TextEnum):
    """Whether runs of a sweep are dispatched."""

    ACTIVE = "active", "its queued runs are dispatched"
    PAUSED = "paused", "starts no runs; `farm sweep resume` continues it"
    FINISHED = (
        "finished",
        "no run is queued or leased; `farm sweep retry`, or submitting more repeats, makes it "
        "active again",
    )
    CANCELLED = "cancelled", "ended by an operator"


class PausedBy(StrEnum):
    """Who paused a sweep; resuming one that its budget paused removes that budget."""

    PERSON = "person"
    BUDGET = "budget"


class ReportStatus(TextEnum):
    """How the store classified a report."""

    ACCEPTED = "accepted", "the result of its run"
    VOID = "void", "the verdict was void; the run is repeated"
    FAULT = "fault", "the attempt failed"
    STALE = (
        "stale",
        "the report arrived after a newer attempt had started; it is kept but not used",
    )


HELD_BEFORE = "suspect"  # how older labs stored a phone that is held; now only runs are suspect


class Health(TextEnum):
    """Whether a phone may get runs."""

    GOOD = "good", "gets runs"
    HELD = "held", "gets no runs until a check passes, automatic or by `farm phone check`"
    QUARANTINED = "quarantined", "gets no runs until a check or `farm phone release`"
    RETIRED = "retired", "gets no runs and no trials of new sweeps until `farm phone release`"

    @classmethod
    def _missing_(cls, value: object) -> "Health | None":
        return cls.HELD if value == HELD_BEFORE else None


class PhoneAvailability(TextEnum):
    """What a phone does, or why it gets no runs; the first that holds, from the last to the first.

    Commands, screen, page and API show this one word.
    """

    IDLE = "idle", "gets the next run"
    DRAINED = "drained", "its host is drained; `farm host drain HOST --off` ends that"
    RESERVED = "reserved", "only a person uses it; `farm phone reserve PHONE --off` ends that"
    BUSY = "busy", "executes a job; the screen and the page show the stage of the job instead"
    HELD = Health.HELD.value, Health.HELD.text
    AWAY = "away", "no host reports it: check its cable, USB debugging and its host"
    QUARANTINED = Health.QUARANTINED.value, Health.QUARANTINED.text
    RETIRED = Health.RETIRED.value, Health.RETIRED.text
