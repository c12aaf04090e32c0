"""Exit codes: what a script can rely on. One table, for the code and for whoever asks."""

from orchestrator.analysis.measurements import IncompatibleSources, NothingMatches, NothingToCompare
from orchestrator.app.app_errors import InvalidState, NoPhoneMatches, TimedOut
from orchestrator.sweepfile.sweep_errors import BadSweep
from workloads.lab_settings import BadSettings
from workloads.protocol.faults import (
    BadFile,
    BrokerDown,
    FarmError,
    FarmTrouble,
    InvalidRequest,
    StoreDown,
)

FAILURES = 5
THRESHOLD_EXCEEDED = 9

MEANINGS = {
    0: "done as asked",
    1: "a bug: the report it names says more",
    2: "wrong usage: the command, a name or an option",
    3: "a file is invalid: a sweep, a manifest, lab.toml",
    4: "a service cannot be reached: broker, store, scheduler, agent",
    5: "finished, but something failed (watch --exit-status, a check, doctor)",
    6: "nothing matches: no phone, no trial, no run",
    7: "refused: the state of the lab does not allow it",
    8: "timed out while waiting",
    9: "a comparison or a trend went beyond its limit (--fail-on)",
    130: "interrupted with Ctrl-C",
}


# the first class that fits decides
_CODES: tuple[tuple[type[FarmError], int], ...] = (
    (BadSweep, 3),
    (BadSettings, 3),
    (BadFile, 3),
    (NoPhoneMatches, 6),
    (NothingMatches, 6),
    (InvalidState, 7),
    (IncompatibleSources, 7),
    (NothingToCompare, 7),
    (TimedOut, 8),
    (BrokerDown, 4),
    (StoreDown, 4),
    (FarmTrouble, 4),
    (InvalidRequest, 2),
)


def exit_code(error: FarmError) -> int:
    """The exit code that goes with an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)
