"""The lexer of the shell: characters to words, with quoting, parameters and substitutions.

An incomplete script raises another exception than a wrong one, so that an interactive shell can
wait for the next line.
"""

import re
from collections.abc import Callable

from agent.virtual.shell.syntax_tree import (
    ArithmeticPart,
    CommandList,
    ParameterPart,
    ShellWord,
    SubstitutionPart,
    TextPart,
    WordPart,
)

_ENDS_WORD = set(" \t\n;&|()<>")
_BLANKS = re.compile(r"(?:[ \t]|\\\n|#[^\n]*)*")
_PLAIN_RUN = re.compile(r"""[^ \t\n;&|()<>'"\\$`}]*""")
_QUOTED_RUN = re.compile(r'[^\\$`"]*')
_SPECIAL = set("?!$#@*-0123456789")
_OPERATORS = (":-", ":+", ":=", ":?", "-", "+", "=", "?", "##", "#", "%%", "%", "//", "/", ":")


class ShellSyntaxError(Exception):
    """The text is not a valid script."""


class IncompleteScript(ShellSyntaxError):
    """The text is the beginning of a script."""


class ShellLexer:
    """A cursor over a script; `parse` parses the script inside $( .. )."""

    def __init__(self, text: str, parse: Callable[["ShellLexer", str], CommandList]) -> None:
        self.text = text
        self.position = 0
        self._parse = parse

    @property
    def current(self) -> str:
        return self.text[self.position] if self.position < len(self.text) else ""

    def is_at(self, token: str) -> bool:
        return self.text.startswith(token, self.position)

    def consume(self, token: str) -> bool:
        """Step over a token if it is next."""
        if self.is_at(token):
            self.position += len(token)
            return True
        return False

    def skip_blanks(self) -> None:
        """Step over blanks, continued lines and comments."""
        self.position = _match_end(_BLANKS, self.text, self.position)

    def read_word(self) -> ShellWord | None:
        """Return the next word, or None before an operator or the end."""
        self.skip_blanks()
        parts: list[WordPart] = []
        while self.current and self.current not in _ENDS_WORD:
            parts.extend(self._read_part())
        return ShellWord(_merge_texts(parts)) if parts else None

    def read_word_until(self, end: str) -> ShellWord:
        """Return everything up to a closing token as one word."""
        parts: list[WordPart] = []
        depth = 0  # open parentheses inside $(( .. ))
        while depth or not self.is_at(end):
            if not self.current:
                raise IncompleteScript(f"no closing {end}")
            if end == "))":
                depth += {"(": 1, ")": -1}.get(self.current, 0)
            parts.extend(self._read_part())
        self.position += len(end)
        return ShellWord(_merge_texts(parts))

    def cut_here_document(self, end: str, tabs: bool) -> str:
        """Remove the lines after this one up to `end` from the script, and return them."""
        line_end = self.text.find("\n", self.position)
        if line_end < 0:
            raise IncompleteScript(f"here document '{end}' unclosed")
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
        raise IncompleteScript(f"here document '{end}' unclosed")

    def read_here_document(self) -> ShellWord:
        """Return this text as a here document: parameters are expanded, quotes are literal."""
        parts: list[WordPart] = []
        while self.current:
            parts.extend(self._read_inside_quotes(""))
        return ShellWord(_merge_texts(parts))

    def _read_part(self) -> list[WordPart]:
        character = self.current
        if character == "'":
            return [TextPart(self._read_until("'"), is_quoted=True)]
        if character == '"':
            self.position += 1
            return self._read_double_quoted()
        if character == "\\":
            return self._read_escape()
        if character == "$":
            return [self._read_dollar(is_quoted=False)]
        if character == "`":
            return [self._read_backquoted(is_quoted=False)]
        end = _match_end(_PLAIN_RUN, self.text, self.position + 1)
        text = self.text[self.position : end]
        self.position = end
        return [TextPart(text)]

    def _read_until(self, end: str) -> str:
        close = self.text.find(end, self.position + 1)
        if close < 0:
            raise IncompleteScript(f"no closing {end}")
        inside = self.text[self.position + 1 : close]
        self.position = close + 1
        return inside

    def _read_escape(self) -> list[WordPart]:
        if self.position + 1 >= len(self.text):
            raise IncompleteScript("text ends in a backslash")
        character = self.text[self.position + 1]
        self.position += 2
        return [] if character == "\n" else [TextPart(character, is_quoted=True)]

    def _read_double_quoted(self) -> list[WordPart]:
        # The empty text makes "" a field.
        parts: list[WordPart] = [TextPart("", is_quoted=True)]
        while not self.consume('"'):
            if not self.current:
                raise IncompleteScript('no closing "')
            parts.extend(self._read_inside_quotes('"'))
        return parts

    def _read_inside_quotes(self, quote: str) -> list[WordPart]:
        character = self.current
        following = self.text[self.position + 1 : self.position + 2]
        if character == "\\" and following and following in f"$`\\\n{quote}":
            return self._read_escape()
        if character == "$":
            return [self._read_dollar(is_quoted=True)]
        if character == "`":
            return [self._read_backquoted(is_quoted=True)]
        # Whole runs of plain characters at once: scripts consist mostly of them.
        end = _match_end(_QUOTED_RUN, self.text, self.position + 1)
        text = self.text[self.position : end]
        self.position = end
        return [TextPart(text, is_quoted=True)]

    def _read_dollar(self, is_quoted: bool) -> WordPart:
        if self.consume("$(("):
            return ArithmeticPart(self.read_word_until("))"), is_quoted)
        if self.consume("$("):
            body = self._parse(self, ")")
            if not self.consume(")"):
                raise IncompleteScript("no closing )")
            return SubstitutionPart(body, is_quoted)
        if self.consume("${"):
            return self._read_braced(is_quoted)
        self.position += 1
        if self.current and self.current in _SPECIAL:
            name = self.current
            self.position += 1
            return ParameterPart(name, is_quoted)
        name = self.read_name()
        return ParameterPart(name, is_quoted) if name else TextPart("$", is_quoted)

    def _read_braced(self, is_quoted: bool) -> WordPart:
        if self.current == "#" and self.text[self.position + 1 : self.position + 2] != "}":
            self.position += 1
            name = self.read_name()
            self._expect("}")
            return ParameterPart(name, is_quoted, "length")
        name = self.read_name()
        if not name:
            name = self.current
            self.position += 1
        if self.consume("}"):
            return ParameterPart(name, is_quoted)
        operator = next((token for token in _OPERATORS if self.consume(token)), None)
        if operator is None:
            raise ShellSyntaxError(f"${{{name}{self.current}: bad substitution")
        return ParameterPart(name, is_quoted, operator, self.read_word_until("}"))

    def _read_backquoted(self, is_quoted: bool) -> WordPart:
        text = self._read_until("`")
        nested = self.nested(text.replace("\\`", "`").replace("\\$", "$") if "\\" in text else text)
        return SubstitutionPart(self._parse(nested, ""), is_quoted)

    def nested(self, text: str) -> "ShellLexer":
        """Return a lexer over another text."""
        return ShellLexer(text, self._parse)

    def _expect(self, token: str) -> None:
        if not self.consume(token):
            raise (
                IncompleteScript(f"no closing {token}")
                if not self.current
                else ShellSyntaxError(self.current)
            )

    def read_name(self) -> str:
        """Return the variable name at the cursor, or an empty text."""
        end = self.position
        while end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"):
            end += 1
        name = self.text[self.position : end]
        if not name or name[0].isdigit():
            return ""
        self.position = end
        return name


def _match_end(run: re.Pattern[str], text: str, start: int) -> int:
    """Return the end of a run of characters from `start`; the run may be empty."""
    match = run.match(text, start)
    return match.end() if match else start


def _merge_texts(parts: list[WordPart]) -> tuple[WordPart, ...]:
    """Merge neighbouring texts with the same quoting."""
    joined: list[WordPart] = []
    for part in parts:
        last = joined[-1] if joined else None
        if (
            isinstance(part, TextPart)
            and isinstance(last, TextPart)
            and part.is_quoted == last.is_quoted
        ):
            joined[-1] = TextPart(last.value + part.value, part.is_quoted)
        else:
            joined.append(part)
    return tuple(joined)
