"""What a screen is made of: what was seen of the lab, and what its reader is looking at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from orchestrator.app.lab_status import LabView
from orchestrator.store.phone_queries import KnownPhone
from workloads.protocol.messages import Event

TRACE_KEPT = 240
Matches = Callable[[KnownPhone], bool]


@dataclass(frozen=True)
class PhoneTrace:
    """The last minutes of a phone, a value a heartbeat."""

    temps_c: tuple[float, ...] = ()
    clocks_ghz: tuple[float, ...] = ()
    powers_w: tuple[float, ...] = ()

    def after(self, phone: KnownPhone) -> "PhoneTrace":
        """The same with one more heartbeat."""
        clock = max((phone.status.clocks_khz or phone.status.locked_khz).values(), default=None)
        return PhoneTrace(
            _with(self.temps_c, phone.status.temp_c),
            _with(self.clocks_ghz, None if clock is None else clock / 1e6),
            _with(self.powers_w, phone.status.power_w),
        )


def _with(values: tuple[float, ...], value: float | None) -> tuple[float, ...]:
    return values if value is None else (*values[1 - TRACE_KEPT :], value)


NO_TRACE = PhoneTrace()


@dataclass(frozen=True)
class LabSnapshot:
    """The last look that succeeded, what happened since, and what is wrong with looking."""

    view: LabView
    lab: str = ""
    events: tuple[Event, ...] = ()
    traces: Mapping[str, PhoneTrace] = field(default_factory=dict)
    trouble: str = ""
    missed: int = 0  # events that came faster than anybody could read


class Mode(Enum):
    """What the keys mean at the moment."""

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


@dataclass(frozen=True)
class PendingAction:
    """A change that somebody wants: what to do, to whom, and the question that is asked first."""

    verb: str
    target: str
    question: str


@dataclass(frozen=True)
class Ui:
    """What the reader has chosen; every key makes a new one of it."""

    width: int = 80
    height: int = 24
    mode: Mode = Mode.TABLE
    selected: str = ""
    top: int = 0
    sort: Sort = Sort.STATE
    filter: str = ""
    matches: Matches | None = None
    typed: str = ""
    wrong: str = ""
    ask: PendingAction | None = None
    note: str = ""
    read_only: bool = False
    quit: bool = False

    def with_(self, **changes: object) -> "Ui":
        """The same, changed."""
        return replace(self, **changes)  # type: ignore[arg-type]
