"""Operations and roles: the functions that a lab offers, and the role that each requires.

An operation is an ordinary function on a LabConnection. Through a connection that has a `remote`, a
call goes to the API of the lab instead; routes and client are both derived from this registry.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar, cast

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection

Function = TypeVar("Function", bound=Callable[..., Any])


class Transfer(StrEnum):
    """The direction of a file that an operation reads or writes."""

    UPLOAD = "upload"
    DOWNLOAD = "download"


Upload = Annotated[BinaryIO, Transfer.UPLOAD]  # a file that the operation reads
Download = Annotated[BinaryIO, Transfer.DOWNLOAD]  # a file that the operation writes


class Role(StrEnum):
    """What a user may do; every role includes the ones before it."""

    VIEWER = "viewer"  # read everything, and write notes
    OPERATOR = "operator"  # submit and control sweeps, phones and hosts
    ADMIN = "admin"  # change the store itself

    def includes(self, other: "Role") -> bool:
        """Return whether this role may do what needs the other one."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True)
class Operation:
    """A function of this package that a user can call, and the role that it needs."""

    name: str
    role: Role
    function: Callable[..., Any]
    heavy: bool = False
    changes: bool = True  # something of the lab


OPERATIONS: dict[str, Operation] = {}


def operation(
    role: Role, heavy: bool = False, changes: bool | None = None
) -> Callable[[Function], Function]:
    """Register a function as an operation; its first parameter is the LabConnection.

    The API runs few heavy ones at once: those that use the processor for seconds. What needs no
    more than a viewer changes nothing, unless it says so.
    """
    may_change = role is not Role.VIEWER if changes is None else changes

    def register(function: Function) -> Function:
        registered = Operation(function.__name__, role, function, heavy, may_change)
        OPERATIONS[function.__name__] = registered

        @functools.wraps(function)
        def call(lab: "LabConnection", *args: Any, **kwargs: Any) -> Any:
            if lab.remote is None:
                return function(lab, *args, **kwargs)
            return lab.remote.call(registered, args, kwargs)

        return cast(Function, call)

    return register
