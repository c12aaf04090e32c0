"""Exit codes: what a script can rely on. One table, for the code and for whoever asks."""

from orchestrator.analysis.refusals import Mixture, NothingMatches, NothingToCompare
from orchestrator.plan.problem import BadSweep
from workloads.fault import BadFile, BrokerDown, FarmError, FarmTrouble, Refused, StoreDown
from workloads.lab import BadSettings

FAILURES = 5
TRIPPED = 9

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


class NoPhoneMatches(Refused):
    """No phone matches the sweep."""


class NotNow(Refused):
    """The lab's state does not allow it."""


class TimedOut(FarmTrouble):
    """The time to wait is up."""


# the first class that fits decides
_CODES: tuple[tuple[type[FarmError], int], ...] = (
    (BadSweep, 3),
    (BadSettings, 3),
    (BadFile, 3),
    (NoPhoneMatches, 6),
    (NothingMatches, 6),
    (NotNow, 7),
    (Mixture, 7),
    (NothingToCompare, 7),
    (TimedOut, 8),
    (BrokerDown, 4),
    (StoreDown, 4),
    (FarmTrouble, 4),
    (Refused, 2),
)


def exit_code(error: FarmError) -> int:
    """The exit code that goes with an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)
