"""Operations and roles: which functions can be asked of a lab, and who may ask them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Role(StrEnum):
    """What a user may do; every role includes the ones before it."""

    VIEWER = "viewer"  # read everything
    OPERATOR = "operator"  # submit and control sweeps, phones and hosts
    ADMIN = "admin"  # change the store itself


@dataclass(frozen=True)
class Operation:
    """A function of this package that a user can call, and the role that it needs."""

    name: str
    role: Role
    function: Callable[..., Any]


OPERATIONS: dict[str, Operation] = {}


def operation(role: Role) -> Callable[[Function], Function]:
    """Register a function as an operation; its first parameter is the LabConnection."""

    def register(function: Function) -> Function:
        OPERATIONS[function.__name__] = Operation(function.__name__, role, function)
        return function

    return register
