"""Failures, classified by blame: the blame decides whether a run is repeated.

FarmError
├─ InvalidRequest  REQUEST    the request is wrong               never repeated
│    BadFile · TooLarge
├─ PhoneTrouble    PHONE      the phone or its cable             repeated on this phone, bounded
│    Unreachable · Hung · Restarted · ProcessesKilled · ShellFailed
├─ ConditionUnmet  CONDITION  healthy, but not as requested      repeated later, bounded
│    TooHot · SensorMissing · ClockSlipped · BatteryLow
├─ RunnerFailed    RUNNER     the runner or the workload         never repeated: it is a finding
│    NeverStarts · RunnerDied (Killed · DiesLater) · BadOutput
└─ FarmTrouble     FARM       the infrastructure of the lab      repeated; does not count
     LeaseLost · PhoneAway · BrokerDown · StoreDown · Interrupted · Cancelled

The docstring of each class is its default message, so it has the form of a message: what is wrong;
what to do. A report carries a failure as a Fault, whose kind and blame are all that programs use.
"""

import re
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from workloads.protocol.base import WireModel
from workloads.protocol.stage import Stage
from workloads.text import safe_text


class Blame(StrEnum):
    """What has to change before the run can succeed."""

    REQUEST = "request"
    PHONE = "phone"
    CONDITION = "condition"
    RUNNER = "runner"
    FARM = "farm"


class FaultKind(StrEnum):
    """Every kind of failure that a report can carry; each is that of the class of its name."""

    FARM_ERROR = "farm_error"
    INVALID_REQUEST = "invalid_request"
    BAD_FILE = "bad_file"
    TOO_LARGE = "too_large"
    PHONE_TROUBLE = "phone_trouble"
    UNREACHABLE = "unreachable"
    HUNG = "hung"
    RESTARTED = "restarted"
    PROCESSES_KILLED = "processes_killed"
    TRAINING_KILLED = "training_killed"
    SHELL_FAILED = "shell_failed"
    CONDITION_UNMET = "condition_unmet"
    TOO_HOT = "too_hot"
    SENSOR_MISSING = "sensor_missing"
    CLOCK_SLIPPED = "clock_slipped"
    BATTERY_LOW = "battery_low"
    RUNNER_FAILED = "runner_failed"
    RUNNER_DIED = "runner_died"
    NEVER_STARTS = "never_starts"
    KILLED = "killed"
    DIES_LATER = "dies_later"
    BAD_OUTPUT = "bad_output"
    FARM_TROUBLE = "farm_trouble"
    LEASE_LOST = "lease_lost"
    PHONE_AWAY = "phone_away"
    BROKER_DOWN = "broker_down"
    STORE_DOWN = "store_down"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    ADB_DOWN = "adb_down"
    BAD_MESSAGE = "bad_message"


class Fault(WireModel):
    """A failure as data, as reports carry it and the store keeps it."""

    blame: Blame
    kind: FaultKind
    stage: Stage
    text: str = Field(max_length=1000, description="for people; programs use kind and blame")

    def __str__(self) -> str:
        return f"{self.kind} in stage {self.stage}: {self.text}"


class FarmError(Exception):
    """unexpected error; see the log of the service"""

    blame: ClassVar[Blame] = Blame.FARM
    kind: ClassVar[FaultKind] = FaultKind.FARM_ERROR

    def __init_subclass__(cls) -> None:
        """Give a class the kind of its name; without one, it has that of its base class."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
        if name in FaultKind.__members__:
            cls.kind = FaultKind[name]

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or type(self).__doc__)

    def fault(self, stage: Stage) -> Fault:
        """Return the error as data for a report."""
        text = safe_text(self, limit=600)
        return Fault(blame=self.blame, kind=self.kind, stage=stage, text=text)


class InvalidRequest(FarmError):
    """the request cannot be carried out as written; correct it"""

    blame = Blame.REQUEST


class BadFile(InvalidRequest):
    """the file cannot be used; check its path and content"""


class TooLarge(InvalidRequest):
    """the workload will probably not fit into the phone's memory; 'too_large: try' tries it"""


class PhoneTrouble(FarmError):
    """the phone or its cable failed; check both"""

    blame = Blame.PHONE


class Unreachable(PhoneTrouble):
    """adb does not see the phone; check cable and power"""


class Hung(PhoneTrouble):
    """the phone did not answer in time; it is tried again"""


class Restarted(PhoneTrouble):
    """the phone restarted during the run; it is tried again"""


class ProcessesKilled(PhoneTrouble):
    """the phone killed runner and watchdog together; check the cable, or root the phone"""


class TrainingKilled(PhoneTrouble):
    """the phone killed the training; free its memory, or allow more attempts with 'retry'"""


class ShellFailed(PhoneTrouble):
    """a command failed on the phone"""


class ConditionUnmet(FarmError):
    """the phone is healthy but not in the requested state; it is tried again later"""

    blame = Blame.CONDITION


class TooHot(ConditionUnmet):
    """the phone did not cool down in the time allowed; the text names a start that passes"""


class SensorMissing(ConditionUnmet):
    """no temperature sensor gives a plausible value; check the phone with 'farm phone check'"""


class ClockSlipped(ConditionUnmet):
    """the requested CPU clocks could not be set or held; try others, or 'freq: free'"""


class BatteryLow(ConditionUnmet):
    """the battery is below the requested level; charge the phone"""


class RunnerFailed(FarmError):
    """the runner failed"""

    blame = Blame.RUNNER


class RunnerDied(RunnerFailed):
    """the runner exited without a final record"""


class NeverStarts(RunnerFailed):
    """the runner exited before its first step"""


class Killed(RunnerDied):
    """the phone killed the runner because memory ran out; use a smaller batch"""


class DiesLater(RunnerDied):
    """the runner exited in the middle of its work"""


class BadOutput(RunnerFailed):
    """the output of the runner breaks its contract"""


class FarmTrouble(FarmError):
    """the infrastructure of the lab failed; the run is repeated"""


class LeaseLost(FarmTrouble):
    """the phone was leased to another attempt; this attempt is abandoned"""


class PhoneAway(FarmTrouble):
    """the phone is not connected to this host; the run is dispatched again"""


class BrokerDown(FarmTrouble):
    """the broker cannot be reached; check that it runs"""


class StoreDown(FarmTrouble):
    """the store cannot be reached; check that it runs"""


class Interrupted(FarmTrouble):
    """the agent stopped before the run had ended; the run is repeated"""


class Cancelled(FarmTrouble):
    """the run was cancelled"""
