"""Characters to words: quoting, parameters and substitutions.

An unfinished text says so apart from a wrong one, so that a shell can wait for the next line.
"""

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
_SPECIAL = set("?!$#@*-0123456789")
_OPERATORS = (":-", ":+", ":=", ":?", "-", "+", "=", "?", "##", "#", "%%", "%")


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
        while self.here:
            if self.here in " \t":
                self.at += 1
            elif self.looking_at("\\\n"):
                self.at += 2
            elif self.here == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

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
        while not self.looking_at(end):
            if not self.here:
                raise Unfinished(f"no closing {end}")
            parts.extend(self._part())
        self.at += len(end)
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
        self.at += 1
        return [Text(mark)]

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
            mark = self.here
            if not mark:
                raise Unfinished('no closing "')
            if mark == "\\" and self.text[self.at + 1 : self.at + 2] in set('$`"\\\n'):
                parts.extend(self._escaped())
            elif mark == "$":
                parts.append(self._dollar(quoted=True))
            elif mark == "`":
                parts.append(self._backquoted(quoted=True))
            else:
                parts.append(Text(mark, quoted=True))
                self.at += 1
        return parts

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
        inner = Reader(self._until("`"), self._parse)
        return Substitution(self._parse(inner, ""), quoted)

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
