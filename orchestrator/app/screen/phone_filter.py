"""Filters phones by a selector, or by words in their names."""

import re
from collections.abc import Callable

from orchestrator.store.phone_queries import KnownPhone
from orchestrator.sweepfile.selector import KEYWORDS, parse_selector
from orchestrator.sweepfile.selector_terms import NAMES

PhoneFilter = Callable[[KnownPhone], bool]


def parse_phone_filter(text: str) -> PhoneFilter:
    """Read a selector, or plain words that the names of a phone must contain.

    A phone is matched once, until its facts or tags change.
    """
    is_plain = re.fullmatch(r"[\w.+ -]+", text) and not {*NAMES, *KEYWORDS} & set(text.split())
    selector = parse_selector(f"'*{text}*'" if is_plain else text)
    cache: dict[str, tuple[object, object, bool]] = {}

    def matches(phone: KnownPhone) -> bool:
        cached = cache.get(phone.serial)
        if cached is None or cached[0] is not phone.facts or cached[1] != phone.tags:
            match = selector.matches(phone.facts, phone.tags)
            cached = cache[phone.serial] = (phone.facts, phone.tags, match)
        return cached[2]

    return matches
