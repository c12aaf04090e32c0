"""Reads `phones`: which phones a sweep runs on, all that match or some of them.

When fewer phones are needed than match, they are drawn with the sweep's seed, so that the choice
depends neither on the order of a list nor on which phone is connected first.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator

from orchestrator.sweepfile.cell_rules import read_selector
from orchestrator.sweepfile.model_reader import read_keys, written_keys
from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.selector import Selector
from orchestrator.sweepfile.selector_terms import AnyOf, PatternTerm
from orchestrator.sweepfile.yaml_nodes import ListNode, MappingEntry, MappingNode
from workloads.protocol.base import WireModel, digest_of
from workloads.protocol.file_keys import key
from workloads.protocol.phone_facts import PhoneFacts
from workloads.text import safe_text

PATTERN_MAX = 100
PHONES_MAX = 10_000
WEAR_CLASS_CYCLES = 50
_TAKE = re.compile(r"([1-9]\d{0,3})(?: of each (model|soc))?")


def _check_take(text: str) -> str:
    if text != "each" and _TAKE.fullmatch(text) is None:
        raise ValueError(f"'{safe_text(text, 40)}' is not valid; write each, 2, or 2 of each model")
    return text


class PhoneKeys(WireModel):
    """The keys of `phones`, where it is a mapping."""

    select: Any = key(None, "which phones match; usually all", values="a [selector](selectors.md)")
    take: Annotated[str, AfterValidator(_check_take)] = key(
        "each",
        "how many of them, of all or per model or soc: the least worn batteries first, then drawn "
        "with the seed",
        values="`each`, `2`, or `2 of each model`",
    )
    at_least: int = key(1, "the sweep is refused if fewer phones match", ge=1, le=PHONES_MAX)


@dataclass(frozen=True)
class PhoneSelection:
    """Which phones a sweep runs on."""

    selector: Selector
    patterns: tuple[str, ...] = ()  # if it was written as a list of patterns
    take: int | None = None  # None takes every phone
    of_each: str | None = None
    at_least: int = 1

    @property
    def identity(self) -> Any:
        """The canonical form for the sweep's digest."""
        if self.patterns and self.take is None:
            return list(self.patterns)
        return {"select": str(self.selector), "take": self.take, "of_each": self.of_each}

    def why_not(self, facts: PhoneFacts, tags: Collection[str]) -> str | None:
        """Return why a phone is not selected; None if it is."""
        why = self.selector.why_not(facts, tags)
        if why is not None and self.patterns:
            return f"matches none of: {safe_text(', '.join(self.patterns))}"
        return why

    def unmatched_patterns(self, phones: Sequence[PhoneFacts]) -> list[str]:
        """Return the patterns that match no phone; `all` needs none."""
        return [
            pattern
            for pattern in self.patterns
            if pattern != "*"
            and not any(Selector(PatternTerm(pattern)).matches(facts) for facts in phones)
        ]

    def not_taken(
        self, phones: Sequence[PhoneFacts], seed: int, assigned: Collection[str]
    ) -> dict[str, str]:
        """Return the phones that are not taken because fewer are needed, each with the reason.

        Phones that already have the sweep keep it. Then come the least worn ones, so that wear
        spreads over the phones of a model; among equally worn ones the seed decides.
        """
        if self.take is None:
            return {}
        groups: dict[str, list[PhoneFacts]] = {}
        for facts in phones:
            name = getattr(facts, self.of_each) if self.of_each else ""
            groups.setdefault(name, []).append(facts)
        not_taken: dict[str, str] = {}
        for name, group in groups.items():
            drawn = sorted(
                group,
                key=lambda facts: (
                    facts.serial not in assigned,
                    wear_class(facts),
                    digest_of([seed, facts.serial]),
                ),
            )
            chosen = ", ".join(facts.serial for facts in drawn[: self.take])
            kind = f" of {safe_text(name, 60)}" if name else ""
            for facts in drawn[self.take :]:
                reason = f"not taken: only {self.take}{kind} needed, {chosen} drawn"
                not_taken[facts.serial] = reason
        return not_taken


def wear_class(facts: PhoneFacts) -> int:
    """Return how worn a phone's battery is, in classes; 0 if the phone does not report it."""
    cycles = facts.battery.cycles if facts.battery else None
    return (cycles or 0) // WEAR_CLASS_CYCLES


def select_by_patterns(patterns: Sequence[str]) -> PhoneSelection:
    """Select every phone whose serial, model or SoC matches a lower-case pattern."""
    return PhoneSelection(Selector(AnyOf(tuple(map(PatternTerm, patterns)))), tuple(patterns))


def read_phone_selection(reader: NodeReader, entry: MappingEntry | None) -> PhoneSelection:
    """Read `phones`: all, a list of patterns, or a selector and how many to take."""
    if entry is None:  # the missing key is reported with the others
        return select_by_patterns(["*"])
    if isinstance(entry.node, MappingNode):
        return _read_selection(reader, entry.node)
    return select_by_patterns(_read_patterns(reader, entry))


def _read_patterns(reader: NodeReader, entry: MappingEntry) -> tuple[str, ...]:
    """Read patterns in canonical form: lower case, unique, sorted; `all` is the pattern *."""
    if not isinstance(entry.node, ListNode):
        word = reader.text(entry.node, "phones", "'all' or a list such as [pixel*]")
        if word not in {None, "all"}:
            shown = safe_text(word, 60)
            reader.refuse(entry.node, "phones", f"'{shown}' is not 'all'; write a list: [{shown}]")
        return ("*",)
    patterns = set()
    for index, node in enumerate(reader.items(entry.node, "phones") or ()):
        path = f"phones[{index}]"
        pattern = reader.text(node, path, "a pattern such as pixel*")
        if pattern is not None and not 0 < len(pattern.strip()) <= PATTERN_MAX:
            reader.refuse(node, path, f"the pattern must have 1 to {PATTERN_MAX} characters")
        if pattern == "all":
            reader.refuse(node, path, "'all' is not a pattern; write 'phones: all'")
        patterns.add((pattern or "").strip().lower())
    return tuple(sorted(patterns))


def _read_selection(reader: NodeReader, mapping: MappingNode) -> PhoneSelection:
    reader.refuse_unknown(mapping, written_keys(PhoneKeys), "phones")
    keys = read_keys(reader, PhoneKeys, mapping, "phones")
    select = mapping.entries.get("select")
    read = read_selector(reader, select.node, "phones.select") if select else None
    selector = read or select_by_patterns(["*"]).selector
    take = _TAKE.fullmatch(keys.take)
    count, of_each = (int(take[1]), take[2]) if take else (None, None)
    return PhoneSelection(selector, (), count, of_each, keys.at_least)
