"""Base classes of faults: options, a start and a stop.

A fault acts on its target only; its stop undoes whatever its start changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import ClassVar, NamedTuple

from agent.virtual.adb.phone_server import PhoneServer
from agent.virtual.mischief.faulty_wire import FaultyWire
from agent.virtual.shell.command_call import CommandCall, CommandFunction
from agent.virtual.virtual_phone import VirtualPhone


class InvalidMischief(ValueError):
    """A script or request that cannot be carried out, because of one of its keys."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(text)
        self.key = key


@dataclass(eq=False)
class InjectionTarget:
    """One phone with everything that faults may change."""

    phone: VirtualPhone
    server: PhoneServer
    neighbour_serials: tuple[str, ...]  # of the other phones of the fleet
    wire: FaultyWire = field(default_factory=FaultyWire)
    output_faults: list["OutputFault"] = field(default_factory=list)
    service_filters: list[Callable[[str], bool]] = field(default_factory=list)
    unplug_reasons: set[object] = field(default_factory=set)  # faults that keep the cable unplugged


@dataclass(eq=False)
class FaultType(ABC):
    """One fault of one phone; its fields are its options."""

    # Whether it may start inside the event that triggers it, or only just afterwards.
    starts_inside_trigger: ClassVar[bool] = True
    # Whether it lasts until it is stopped, or is over as soon as it has started.
    is_lasting: ClassVar[bool] = True
    # Whether no host can reach the phone, so that in event time its time passes by itself.
    is_outage: ClassVar[bool] = False
    # Called by a fault that ends before it is stopped.
    report_end: Callable[[], None] = field(default=lambda: None, init=False, repr=False)

    @abstractmethod
    def start(self, target: InjectionTarget) -> None:
        """Start the fault."""

    def stop(self, target: InjectionTarget) -> None:  # noqa: B027 - nothing to undo by default
        """Undo what start changed."""

    def observe(self, target: InjectionTarget, event: str, facts: dict[str, object]) -> None:  # noqa: B027
        """React to an event of the phone while the fault is active."""


class Change(NamedTuple):
    """An attribute of a part of the phone, and its value."""

    part: object
    name: str
    value: object


@dataclass(eq=False)
class ChangeFault(FaultType):
    """A fault that changes attributes of the phone's parts, and sets them back."""

    _before: list[Change] = field(default_factory=list, init=False, repr=False)

    @abstractmethod
    def changes(self, target: InjectionTarget) -> Iterable[Change]:
        """Return what to change; raise InvalidMischief if the options make no sense."""

    def start(self, target: InjectionTarget) -> None:
        changes = tuple(self.changes(target))
        self._before = [Change(part, name, getattr(part, name)) for part, name, _ in changes]
        target.phone.soc.change(lambda: _apply(changes))

    def stop(self, target: InjectionTarget) -> None:
        before, self._before = self._before, []
        target.phone.soc.change(lambda: _apply(before))


def _apply(changes: Iterable[Change]) -> None:
    for part, name, value in changes:
        setattr(part, name, value)


@dataclass(eq=False)
class OutputFault(FaultType):
    """A fault of the output of commands; `command` is a glob over the command line."""

    command: str = "cat *"

    def start(self, target: InjectionTarget) -> None:
        target.output_faults.append(self)

    def stop(self, target: InjectionTarget) -> None:
        target.output_faults.remove(self)

    def matches(self, call: CommandCall) -> bool:
        return fnmatchcase(" ".join(call.argv), self.command)

    @abstractmethod
    async def run(self, call: CommandCall, program: CommandFunction) -> int:
        """Run the command with the fault."""


def build_fault(kind: type[FaultType], options: dict[str, object]) -> FaultType:
    """Make a fault with its options, each converted to the type of its field."""
    options_by_name = {option.name: option for option in fields(kind) if option.init}
    values: dict[str, object] = {}
    for name, value in options.items():
        if name not in options_by_name:
            choices = ", ".join(options_by_name) or "none"
            raise InvalidMischief(f"unknown option '{name}'; use one of: {choices}", key=name)
        values[name] = _convert_option(name, value, type(options_by_name[name].default))
    return kind(**values)


def _convert_option(name: str, value: object, option_type: type) -> object:
    try:
        if option_type is bool:
            booleans = {
                "true": True,
                "1": True,
                "yes": True,
                "false": False,
                "0": False,
                "no": False,
            }
            return booleans[str(value).lower()]
        if option_type is int and isinstance(value, str):
            return int(value, 0)
        return option_type(value)
    except (KeyError, ValueError, TypeError):
        text = f"{name}={value!r} is not of type {option_type.__name__}"
        raise InvalidMischief(text, key=name) from None
