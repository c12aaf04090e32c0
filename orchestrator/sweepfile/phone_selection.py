"""The part of a sweep that says on which phones: all that match, or some of them.

Who is taken when some are enough is drawn with the seed of the sweep, so that it is neither the
first on the list nor the one that lies on top.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.document import Entries, Entry, Items, Node
from orchestrator.plan.phone_tests import AnyOf, Pattern
from orchestrator.plan.reading import Reader
from orchestrator.plan.rules import read_selector
from orchestrator.plan.selector import Selector
from workloads.noun import digest_of
from workloads.phone import PhoneFacts
from workloads.text import safe_text

PATTERN_MAX = 100
PHONES_MAX = 10_000
KEYS = ("select", "take", "at_least")
_TAKE = re.compile(r"([1-9]\d{0,3})(?: of each (model|soc))?")


@dataclass(frozen=True)
class PhoneChoice:
    """Which phones a sweep wants."""

    selector: Selector
    patterns: tuple[str, ...] = ()  # where it was written as a list of patterns
    take: int | None = None  # None takes each
    of_each: str | None = None
    at_least: int = 1

    @property
    def meaning(self) -> Any:
        """What it stands for, as a sweep's identity wants it."""
        if self.patterns and self.take is None:
            return list(self.patterns)
        return {"select": str(self.selector), "take": self.take, "of_each": self.of_each}

    def why_not(self, facts: PhoneFacts, tags: Collection[str]) -> str | None:
        """What keeps a phone out; None for one that is meant."""
        why = self.selector.why_not(facts, tags)
        if why is not None and self.patterns:
            return f"matches none of: {safe_text(', '.join(self.patterns))}"
        return why

    def taken(
        self, phones: Sequence[PhoneFacts], seed: int, before: Collection[str]
    ) -> dict[str, str]:
        """Phones that are not taken because others are enough, each with the reason.

        Phones that got the sweep before keep it.
        """
        if self.take is None:
            return {}
        groups: dict[str, list[PhoneFacts]] = {}
        for facts in phones:
            name = getattr(facts, self.of_each) if self.of_each else ""
            groups.setdefault(name, []).append(facts)
        spare: dict[str, str] = {}
        for name, group in groups.items():
            drawn = sorted(
                group, key=lambda each: (each.serial not in before, digest_of([seed, each.serial]))
            )
            chosen = ", ".join(each.serial for each in drawn[: self.take])
            of = f" of {safe_text(name, 60)}" if name else ""
            for facts in drawn[self.take :]:
                spare[facts.serial] = f"not taken: {self.take}{of} are enough, drawn: {chosen}"
        return spare


def matching(patterns: Sequence[str]) -> PhoneChoice:
    """Every phone whose serial, model or SoC is covered by a pattern in lower case."""
    return PhoneChoice(Selector(AnyOf(tuple(map(Pattern, patterns)))), tuple(patterns))


def read_choice(reader: Reader, root: Entries) -> PhoneChoice:
    """Read `phones`: all, a list of patterns, or a selector and how many to take."""
    entry = root.entries.get("phones")
    if entry is None:
        reader.problems.add(root.place, "the key 'phones' is missing; write 'phones: all'")
        return matching(["*"])
    if isinstance(entry.node, Entries):
        return _read_selection(reader, entry.node)
    return matching(_read_patterns(reader, entry))


def _read_patterns(reader: Reader, entry: Entry) -> tuple[str, ...]:
    """Read patterns in one spelling: lower case, each once, sorted; `all` is the pattern *."""
    if not isinstance(entry.node, Items):
        word = reader.text(entry.node, "phones", "'all' or a list such as [pixel*]")
        if word not in {None, "all"}:
            shown = safe_text(word, 60)
            reader.refuse(entry.node, "phones", f"'{shown}' is not 'all'; write a list: [{shown}]")
        return ("*",)
    patterns = set()
    for index, node in enumerate(reader.items(entry.node, "phones") or ()):
        pattern = reader.text(node, f"phones[{index}]", "a pattern such as pixel*")
        if pattern is not None and not 0 < len(pattern.strip()) <= PATTERN_MAX:
            reader.refuse(node, f"phones[{index}]", f"a pattern has 1 to {PATTERN_MAX} characters")
        if pattern == "all":
            reader.refuse(node, f"phones[{index}]", "'all' stands alone: write 'phones: all'")
        patterns.add((pattern or "").strip().lower())
    return tuple(sorted(patterns))


def _read_selection(reader: Reader, given: Entries) -> PhoneChoice:
    reader.refuse_unknown(given, KEYS, "phones")
    everything = matching(["*"]).selector
    select = given.entries.get("select")
    selector = read_selector(reader, select.node, "phones.select") if select else everything
    take, of_each = None, None
    if "take" in given.entries:
        take, of_each = _read_take(reader, given.entries["take"].node)
    least = given.entries.get("at_least")
    count = reader.whole(least.node, "phones.at_least", 1, PHONES_MAX) if least else 1
    return PhoneChoice(selector or everything, (), take, of_each, count or 1)


def _read_take(reader: Reader, node: Node) -> tuple[int | None, str | None]:
    hint = "write each, 2, or 2 of each model"
    text = reader.text(node, "phones.take", hint)
    if text in {None, "each"}:
        return None, None
    match = _TAKE.fullmatch(text or "")
    if match is None:
        reader.refuse(node, "phones.take", f"'{safe_text(text, 40)}' is not understood; {hint}")
        return None, None
    return int(match[1]), match[2]
