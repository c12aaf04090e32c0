"""Errors of operations, and one kind for every error that an operation can raise.

The command line turns kinds into exit codes.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Self

from workloads.protocol.faults import (
    BadFile,
    BrokerDown,
    FarmError,
    FarmTrouble,
    InvalidRequest,
    StoreDown,
)


class NoPhoneMatches(InvalidRequest):
    """no phone matches"""

    def __init__(self, text: str = "", skipped: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.skipped = dict(skipped or {})  # reason by phone


class InvalidState(InvalidRequest):
    """the state of the lab does not allow it"""


class TimedOut(FarmTrouble):
    """timed out while waiting"""


class TooBusy(FarmTrouble):
    """too many requests at once"""


class ApiDown(FarmTrouble):
    """the API of the lab cannot be reached"""


class NotAuthenticated(InvalidRequest):
    """the token is missing, unknown, expired or revoked"""


class NotPermitted(InvalidRequest):
    """the role of the token does not allow it"""


class TooMuchData(InvalidRequest):
    """the request is too large"""


class ErrorKind(Enum):
    """What kind of error an operation ended with: its code, HTTP status and exit code."""

    INVALID_REQUEST = "invalid_request", 400, 2
    INVALID_FILE = "invalid_file", 422, 3
    UNREACHABLE = "unreachable", 503, 4
    NOTHING_MATCHES = "nothing_matches", 404, 6
    REFUSED = "refused", 409, 7
    TIMED_OUT = "timed_out", 504, 8
    NOT_AUTHENTICATED = "not_authenticated", 401, 10
    NOT_PERMITTED = "not_permitted", 403, 11
    TOO_LARGE = "too_large", 413, 2
    BUG = "bug", 500, 1

    http_status: int
    exit_code: int

    def __new__(cls, code: str, http_status: int = 0, exit_code: int = 0) -> Self:
        kind = object.__new__(cls)
        kind._value_ = code
        kind.http_status, kind.exit_code = http_status, exit_code
        return kind


def error_kind(error: FarmError) -> ErrorKind:
    """Return the kind of an error; the first class that fits decides."""
    from orchestrator.analysis.measurements import (
        IncompatibleSources,
        NothingMatches,
        NothingToCompare,
    )
    from orchestrator.sweepfile.sweep_errors import BadSweep
    from workloads.lab.connection_url import BadSettings

    kinds: tuple[tuple[tuple[type[FarmError], ...], ErrorKind], ...] = (
        ((BadSweep, BadSettings, BadFile), ErrorKind.INVALID_FILE),
        ((NoPhoneMatches, NothingMatches), ErrorKind.NOTHING_MATCHES),
        ((InvalidState, IncompatibleSources, NothingToCompare), ErrorKind.REFUSED),
        ((TimedOut,), ErrorKind.TIMED_OUT),
        ((NotAuthenticated,), ErrorKind.NOT_AUTHENTICATED),
        ((NotPermitted,), ErrorKind.NOT_PERMITTED),
        ((TooMuchData,), ErrorKind.TOO_LARGE),
        ((BrokerDown, StoreDown, FarmTrouble), ErrorKind.UNREACHABLE),
        ((InvalidRequest,), ErrorKind.INVALID_REQUEST),
    )
    return next((kind for classes, kind in kinds if isinstance(error, classes)), ErrorKind.BUG)
