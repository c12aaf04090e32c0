"""The phone facts that a selector may name, and the terms that it consists of.

Every term returns why a phone does not match, so that no phone is left out without a reason.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import ControlLevel, PhoneFacts
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
class TaggedPhone:
    """What a selector is evaluated on."""

    facts: PhoneFacts
    tags: frozenset[str]


def _version(text: str) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("."))) if re.fullmatch(r"\d+(\.\d+)*", text) else None


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def _big_cores(facts: PhoneFacts) -> int:
    """Count the cores that are not in the slowest cluster."""
    slowest = min((cluster.capacity for cluster in facts.clusters), default=0)
    return sum(len(cluster.cpus) for cluster in facts.clusters if cluster.capacity > slowest)


def _source(facts: PhoneFacts) -> str:
    time = facts.provenance.time if facts.provenance else None
    return time.source.value if time else Source.PHONE.value


@dataclass(frozen=True)
class PhoneFact:
    """A fact that can be compared: how to get it, and how to parse a written value."""

    get: Callable[[PhoneFacts], Any]
    parse: Callable[[str], Any] | None = None  # None: text, compared as a pattern
    expected: str = ""


_NUMBER = (_number, "a number")
FACTS = {
    "serial": PhoneFact(lambda facts: facts.serial),
    "model": PhoneFact(lambda facts: facts.model),
    "soc": PhoneFact(lambda facts: facts.soc),
    "abi": PhoneFact(lambda facts: facts.abi),
    "gpu": PhoneFact(lambda facts: facts.gpu.name if facts.gpu else "none"),
    "source": PhoneFact(_source),
    "android": PhoneFact(lambda facts: _version(facts.android), _version, "a version such as 12"),
    "ram_mb": PhoneFact(lambda facts: facts.ram_mb, *_NUMBER),
    "cores": PhoneFact(lambda facts: facts.cores, *_NUMBER),
    "big": PhoneFact(_big_cores, *_NUMBER),
    "little": PhoneFact(lambda facts: facts.cores - _big_cores(facts), *_NUMBER),
    "control": PhoneFact(
        lambda facts: _LEVELS[facts.control.value], _LEVELS.get, f"one of {', '.join(_LEVELS)}"
    ),
}
FLAGS: dict[str, Callable[[PhoneFacts], bool]] = {
    "root": lambda facts: facts.rooted,
    "simulated": lambda facts: _source(facts) == Source.SIMULATED,
    "opencl": lambda facts: facts.opencl is not None,
}
TAG = "tag"
NAMES = (*FACTS, *FLAGS, TAG)


def _quote(text: str) -> str:
    """Quote a text; it contains at most one of the two kinds of quotes."""
    return f'"{text}"' if "'" in text else f"'{text}'"


def _quote_if_needed(text: str) -> str:
    return text if re.fullmatch(r"[\w.*?:+-]+", text) else _quote(text)


@dataclass(frozen=True)
class FlagTerm:
    """A fact that is true or false."""

    name: str

    def why_not(self, phone: TaggedPhone) -> str | None:
        """Return why a phone does not match; None if it does."""
        return None if FLAGS[self.name](phone.facts) else f"not {self.name}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PatternTerm:
    """A pattern for serial, model or SoC."""

    pattern: str

    def why_not(self, phone: TaggedPhone) -> str | None:
        """Return why a phone does not match; None if it does."""
        names = (phone.facts.serial, phone.facts.model, phone.facts.soc)
        if any(fnmatchcase(name.lower(), self.pattern) for name in names):
            return None
        return f"serial, model and soc do not match {safe_text(self.pattern)}"

    def __str__(self) -> str:
        return _quote(self.pattern)


@dataclass(frozen=True)
class ComparisonTerm:
    """A fact compared with a value, or with several of which one must match."""

    fact: str
    operator: str
    values: tuple[str, ...]

    def why_not(self, phone: TaggedPhone) -> str | None:
        """Return why a phone does not match; None if it does."""
        return None if self._matches(phone) else self._reason(phone)

    def _matches(self, phone: TaggedPhone) -> bool:
        if self.fact == TAG:
            return (self.values[0] in phone.tags) == (self.operator == "==")
        fact = FACTS[self.fact]
        actual = fact.get(phone.facts)
        if fact.parse is None:
            hit = any(fnmatchcase(str(actual).lower(), value) for value in self.values)
            return hit == (self.operator == "==")
        if actual is None:
            return False
        relation = _RELATIONS[self.operator]
        return any(relation(actual, fact.parse(value)) for value in self.values)

    def _reason(self, phone: TaggedPhone) -> str:
        if self.fact == TAG:
            has = "has no" if self.operator == "==" else "has the"
            return f"it {has} tag {self.values[0]}"
        actual = getattr(phone.facts, self.fact, None)
        if not isinstance(actual, str | int):
            actual = FACTS[self.fact].get(phone.facts)
        if self.operator == "!=":
            return f"{self.fact} is {safe_text(actual, 60)}"
        operator = "" if self.operator == "==" else f"{self.operator} "
        wanted = safe_text(" or ".join(self.values), 60)
        return f"{self.fact} is {safe_text(actual, 60)}, not {operator}{wanted}"

    def __str__(self) -> str:
        if len(self.values) > 1:
            return f"{self.fact} in ({', '.join(map(_quote_if_needed, sorted(self.values)))})"
        return f"{self.fact} {self.operator} {_quote_if_needed(self.values[0])}"


@dataclass(frozen=True)
class NotTerm:
    """The negation of a term."""

    term: "SelectorTerm"

    def why_not(self, phone: TaggedPhone) -> str | None:
        """Return why a phone does not match; None if it does."""
        return f"it matches {self.term}" if self.term.why_not(phone) is None else None

    def __str__(self) -> str:
        return f"not {self.term}"


@dataclass(frozen=True)
class AllOf:
    """Several terms that must all match."""

    terms: tuple["SelectorTerm", ...]

    def why_not(self, phone: TaggedPhone) -> str | None:
        """Return why a phone does not match; None if it does."""
        return next((reason for term in self.terms if (reason := term.why_not(phone))), None)

    def __str__(self) -> str:
        return f"({' and '.join(sorted(map(str, self.terms)))})"


@dataclass(frozen=True)
class AnyOf:
    """Several terms of which one must match."""

    terms: tuple["SelectorTerm", ...]

    def why_not(self, phone: TaggedPhone) -> str | None:
        """Return why a phone does not match; None if it does."""
        reasons = [term.why_not(phone) for term in self.terms]
        return None if None in reasons else "; ".join(filter(None, reasons))

    def __str__(self) -> str:
        return f"({' or '.join(sorted(map(str, self.terms)))})"


SelectorTerm = FlagTerm | PatternTerm | ComparisonTerm | NotTerm | AllOf | AnyOf
