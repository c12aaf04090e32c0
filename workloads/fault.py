"""Failures, sorted by blame; blame decides what follows, so nobody decides it at the raise site.

FarmError
├─ Refused         REQUEST    the question is wrong        never again
│    BadFile · TooLarge
├─ PhoneTrouble    PHONE      phone or cable               again on this phone, bounded
│    Unreachable · Hung · ShellFailed · Restarted
├─ ConditionUnmet  CONDITION  healthy, but not as asked    later, bounded
│    TooHot · SensorMissing · ClockSlipped · BatteryLow
├─ RunnerFailed    RUNNER     our binary or its plan       never again: it is a finding
│    NeverStarts · RunnerDied (Killed · DiesLater) · BadOutput
└─ FarmTrouble     FARM       our own plumbing             as often as needed; does not count
     LeaseLost · PhoneAway · BrokerDown · StoreDown · Interrupted · Cancelled

Each class's docstring is its default message.
"""

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from workloads.noun import Noun
from workloads.text import safe_text


class Blame(StrEnum):
    """Who has to do better."""

    REQUEST = "request"
    PHONE = "phone"
    CONDITION = "condition"
    RUNNER = "runner"
    FARM = "farm"


class Fault(Noun):
    """A failure as data: it crosses the queue and is stored."""

    blame: Blame
    kind: str = Field(max_length=64)
    stage: str = Field(max_length=64)
    text: str = Field(max_length=1000)


class FarmError(Exception):
    """Something went wrong."""

    blame: ClassVar[Blame] = Blame.FARM

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or type(self).__doc__)

    def fault(self, stage: str) -> Fault:
        """Turn the error into what is reported."""
        text = safe_text(self, limit=600)
        return Fault(blame=self.blame, kind=type(self).__name__, stage=stage, text=text)


class Refused(FarmError):
    """The request cannot be fulfilled as written."""

    blame = Blame.REQUEST


class BadFile(Refused):
    """The file cannot be used."""


class TooLarge(Refused):
    """The workload is predicted not to fit into the phone's memory."""


class PhoneTrouble(FarmError):
    """The phone or its cable failed."""

    blame = Blame.PHONE


class Unreachable(PhoneTrouble):
    """The phone is not there."""


class Hung(PhoneTrouble):
    """The phone did not answer in time."""


class Restarted(PhoneTrouble):
    """The phone restarted during the run."""


class ShellFailed(PhoneTrouble):
    """A command failed on the phone."""


class ConditionUnmet(FarmError):
    """The phone is healthy, but not in the state that was asked for."""

    blame = Blame.CONDITION


class TooHot(ConditionUnmet):
    """The phone did not cool down in the time allowed."""


class SensorMissing(ConditionUnmet):
    """No temperature sensor gives a believable value."""


class ClockSlipped(ConditionUnmet):
    """The clocks did not take the value that was written."""


class BatteryLow(ConditionUnmet):
    """The battery is below the level that was asked for."""


class RunnerFailed(FarmError):
    """The runner failed."""

    blame = Blame.RUNNER


class RunnerDied(RunnerFailed):
    """The runner ended without a word."""


class NeverStarts(RunnerFailed):
    """The runner ended before its first step."""


class Killed(RunnerDied):
    """The phone ended the runner for want of memory."""


class DiesLater(RunnerDied):
    """The runner ended in the middle of its work."""


class BadOutput(RunnerFailed):
    """The runner's output breaks its contract."""


class FarmTrouble(FarmError):
    """The farm's own plumbing failed."""


class LeaseLost(FarmTrouble):
    """Somebody with a newer lease has this phone."""


class PhoneAway(FarmTrouble):
    """The job came to a host that does not have the phone at the moment."""


class BrokerDown(FarmTrouble):
    """The broker cannot be reached."""


class StoreDown(FarmTrouble):
    """The store cannot be reached."""


class Interrupted(FarmTrouble):
    """The agent stopped before the run had ended."""


class Cancelled(FarmTrouble):
    """The run was cancelled."""
