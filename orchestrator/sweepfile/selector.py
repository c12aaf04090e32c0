"""Selectors: which phones are meant, in a small language of their own.

    root and ram_mb >= 6000              facts are compared: == != < <= > >=
    model == pixel* or soc == sm8?50     == and != of a text take patterns and ignore case
    big >= 4 and not simulated           and, or, not and parentheses; `not` binds closest
    soc in (sdm855, sm8350)              one of several
    tag == paper                         a label that somebody gave the phone
    pixel*                               a pattern alone is held against serial, model and SoC

Texts: serial, model, soc, abi, gpu, source. Numbers: ram_mb, cores, big, little; android is a
version, control is a level. root and simulated stand alone; tag is a label.

A text with blanks stands in quotes: model == 'pixel 6*'. Nothing here is evaluated as a program:
a selector is read into tests of named facts, and a phone that fails can say which one.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from orchestrator.plan.phone_tests import (
    FACTS,
    FLAGS,
    NAMES,
    TAG,
    All,
    AnyOf,
    Compared,
    Flag,
    Not,
    Part,
    Pattern,
    Subject,
)
from workloads.fault import Refused
from workloads.phone import PhoneFacts
from workloads.text import safe_text

TEXT_MAX = 1000
DEPTH_MAX = 20
_TOKEN = re.compile(
    r"\s*(?:(?P<sign>==|!=|<=|>=|=|<|>)|(?P<mark>[(),])|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\""
    r"|(?P<word>[^\s()<>=!,'\"]+))"
)
KEYWORDS = ("and", "or", "not", "in")


class BadSelector(Refused):
    """A selector cannot be read; the offset counts characters from its beginning."""

    def __init__(self, sentence: str, offset: int, length: int = 1) -> None:
        self.offset, self.length = offset, length
        super().__init__(sentence)


@dataclass(frozen=True)
class Selector:
    """A selector that was read; as text it is in one spelling, whatever way it was written."""

    part: Part

    def matches(self, facts: PhoneFacts, tags: Collection[str] = ()) -> bool:
        """Whether a phone is meant."""
        return self.why_not(facts, tags) is None

    def why_not(self, facts: PhoneFacts, tags: Collection[str] = ()) -> str | None:
        """What keeps a phone out; None for one that is meant."""
        return self.part.why_not(Subject(facts, frozenset(tags)))

    def __str__(self) -> str:
        return str(self.part)


def parse_selector(text: str) -> Selector:
    """Read a selector, or say in BadSelector what is wrong with it and where."""
    if len(text) > TEXT_MAX:
        raise BadSelector(f"a selector has at most {TEXT_MAX} characters", TEXT_MAX)
    return Selector(_Parser(text).whole())


@dataclass(frozen=True)
class _Token:
    text: str
    offset: int
    length: int
    kind: str  # sign, mark, word or quoted


class _Parser:
    """Reads one token at a time; the depth cap bounds its recursion."""

    def __init__(self, text: str) -> None:
        self._end = len(text)
        self._tokens = _tokens(text)
        self._index = 0
        self._depth = 0

    def whole(self) -> Part:
        if not self._tokens:
            raise BadSelector("the selector is empty; write a fact such as ram_mb >= 6000", 0)
        part = self._either()
        if self._here is not None:
            raise self._error("'and' or 'or' is missing before this")
        return part

    @property
    def _here(self) -> _Token | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    def _error(self, sentence: str) -> BadSelector:
        here = self._here
        if here is None:
            return BadSelector(sentence, self._end)
        return BadSelector(f"'{safe_text(here.text, 40)}': {sentence}", here.offset, here.length)

    def _take(self, *texts: str) -> bool:
        here = self._here
        found = here is not None and here.kind != "quoted" and here.text.lower() in texts
        self._index += found
        return found

    def _next(self, sentence: str, *kinds: str) -> _Token:
        here = self._here
        if here is None or here.kind not in kinds:
            raise self._error(sentence)
        self._index += 1
        return here

    def _either(self) -> Part:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _both(self) -> Part:
        parts = [self._single()]
        while self._take("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _single(self) -> Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"nested deeper than {DEPTH_MAX}")
        try:
            if self._take("not"):
                return Not(self._single())
            if self._take("("):
                part = self._either()
                if not self._take(")"):
                    raise self._error("a ')' is missing")
                return part
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Part:
        wanted = "a fact, a pattern or '(' is expected here"
        token = self._next(wanted, "word", "quoted")
        name = token.text.lower()
        follows = self._here
        if follows is not None and follows.kind == "sign":
            return self._comparison(token, name)
        if token.kind == "word" and self._take("in"):
            return self._one_of(token, name)
        if token.kind == "word" and name in FLAGS:
            return Flag(name)
        self._index -= 1
        if token.kind == "word":
            self._refuse_half(name)
        self._index += 1
        return Pattern(name)

    def _refuse_half(self, name: str) -> None:
        """Refuse a word that was hardly meant as a pattern."""
        if name in KEYWORDS:
            raise self._error("a fact, a pattern or '(' is expected here")
        if name in FACTS or name == TAG:
            raise self._error(f"what of it? compare it: {name} == ...")
        close = get_close_matches(name, NAMES, n=1, cutoff=0.75)
        if close and not any(each in name for each in "*?["):
            raise self._error(f"did you mean '{close[0]}'? a name as it is stands in quotes")

    def _comparison(self, token: _Token, name: str) -> Part:
        sign = self._next("a sign such as == is expected here", "sign").text
        self._check_name(token, name)
        sign = "==" if sign == "=" else sign
        text = name == TAG or FACTS[name].read is None
        if text and sign not in {"==", "!="}:
            self._index -= 1
            raise self._error(f"{name} is a text; it is compared with == and !=")
        return Compared(name, sign, (self._value(name),))

    def _one_of(self, token: _Token, name: str) -> Part:
        self._check_name(token, name)
        if not self._take("("):
            raise self._error("write the values like (sdm855, sm8350)")
        values = [self._value(name)]
        while self._take(","):
            values.append(self._value(name))
        if not self._take(")"):
            raise self._error("a ')' is missing")
        if name == TAG:
            return AnyOf(tuple(Compared(TAG, "==", (value,)) for value in values))
        return Compared(name, "==", tuple(dict.fromkeys(values)))

    def _check_name(self, token: _Token, name: str) -> None:
        if name in FACTS or name == TAG:
            return
        if name in FLAGS:
            sentence = f"'{name}' is so or is not: write {name} or not {name}"
        else:
            close = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(NAMES)}"
            sentence = f"there is no fact '{safe_text(name, 40)}'; {hint}"
        raise BadSelector(sentence, token.offset, token.length)

    def _value(self, name: str) -> str:
        token = self._next("a value is expected here", "word", "quoted")
        value = token.text.lower()
        fact = FACTS.get(name)
        if fact is not None and fact.read is not None and fact.read(value) is None:
            self._index -= 1
            raise self._error(f"{name} is compared with {fact.wanted}")
        return value


def _tokens(text: str) -> list[_Token]:
    tokens = []
    offset = 0
    while text[offset:].strip():
        match = _TOKEN.match(text, offset)
        if match is None:
            rest = text[offset:]
            offset += len(rest) - len(rest.lstrip())
            quote = text[offset] in "'\""
            sentence = "a quote is opened and never closed" if quote else "this is not expected"
            raise BadSelector(f"'{safe_text(text[offset], 4)}': {sentence}", offset)
        kind = match.lastgroup or ""
        start, end = match.span(kind)
        quoted = kind in {"single", "double"}
        tokens.append(_Token(match[kind], start, max(1, end - start), "quoted" if quoted else kind))
        offset = match.end()
    return tokens
