"""Characters to words: quoting, parameters and substitutions.

An unfinished text says so apart from a wrong one, so that a shell can wait for the next line.
"""

import re
from collections.abc import Callable

from agent.virtual.shell.grammar import (
    Arithmetic,
    Parameter,
    Part,
    Sequence,
    Substitution,
    Text,
    Word,
)

_ENDS_WORD = set(" \t\n;&|()<>")
_BLANKS = re.compile(r"(?:[ \t]|\\\n|#[^\n]*)*")
_RUN = re.compile(r"""[^ \t\n;&|()<>'"\\$`}]*""")
_QUOTED_RUN = re.compile(r'[^\\$`"]*')
_SPECIAL = set("?!$#@*-0123456789")
_OPERATORS = (":-", ":+", ":=", ":?", "-", "+", "=", "?", "##", "#", "%%", "%", "//", "/", ":")


class BadSyntax(Exception):
    """The text is no script."""


class Unfinished(BadSyntax):
    """The text is the beginning of a script."""


class Reader:
    """A cursor over a script; `parse` reads the script inside $( .. )."""

    def __init__(self, text: str, parse: Callable[["Reader", str], Sequence]) -> None:
        self.text = text
        self.at = 0
        self._parse = parse

    @property
    def here(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def looking_at(self, mark: str) -> bool:
        return self.text.startswith(mark, self.at)

    def take(self, mark: str) -> bool:
        """Step over a mark if it is next."""
        if self.looking_at(mark):
            self.at += len(mark)
            return True
        return False

    def skip_blanks(self) -> None:
        """Step over blanks, continued lines and comments."""
        self.at = _end_of(_BLANKS, self.text, self.at)

    def word(self) -> Word | None:
        """The next word, or nothing before an operator or the end."""
        self.skip_blanks()
        parts: list[Part] = []
        while self.here and self.here not in _ENDS_WORD:
            parts.extend(self._part())
        return Word(_joined(parts)) if parts else None

    def word_until(self, end: str) -> Word:
        """Everything up to a closing mark as one word."""
        parts: list[Part] = []
        depth = 0  # of parentheses inside $(( .. ))
        while depth or not self.looking_at(end):
            if not self.here:
                raise Unfinished(f"no closing {end}")
            if end == "))":
                depth += {"(": 1, ")": -1}.get(self.here, 0)
            parts.extend(self._part())
        self.at += len(end)
        return Word(_joined(parts))

    def cut_here_text(self, end: str, tabs: bool) -> str:
        """Take the lines after this one up to `end` out of the script."""
        line_end = self.text.find("\n", self.at)
        if line_end < 0:
            raise Unfinished(f"here document '{end}' unclosed")
        lines: list[str] = []
        start = line_end + 1
        while start < len(self.text):
            stop = self.text.find("\n", start)
            stop = len(self.text) if stop < 0 else stop
            line = self.text[start:stop]
            line = line.lstrip("\t") if tabs else line
            start = stop + 1
            if line == end:
                self.text = self.text[: line_end + 1] + self.text[start:]
                return "".join(f"{line}\n" for line in lines)
            lines.append(line)
        raise Unfinished(f"here document '{end}' unclosed")

    def here_word(self) -> Word:
        """All of this text as a here document: parameters count, quotes do not."""
        parts: list[Part] = []
        while self.here:
            parts.extend(self._inside_quotes(""))
        return Word(_joined(parts))

    def _part(self) -> list[Part]:
        mark = self.here
        if mark == "'":
            return [Text(self._until("'"), quoted=True)]
        if mark == '"':
            self.at += 1
            return self._double_quoted()
        if mark == "\\":
            return self._escaped()
        if mark == "$":
            return [self._dollar(quoted=False)]
        if mark == "`":
            return [self._backquoted(quoted=False)]
        end = _end_of(_RUN, self.text, self.at + 1)
        text = self.text[self.at : end]
        self.at = end
        return [Text(text)]

    def _until(self, end: str) -> str:
        close = self.text.find(end, self.at + 1)
        if close < 0:
            raise Unfinished(f"no closing {end}")
        inside = self.text[self.at + 1 : close]
        self.at = close + 1
        return inside

    def _escaped(self) -> list[Part]:
        if self.at + 1 >= len(self.text):
            raise Unfinished("text ends in a backslash")
        character = self.text[self.at + 1]
        self.at += 2
        return [] if character == "\n" else [Text(character, quoted=True)]

    def _double_quoted(self) -> list[Part]:
        # The empty text keeps "" a field of its own.
        parts: list[Part] = [Text("", quoted=True)]
        while not self.take('"'):
            if not self.here:
                raise Unfinished('no closing "')
            parts.extend(self._inside_quotes('"'))
        return parts

    def _inside_quotes(self, quote: str) -> list[Part]:
        mark = self.here
        following = self.text[self.at + 1 : self.at + 2]
        if mark == "\\" and following and following in f"$`\\\n{quote}":
            return self._escaped()
        if mark == "$":
            return [self._dollar(quoted=True)]
        if mark == "`":
            return [self._backquoted(quoted=True)]
        # Runs of plain characters at once: scripts are full of them.
        end = _end_of(_QUOTED_RUN, self.text, self.at + 1)
        text = self.text[self.at : end]
        self.at = end
        return [Text(text, quoted=True)]

    def _dollar(self, quoted: bool) -> Part:
        if self.take("$(("):
            return Arithmetic(self.word_until("))"), quoted)
        if self.take("$("):
            body = self._parse(self, ")")
            if not self.take(")"):
                raise Unfinished("no closing )")
            return Substitution(body, quoted)
        if self.take("${"):
            return self._braced(quoted)
        self.at += 1
        if self.here and self.here in _SPECIAL:
            name = self.here
            self.at += 1
            return Parameter(name, quoted)
        name = self.name()
        return Parameter(name, quoted) if name else Text("$", quoted)

    def _braced(self, quoted: bool) -> Part:
        if self.here == "#" and self.text[self.at + 1 : self.at + 2] != "}":
            self.at += 1
            name = self.name()
            self._expect("}")
            return Parameter(name, quoted, "length")
        name = self.name()
        if not name:
            name = self.here
            self.at += 1
        if self.take("}"):
            return Parameter(name, quoted)
        operator = next((mark for mark in _OPERATORS if self.take(mark)), None)
        if operator is None:
            raise BadSyntax(f"${{{name}{self.here}: bad substitution")
        return Parameter(name, quoted, operator, self.word_until("}"))

    def _backquoted(self, quoted: bool) -> Part:
        text = self._until("`")
        inner = self.inner(text.replace("\\`", "`").replace("\\$", "$") if "\\" in text else text)
        return Substitution(self._parse(inner, ""), quoted)

    def inner(self, text: str) -> "Reader":
        """A cursor over a text of its own."""
        return Reader(text, self._parse)

    def _expect(self, mark: str) -> None:
        if not self.take(mark):
            raise Unfinished(f"no closing {mark}") if not self.here else BadSyntax(self.here)

    def name(self) -> str:
        """The variable name that stands here, or nothing."""
        end = self.at
        while end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"):
            end += 1
        name = self.text[self.at : end]
        if not name or name[0].isdigit():
            return ""
        self.at = end
        return name


def _end_of(run: re.Pattern[str], text: str, start: int) -> int:
    """Where a run of characters that began before `start` ends; every such pattern may be empty."""
    found = run.match(text, start)
    return found.end() if found else start


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Single characters back into runs."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text) and part.quoted == last.quoted:
            joined[-1] = Text(last.value + part.value, part.quoted)
        else:
            joined.append(part)
    return tuple(joined)
