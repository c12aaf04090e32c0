"""How the arguments and the result of an operation are written as JSON, from its type hints."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json

import orchestrator.app
from orchestrator.app.operation import OPERATIONS, Operation, Transfer
from orchestrator.sweepfile.workload_reader import FetchFile
from workloads.protocol import messages
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

_JSON = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", allow_inf_nan=False)
FILES_MAX = 64
NUMBER_MAX = 2**53  # larger integers do not fit into a column of the store


@dataclass(frozen=True)
class OperationTypes:
    """The types of an operation; a file and a function that reads files are not JSON."""

    arguments: Mapping[str, TypeAdapter[Any]]
    required: frozenset[str]
    result: TypeAdapter[Any]
    transfer: tuple[str, Transfer] | None  # the parameter that is a file
    fetch: str | None  # the parameter that reads the files that a sweep names

    def arguments_to_json(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as JSON-like values."""
        return {
            name: adapter.dump_python(values[name], mode="json")
            for name, adapter in self.arguments.items()
            if name in values
        }

    def arguments_from_json(self, content: object) -> dict[str, Any]:
        """Return the arguments of a call; InvalidRequest says what is wrong."""
        if not isinstance(content, dict):
            raise InvalidRequest("the arguments are not a JSON object; write {NAME: VALUE, ...}")
        self._check_names(content)
        return {name: self._argument(name, value) for name, value in content.items()}

    def arguments_from_text(self, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return arguments as an address has them: plain words, or JSON where words do not fit."""
        self._check_names(texts)
        return {name: self._from_text(name, values) for name, values in texts.items()}

    def _from_text(self, name: str, values: Sequence[str]) -> Any:
        given: Any = values[0] if len(values) == 1 else list(values)
        with suppress(ValidationError):
            self.arguments[name].validate_python(given)
            return self._argument(name, given)
        with suppress(ValueError):
            given = from_json(values[0], allow_inf_nan=False) if len(values) == 1 else given
        return self._argument(name, given)

    def _check_names(self, content: Mapping[Any, Any]) -> None:
        unknown = sorted(set(map(str, content)) - set(self.arguments))
        missing = sorted(self.required - set(content))
        if unknown or missing:
            what = f"unknown argument {unknown[0]}" if unknown else f"argument {missing[0]} missing"
            raise InvalidRequest(f"{safe_text(what, 80)}; it takes: {', '.join(self.arguments)}")

    def _argument(self, name: str, value: Any) -> Any:
        try:
            given = self.arguments[name].validate_python(value, strict=False)
            plain = self.arguments[name].dump_python(given)
        except (ValidationError, RecursionError) as error:
            first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "too deep"
            raise InvalidRequest(f"argument {name} is invalid: {safe_text(first, 200)}") from error
        if not _numbers_are_possible(plain):
            raise InvalidRequest(f"argument {name} is invalid: a number is too large")
        return given


def _numbers_are_possible(content: object) -> bool:
    """Return whether all numbers are finite and of a possible size; dataclasses accept any."""
    if isinstance(content, Mapping):
        return all(map(_numbers_are_possible, content.values()))
    if isinstance(content, list | tuple | set | frozenset):
        return all(map(_numbers_are_possible, content))
    return not isinstance(content, int | float) or abs(content) <= NUMBER_MAX


def load_operations() -> dict[str, Operation]:
    """Import every module with operations; return all operations by name."""
    for module in pkgutil.iter_modules(orchestrator.app.__path__):
        importlib.import_module(f"orchestrator.app.{module.name}")
    return OPERATIONS


@functools.cache
def types_of(function: Callable[..., Any]) -> OperationTypes:
    """Return the types of an operation's function."""
    module = importlib.import_module(function.__module__)
    hints = get_type_hints(function, vars(module), vars(messages), include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    arguments, transfer, fetch = dict[str, TypeAdapter[Any]](), None, None
    for parameter in parameters:
        hint = hints[parameter.name]
        direction = next((item for item in get_args(hint) if isinstance(item, Transfer)), None)
        if direction is not None:
            transfer = (parameter.name, direction)
        elif hint == FetchFile:
            fetch = parameter.name
        else:
            arguments[parameter.name] = _adapter(hint)
    required = {each.name for each in parameters if each.default is inspect.Parameter.empty}
    result = _adapter(hints["return"])
    return OperationTypes(arguments, frozenset(required & set(arguments)), result, transfer, fetch)


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=_JSON)
    except PydanticUserError:  # a model or a dataclass has its own configuration
        return TypeAdapter(hint)
