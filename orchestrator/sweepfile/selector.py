"""Selectors: a small expression language that selects phones.

    root and ram_mb >= 6000              compare facts: == != < <= > >=
    model == pixel* or soc == sm8?50     == and != on text take patterns and ignore case
    big >= 4 and not simulated           and, or, not and parentheses; `not` binds tightest
    soc in (sdm855, sm8350)              one of several values
    tag == paper                         a tag that an operator gave the phone
    pixel*                               a bare pattern matches serial, model or SoC

Text facts: serial, model, soc, abi, gpu, source. Numeric facts: ram_mb, cores, big, little.
android is a version, control is a level; root and simulated are true or false.

Quote text with spaces: model == 'pixel 6*'. A selector is never evaluated as a program: it is
parsed into tests of named facts, and a phone that does not match gets the failed test as reason.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from orchestrator.sweepfile.selector_terms import (
    FACTS,
    FLAGS,
    NAMES,
    TAG,
    AllOf,
    AnyOf,
    ComparisonTerm,
    FlagTerm,
    NotTerm,
    PatternTerm,
    SelectorTerm,
    TaggedPhone,
)
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import PhoneFacts
from workloads.text import safe_text

TEXT_MAX = 1000
DEPTH_MAX = 20
_TOKEN = re.compile(
    r"\s*(?:(?P<operator>==|!=|<=|>=|=|<|>)|(?P<mark>[(),])"
    r"|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<word>[^\s()<>=!,'\"]+))"
)
KEYWORDS = ("and", "or", "not", "in")


class BadSelector(InvalidRequest):
    """A selector cannot be parsed; the offset counts characters from its start."""

    def __init__(self, problem: str, offset: int, length: int = 1) -> None:
        self.offset, self.length = offset, length
        super().__init__(problem)


@dataclass(frozen=True)
class Selector:
    """A parsed selector; its text is normalised, however it was written."""

    term: SelectorTerm

    def matches(self, facts: PhoneFacts, tags: Collection[str] = ()) -> bool:
        """Return whether a phone matches."""
        return self.why_not(facts, tags) is None

    def why_not(self, facts: PhoneFacts, tags: Collection[str] = ()) -> str | None:
        """Return why a phone does not match; None if it does."""
        return self.term.why_not(TaggedPhone(facts, frozenset(tags)))

    def __str__(self) -> str:
        return str(self.term)


def parse_selector(text: str) -> Selector:
    """Parse a selector; BadSelector says what is wrong with it and where."""
    if len(text) > TEXT_MAX:
        raise BadSelector(f"the selector is longer than {TEXT_MAX} characters", TEXT_MAX)
    return Selector(_SelectorParser(text).parse())


@dataclass(frozen=True)
class _Token:
    text: str
    offset: int
    length: int
    kind: str  # operator, mark, word or quoted


class _SelectorParser:
    """Recursive-descent parser; the depth limit bounds its recursion."""

    def __init__(self, text: str) -> None:
        self._end = len(text)
        self._tokens = _tokens(text)
        self._index = 0
        self._depth = 0

    def parse(self) -> SelectorTerm:
        if not self._tokens:
            raise BadSelector("the selector is empty; write a fact such as ram_mb >= 6000", 0)
        term = self._parse_or()
        if self._token is not None:
            raise self._error("'and' or 'or' is missing before this")
        return term

    @property
    def _token(self) -> _Token | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    def _error(self, problem: str) -> BadSelector:
        token = self._token
        if token is None:
            return BadSelector(problem, self._end)
        return BadSelector(f"'{safe_text(token.text, 40)}': {problem}", token.offset, token.length)

    def _accept(self, *texts: str) -> bool:
        token = self._token
        accepted = token is not None and token.kind != "quoted" and token.text.lower() in texts
        self._index += accepted
        return accepted

    def _expect(self, problem: str, *kinds: str) -> _Token:
        token = self._token
        if token is None or token.kind not in kinds:
            raise self._error(problem)
        self._index += 1
        return token

    def _parse_or(self) -> SelectorTerm:
        terms = [self._parse_and()]
        while self._accept("or"):
            terms.append(self._parse_and())
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def _parse_and(self) -> SelectorTerm:
        terms = [self._parse_not()]
        while self._accept("and"):
            terms.append(self._parse_not())
        return terms[0] if len(terms) == 1 else AllOf(tuple(terms))

    def _parse_not(self) -> SelectorTerm:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"nested deeper than {DEPTH_MAX}")
        try:
            if self._accept("not"):
                return NotTerm(self._parse_not())
            if self._accept("("):
                term = self._parse_or()
                if not self._accept(")"):
                    raise self._error("a ')' is missing")
                return term
            return self._parse_test()
        finally:
            self._depth -= 1

    def _parse_test(self) -> SelectorTerm:
        token = self._expect("a fact, a pattern or '(' is expected here", "word", "quoted")
        name = token.text.lower()
        following = self._token
        if following is not None and following.kind == "operator":
            return self._parse_comparison(token, name)
        if token.kind == "word" and self._accept("in"):
            return self._parse_one_of(token, name)
        if token.kind == "word" and name in FLAGS:
            return FlagTerm(name)
        self._index -= 1
        if token.kind == "word":
            self._refuse_incomplete(name)
        self._index += 1
        return PatternTerm(name)

    def _refuse_incomplete(self, name: str) -> None:
        """Refuse a word that was probably not meant as a pattern."""
        if name in KEYWORDS:
            raise self._error("a fact, a pattern or '(' is expected here")
        if name in FACTS or name == TAG:
            raise self._error(f"this needs a comparison, for example {name} == ...")
        close = get_close_matches(name, NAMES, n=1, cutoff=0.75)
        if close and not any(wildcard in name for wildcard in "*?["):
            raise self._error(f"did you mean '{close[0]}'? put a literal name in quotes")

    def _parse_comparison(self, token: _Token, name: str) -> SelectorTerm:
        operator = self._expect("an operator such as == is expected here", "operator").text
        self._check_name(token, name)
        operator = "==" if operator == "=" else operator
        is_text = name == TAG or FACTS[name].parse is None
        if is_text and operator not in {"==", "!="}:
            self._index -= 1
            raise self._error(f"{name} is text; compare it with == or !=")
        return ComparisonTerm(name, operator, (self._parse_value(name),))

    def _parse_one_of(self, token: _Token, name: str) -> SelectorTerm:
        self._check_name(token, name)
        if not self._accept("("):
            raise self._error("write the values like (sdm855, sm8350)")
        values = [self._parse_value(name)]
        while self._accept(","):
            values.append(self._parse_value(name))
        if not self._accept(")"):
            raise self._error("a ')' is missing")
        if name == TAG:
            return AnyOf(tuple(ComparisonTerm(TAG, "==", (value,)) for value in values))
        return ComparisonTerm(name, "==", tuple(dict.fromkeys(values)))

    def _check_name(self, token: _Token, name: str) -> None:
        if name in FACTS or name == TAG:
            return
        if name in FLAGS:
            problem = f"'{name}' is true or false; write {name} or not {name}"
        else:
            close = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"use one of {', '.join(NAMES)}"
            problem = f"unknown fact '{safe_text(name, 40)}'; {hint}"
        raise BadSelector(problem, token.offset, token.length)

    def _parse_value(self, name: str) -> str:
        token = self._expect("a value is expected here", "word", "quoted")
        value = token.text.lower()
        fact = FACTS.get(name)
        if fact is not None and fact.parse is not None and fact.parse(value) is None:
            self._index -= 1
            raise self._error(f"{name} is compared with {fact.expected}")
        return value


def _tokens(text: str) -> list[_Token]:
    tokens = []
    offset = 0
    while text[offset:].strip():
        match = _TOKEN.match(text, offset)
        if match is None:
            rest = text[offset:]
            offset += len(rest) - len(rest.lstrip())
            is_quote = text[offset] in "'\""
            problem = "a quote is opened but never closed" if is_quote else "unexpected character"
            raise BadSelector(f"'{safe_text(text[offset], 4)}': {problem}", offset)
        kind = match.lastgroup or ""
        start, end = match.span(kind)
        quoted = kind in {"single", "double"}
        tokens.append(_Token(match[kind], start, max(1, end - start), "quoted" if quoted else kind))
        offset = match.end()
    return tokens
