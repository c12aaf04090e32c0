"""The state of the screen: the latest snapshot of the lab, and what the user has selected."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum

from orchestrator.app.lab_status import KnownPhone, LabView
from orchestrator.app.phone_filter import PhoneFilter
from workloads.protocol.messages import Event

TRACE_KEPT = 240


@dataclass(frozen=True)
class PhoneTrace:
    """The last minutes of a phone: one value per heartbeat."""

    temps_c: tuple[float, ...] = ()
    clocks_ghz: tuple[float, ...] = ()
    powers_w: tuple[float, ...] = ()

    def extended(self, phone: KnownPhone) -> "PhoneTrace":
        """Return the trace with one more heartbeat."""
        clock = max((phone.status.clocks_khz or phone.status.locked_khz).values(), default=None)
        return PhoneTrace(
            _append(self.temps_c, phone.status.temp_c),
            _append(self.clocks_ghz, None if clock is None else clock / 1e6),
            _append(self.powers_w, phone.status.power_w),
        )


def _append(values: tuple[float, ...], value: float | None) -> tuple[float, ...]:
    return values if value is None else (*values[1 - TRACE_KEPT :], value)


NO_TRACE = PhoneTrace()


@dataclass(frozen=True)
class LabSnapshot:
    """The latest successful poll, the newest events, and why there is no newer poll."""

    view: LabView
    lab: str = ""
    events: tuple[Event, ...] = ()
    traces: Mapping[str, PhoneTrace] = field(default_factory=dict)
    outage: str = ""  # why the lab cannot be polled
    skipped: int = 0  # how often events came too fast to show


class Mode(Enum):
    """What the screen shows, and so what keys mean."""

    TABLE = "table"
    PHONE = "phone"
    HELP = "help"
    FILTER = "filter"
    CONFIRM = "confirm"


class Sort(Enum):
    """The order of the phones."""

    STATE = "state"
    NAME = "name"
    HOST = "host"
    TEMP = "temp"
    BATTERY = "battery"
    LEFT = "left"


class ActionKind(StrEnum):
    """What a key can change."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    RAISE = "raise"
    LOWER = "lower"
    QUARANTINE = "quarantine"
    RELEASE = "release"


@dataclass(frozen=True)
class PendingAction:
    """A change that the user requested: its target, and the question to confirm it."""

    kind: ActionKind
    target: str
    question: str


@dataclass(frozen=True)
class Ui:
    """What the user has selected; every key returns a new one."""

    width: int = 80
    height: int = 24
    mode: Mode = Mode.TABLE
    selected: str = ""
    top: int = 0
    sort: Sort = Sort.STATE
    filter: str = ""
    matches: PhoneFilter | None = None
    typed: str = ""
    filter_error: str = ""
    pending: PendingAction | None = None
    note: str = ""
    read_only: bool = False
    quit: bool = False

    def with_(self, **changes: object) -> "Ui":
        """Return a copy with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]
