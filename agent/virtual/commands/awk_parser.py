"""Parses awk programs: tokens, expressions by precedence, statements."""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n|\#[^\n]*)
    |(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+)
    |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark>\+\+|--|\+=|-=|\*=|/=|%=|==|!=|<=|>=|&&|\|\||!~|[-+*/%^!<>~?:=$(){}\[\],;\n])""",
    re.VERBOSE,
)
# After one of these a slash divides; anywhere else it starts a regular expression.
_VALUE_ENDS = {"number", "string", "name"}
_PRECEDENCE: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("~", "!~"),
    ("<", "<=", "==", "!=", ">", ">="),
    ("concat",),
    ("+", "-"),
    ("*", "/", "%"),
)
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=")


class AwkError(ValueError):
    """The program is invalid or uses what is not supported here."""


@dataclass(frozen=True, slots=True)
class AwkNode:
    """An expression or a statement: its kind, its text and its parts."""

    kind: str
    text: str = ""
    parts: tuple["AwkNode", ...] = field(default=())


def tokenize(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        previous = tokens[-1] if tokens else ("mark", "")
        divides = previous[0] in _VALUE_ENDS or previous[1] in (")", "$")
        if text[position] == "/" and not divides:
            end = position + 1
            while end < len(text) and text[end] != "/":
                end += 2 if text[end] == "\\" else 1
            tokens.append(("regex", text[position + 1 : end].replace("\\/", "/")))
            position = end + 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise AwkError(f"unexpected '{text[position]}'")
        position = match.end()
        if match.lastgroup != "blank":
            tokens.append((str(match.lastgroup), match[0]))
    return tokens


class AwkParser:
    """Parses rules: (pattern, action) pairs."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._position = 0

    def parse_rules(self) -> list[tuple[AwkNode | None, AwkNode | None]]:
        rules: list[tuple[AwkNode | None, AwkNode | None]] = []
        while True:
            self._skip_ends()
            if self._position >= len(self._tokens):
                return rules
            pattern = None if self._peek() == "{" else self._parse_expression()
            rules.append((pattern, self._parse_block() if self._peek() == "{" else None))

    # -- statements

    def _parse_block(self) -> AwkNode:
        self._expect("{")
        parts: list[AwkNode] = []
        self._skip_ends()
        while not self._take("}"):
            parts.append(self._parse_statement())
            self._skip_ends()
        return AwkNode("block", parts=tuple(parts))

    def _parse_statement(self) -> AwkNode:
        word = self._peek()
        if word == "{":
            return self._parse_block()
        if word in ("print", "printf"):
            self._position += 1
            return AwkNode(word, parts=tuple(self._parse_list(";", "\n", "}")))
        if word in ("next", "exit"):
            self._position += 1
            ended = self._peek() in (";", "\n", "}", "")
            return AwkNode(word, parts=() if ended else (self._parse_expression(),))
        if word == "if":
            return self._parse_if()
        return AwkNode("do", parts=(self._parse_expression(),))

    def _parse_if(self) -> AwkNode:
        self._position += 1
        condition, body = self._parse_parenthesized(), self._parse_body()
        position = self._position
        self._skip_ends()
        if self._take("else"):
            return AwkNode("if", parts=(condition, body, self._parse_body()))
        self._position = position
        return AwkNode("if", parts=(condition, body))

    def _parse_body(self) -> AwkNode:
        self._skip_ends()
        return self._parse_statement()

    def _parse_parenthesized(self) -> AwkNode:
        self._expect("(")
        inner = self._parse_expression()
        self._expect(")")
        return inner

    def _parse_list(self, *ends: str) -> list[AwkNode]:
        parts: list[AwkNode] = []
        while self._peek() not in (*ends, ""):
            parts.append(self._parse_expression())
            if not self._take(","):
                break
        return parts

    # -- expressions

    def _parse_expression(self) -> AwkNode:
        left = self._parse_level(0)
        if self._peek() in _ASSIGNMENTS and left.kind in ("name", "$"):
            sign = self._next()[1]
            return AwkNode("set", sign, (left, self._parse_expression()))
        return left

    def _parse_level(self, depth: int) -> AwkNode:
        if depth == len(_PRECEDENCE):
            return self._parse_unary()
        signs = _PRECEDENCE[depth]
        left = self._parse_level(depth + 1)
        while True:
            if signs == ("concat",):
                if not self._starts_value():
                    return left
                left = AwkNode("concat", parts=(left, self._parse_level(depth + 1)))
            elif self._kind() == "mark" and self._peek() in signs:
                sign = self._next()[1]
                left = AwkNode("op", sign, (left, self._parse_level(depth + 1)))
            else:
                return left

    def _starts_value(self) -> bool:
        kind, text = self._kind(), self._peek()
        return (kind in _VALUE_ENDS and text != "else") or text in ("$", "(")

    def _parse_unary(self) -> AwkNode:
        for sign in ("!", "-", "+", "++", "--"):
            if self._take(sign):
                return AwkNode("unary", sign, (self._parse_unary(),))
        value = self._parse_value()
        while self._kind() == "mark" and self._peek() in ("++", "--"):
            value = AwkNode("after", self._next()[1], (value,))
        return value

    def _parse_value(self) -> AwkNode:
        kind, text = self._next()
        if kind in ("number", "regex"):
            return AwkNode(kind, text)
        if kind == "string":
            return AwkNode("string", text[1:-1])
        if text == "$":
            return AwkNode("$", parts=(self._parse_value(),))
        if text == "(":
            inner = self._parse_expression()
            self._expect(")")
            return AwkNode("group", parts=(inner,))
        if kind != "name":
            raise AwkError(f"unexpected '{text or 'end'}'")
        if self._peek() in ("(", "["):
            raise AwkError(f"loops, functions and arrays are not supported: {text}")
        return AwkNode("name", text)

    # -- tokens

    def _kind(self) -> str:
        return self._tokens[self._position][0] if self._position < len(self._tokens) else ""

    def _peek(self) -> str:
        return self._tokens[self._position][1] if self._position < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._position] if self._position < len(self._tokens) else ("", "")
        self._position += 1
        return token

    def _take(self, text: str) -> bool:
        if self._peek() == text and self._kind() in ("mark", "name"):
            self._position += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise AwkError(f"'{text}' is missing before '{self._peek() or 'end'}'")

    def _skip_ends(self) -> None:
        while self._peek() in (";", "\n") and self._kind() == "mark":
            self._position += 1
