"""Exit codes, which scripts rely on."""

from orchestrator.app.app_errors import error_kind
from workloads.protocol.faults import FarmError

FAILURES, NOTHING = 5, 6
THRESHOLD_EXCEEDED = 9

MEANINGS = {
    0: "success",
    1: "a bug: the file that the message names has the details",
    2: "wrong usage: the command, a name or an option",
    3: "a file is invalid: a sweep, a manifest, lab.toml",
    4: "a service cannot be reached: broker, store, scheduler, agent, API",
    5: "something failed or is missing (watch --exit-status, demo, study, a check, doctor)",
    6: "nothing matches: no phone, no trial, no run",
    7: "refused: the state of the lab or of the results does not allow it",
    8: "timed out while waiting",
    9: "a comparison or a trend exceeded its limit (--fail-on)",
    10: "the token of the API is missing, unknown, expired or revoked",
    11: "the role of the token does not allow it",
    130: "interrupted with Ctrl-C",
}


def exit_code(error: FarmError) -> int:
    return error_kind(error).exit_code
