"""The facts of a phone that a selector may name, and the tests that it is made of.

Every test answers with what speaks against a phone, so that nobody is left out without a reason.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from workloads.measure import Source
from workloads.phone import ControlLevel, PhoneFacts
from workloads.text import safe_text

_LEVELS = {level.value: rank for rank, level in enumerate(ControlLevel)}
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True)
class Subject:
    """What a selector is held against."""

    facts: PhoneFacts
    tags: frozenset[str]


def _version(text: str) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("."))) if re.fullmatch(r"\d+(\.\d+)*", text) else None


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def _not_little(facts: PhoneFacts) -> int:
    least = min((cluster.capacity for cluster in facts.clusters), default=0)
    return sum(len(cluster.cpus) for cluster in facts.clusters if cluster.capacity > least)


def _source(facts: PhoneFacts) -> str:
    time = facts.provenance.time if facts.provenance else None
    return time.source.value if time else Source.PHONE.value


@dataclass(frozen=True)
class Fact:
    """A fact that can be compared: how it is found, how a written value is read, what it takes."""

    find: Callable[[PhoneFacts], Any]
    read: Callable[[str], Any] | None = None  # None: a text, compared as a pattern
    wanted: str = ""


_NUMBER = (_number, "a number")
FACTS = {
    "serial": Fact(lambda facts: facts.serial),
    "model": Fact(lambda facts: facts.model),
    "soc": Fact(lambda facts: facts.soc),
    "abi": Fact(lambda facts: facts.abi),
    "gpu": Fact(lambda facts: facts.gpu.name if facts.gpu else "none"),
    "source": Fact(_source),
    "android": Fact(lambda facts: _version(facts.android), _version, "a version such as 12"),
    "ram_mb": Fact(lambda facts: facts.ram_mb, *_NUMBER),
    "cores": Fact(lambda facts: facts.cores, *_NUMBER),
    "big": Fact(_not_little, *_NUMBER),
    "little": Fact(lambda facts: facts.cores - _not_little(facts), *_NUMBER),
    "control": Fact(
        lambda facts: _LEVELS[facts.control.value], _LEVELS.get, f"one of {', '.join(_LEVELS)}"
    ),
}
FLAGS: dict[str, Callable[[PhoneFacts], bool]] = {
    "root": lambda facts: facts.rooted,
    "simulated": lambda facts: _source(facts) == Source.SIMULATED,
}
TAG = "tag"
NAMES = (*FACTS, *FLAGS, TAG)


def _quoted(text: str) -> str:
    """A text that may hold anything but both kinds of quotes, as it may be written."""
    return f'"{text}"' if "'" in text else f"'{text}'"


def _plain(text: str) -> str:
    return text if re.fullmatch(r"[\w.*?:+-]+", text) else _quoted(text)


@dataclass(frozen=True)
class Flag:
    """Something that is so or is not."""

    name: str

    def why_not(self, subject: Subject) -> str | None:
        """What speaks against a phone."""
        return None if FLAGS[self.name](subject.facts) else f"not {self.name}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Pattern:
    """A pattern that covers serial, model or SoC."""

    pattern: str

    def why_not(self, subject: Subject) -> str | None:
        """What speaks against a phone."""
        names = (subject.facts.serial, subject.facts.model, subject.facts.soc)
        if any(fnmatchcase(name.lower(), self.pattern) for name in names):
            return None
        return f"neither serial nor model nor soc is {safe_text(self.pattern)}"

    def __str__(self) -> str:
        return _quoted(self.pattern)


@dataclass(frozen=True)
class Compared:
    """A fact compared with one value, or with several of which one must do."""

    name: str
    sign: str
    values: tuple[str, ...]

    def why_not(self, subject: Subject) -> str | None:
        """What speaks against a phone."""
        return None if self._holds(subject) else self._reason(subject)

    def _holds(self, subject: Subject) -> bool:
        if self.name == TAG:
            return (self.values[0] in subject.tags) == (self.sign == "==")
        fact = FACTS[self.name]
        found = fact.find(subject.facts)
        if fact.read is None:
            hit = any(fnmatchcase(str(found).lower(), value) for value in self.values)
            return hit == (self.sign == "==")
        if found is None:
            return False
        relation = _RELATIONS[self.sign]
        return any(relation(found, fact.read(value)) for value in self.values)

    def _reason(self, subject: Subject) -> str:
        if self.name == TAG:
            has = "has no" if self.sign == "==" else "has the"
            return f"it {has} tag {self.values[0]}"
        shown = getattr(subject.facts, self.name, None)
        if not isinstance(shown, str | int):
            shown = FACTS[self.name].find(subject.facts)
        if self.sign == "!=":
            return f"{self.name} is {safe_text(shown, 60)}"
        sign = "" if self.sign == "==" else f"{self.sign} "
        wanted = safe_text(" or ".join(self.values), 60)
        return f"{self.name} is {safe_text(shown, 60)}, not {sign}{wanted}"

    def __str__(self) -> str:
        if len(self.values) > 1:
            return f"{self.name} in ({', '.join(map(_plain, sorted(self.values)))})"
        return f"{self.name} {self.sign} {_plain(self.values[0])}"


@dataclass(frozen=True)
class Not:
    """The opposite."""

    part: "Part"

    def why_not(self, subject: Subject) -> str | None:
        """What speaks against a phone."""
        return f"it is: {self.part}" if self.part.why_not(subject) is None else None

    def __str__(self) -> str:
        return f"not {self.part}"


@dataclass(frozen=True)
class All:
    """All of several."""

    parts: tuple["Part", ...]

    def why_not(self, subject: Subject) -> str | None:
        """What speaks against a phone."""
        return next((why for part in self.parts if (why := part.why_not(subject))), None)

    def __str__(self) -> str:
        return f"({' and '.join(sorted(map(str, self.parts)))})"


@dataclass(frozen=True)
class AnyOf:
    """One of several."""

    parts: tuple["Part", ...]

    def why_not(self, subject: Subject) -> str | None:
        """What speaks against a phone."""
        reasons = [part.why_not(subject) for part in self.parts]
        return None if None in reasons else "; ".join(filter(None, reasons))

    def __str__(self) -> str:
        return f"({' or '.join(sorted(map(str, self.parts)))})"


Part = Flag | Pattern | Compared | Not | All | AnyOf
