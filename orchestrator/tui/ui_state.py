"""The state of the screen: what the user has selected."""

from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from orchestrator.app.read_trials import TrialResult
from orchestrator.app.screen.phone_filter import PhoneFilter


class Mode(Enum):
    """What the screen shows, and so what keys mean."""

    TABLE = "table"
    PHONE = "phone"
    HELP = "help"
    FILTER = "filter"
    SEARCH = "search"
    MATRIX = "matrix"
    CELL = "cell"
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
    before: tuple[str, PhoneFilter | None] = ("", None)  # the filter before it is edited
    search: str = ""  # words that events must contain
    cell: tuple[int, int] = (0, 0)  # row and column of the matrix
    opened: str = ""  # the label of the cell that is open
    trials: tuple[TrialResult, ...] | None = None  # of that cell; None until they are read
    sweep: str = ""  # the sweep that the user chose to follow
    pending: PendingAction | None = None
    note: str = ""
    read_only: bool = False
    quit: bool = False

    def with_(self, **changes: object) -> "Ui":
        """Return a copy with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]
