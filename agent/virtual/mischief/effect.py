"""What a kind of trouble is: a name, some options, a start and a stop.

A kind acts through its victim's seams only; whatever it changes, its stop puts back.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import ClassVar

from agent.virtual.adb.server import PhoneServer
from agent.virtual.mischief.wire import TroubledWire
from agent.virtual.phone import Phone
from agent.virtual.shell.call import Call, Program


class BadMischief(ValueError):
    """A script or request that cannot be obeyed."""


@dataclass(eq=False)
class Victim:
    """One phone with everything that trouble may take hold of."""

    phone: Phone
    door: PhoneServer
    others: tuple[str, ...]  # serials of its neighbours
    wire: TroubledWire = field(default_factory=TroubledWire)
    twists: list["Outputs"] = field(default_factory=list)
    refusals: list[Callable[[str], bool]] = field(default_factory=list)
    pulled: set[object] = field(default_factory=set)  # who keeps the cable out


@dataclass(eq=False)
class Effect(ABC):
    """One trouble at work on one phone; its fields are its options."""

    # May it start in the middle of the very event that triggers it, or only just after?
    abrupt: ClassVar[bool] = True
    # Does it last until it is stopped, or is it over as soon as it has begun?
    lasting: ClassVar[bool] = True
    # Called by an effect that is over before anybody stopped it.
    ended: Callable[[], None] = field(default=lambda: None, init=False, repr=False)

    @abstractmethod
    def start(self, victim: Victim) -> None:
        """Begin."""

    def stop(self, victim: Victim) -> None:  # noqa: B027 - what is over at once has nothing to stop
        """Put back what start changed."""

    def heard(self, victim: Victim, event: str, facts: dict[str, object]) -> None:  # noqa: B027
        """Something happened on the phone while this is at work."""


@dataclass(eq=False)
class Outputs(Effect):
    """A trouble of what commands print; `command` is a glob over the words as typed."""

    command: str = "cat *"

    def start(self, victim: Victim) -> None:
        victim.twists.append(self)

    def stop(self, victim: Victim) -> None:
        victim.twists.remove(self)

    def matches(self, call: Call) -> bool:
        return fnmatchcase(" ".join(call.argv), self.command)

    @abstractmethod
    async def run(self, call: Call, program: Program) -> int:
        """Run the command, in this trouble's way."""


def make_effect(kind: type[Effect], options: dict[str, object]) -> Effect:
    """An effect with its options, each turned into its field's type."""
    known = {option.name: option for option in fields(kind) if option.init}
    given: dict[str, object] = {}
    for name, value in options.items():
        if name not in known:
            choices = ", ".join(known) or "none"
            raise BadMischief(f"'{name}' is no option here; there are: {choices}")
        given[name] = _turned(name, value, type(known[name].default))
    return kind(**given)


def _turned(name: str, value: object, wanted: type) -> object:
    try:
        if wanted is bool:
            words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
            return words[str(value).lower()]
        if wanted is int and isinstance(value, str):
            return int(value, 0)
        return wanted(value)
    except (KeyError, ValueError, TypeError):
        raise BadMischief(f"{name}={value!r} is not of the kind {wanted.__name__}") from None
