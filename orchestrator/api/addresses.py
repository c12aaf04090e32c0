"""The addresses that answer GET: short ones for what people ask most, and one per operation."""

from collections.abc import Iterable, Mapping

from orchestrator.app.operation import Operation, Transfer
from orchestrator.app.remote.operation_types import types_of

# {NAME} is the argument NAME of the operation; the other arguments are part of the query.
SHORT = {
    "/v1/status": "read_lab_status",
    "/v1/sweeps": "list_sweeps",
    "/v1/sweeps/{name}": "show_sweep",
    "/v1/sweeps/{name}/notes": "list_notes",
    "/v1/sweeps/{sweep}/trials": "list_trials",
    "/v1/trials/{prefix}": "show_trial",
    "/v1/phones": "list_phones",
    "/v1/phones/{serial}": "find_phone",
    "/v1/hosts": "list_hosts",
    "/v1/notices": "list_notices",
    "/v1/audit": "list_audit",
    "/v1/trends": "list_trends",
}


def reads(called: Operation) -> bool:
    """Return whether an operation changes nothing, so that GET may call it."""
    transfer = types_of(called.function).transfer
    return not called.changes and (transfer is None or transfer[1] is Transfer.DOWNLOAD)


def operation_path(called: Operation) -> str:
    """Return the address that every operation has."""
    return f"/v1/operations/{called.name}"


def reading_addresses(operations: Iterable[Operation]) -> Mapping[str, Operation]:
    """Return every address that answers GET with the result of an operation."""
    known = {each.name: each for each in operations}
    short = {path: known[name] for path, name in SHORT.items() if name in known}
    return short | {operation_path(each): each for each in known.values() if reads(each)}
