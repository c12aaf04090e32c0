"""awk's text to a tree: tokens, expressions by precedence, statements. Reads, never runs."""

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
# Before one of these a slash divides; anywhere else it opens a pattern.
_VALUE_ENDS = {"number", "string", "name"}
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("~", "!~"),
    ("<", "<=", "==", "!=", ">", ">="),
    ("concat",),
    ("+", "-"),
    ("*", "/", "%"),
)
_ASSIGNS = ("=", "+=", "-=", "*=", "/=", "%=")


class BadAwk(ValueError):
    """No program that is understood here."""


@dataclass(frozen=True, slots=True)
class Node:
    """An expression or a statement: its kind, a word, and what it is made of."""

    kind: str
    text: str = ""
    parts: tuple["Node", ...] = field(default=())


def tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        before = found[-1] if found else ("mark", "")
        divides = before[0] in _VALUE_ENDS or before[1] in (")", "]", "$")
        if text[at] == "/" and not divides:
            end = at + 1
            while end < len(text) and text[end] != "/":
                end += 2 if text[end] == "\\" else 1
            found.append(("regex", text[at + 1 : end].replace("\\/", "/")))
            at = end + 1
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadAwk(f"unexpected '{text[at]}'")
        at = match.end()
        if match.lastgroup != "blank":
            found.append((str(match.lastgroup), match[0]))
    return found


class Reader:
    """Reads rules: (pattern, action) pairs."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._at = 0

    def rules(self) -> list[tuple[Node | None, Node | None]]:
        rules: list[tuple[Node | None, Node | None]] = []
        while True:
            self._skip_ends()
            if self._at >= len(self._tokens):
                return rules
            pattern = None if self._peek() == "{" else self._expression()
            rules.append((pattern, self._block() if self._peek() == "{" else None))

    # -- statements

    def _block(self) -> Node:
        self._expect("{")
        parts: list[Node] = []
        self._skip_ends()
        while not self._take("}"):
            parts.append(self._statement())
            self._skip_ends()
        return Node("block", parts=tuple(parts))

    def _statement(self) -> Node:
        word = self._peek()
        if word == "{":
            return self._block()
        if word in ("print", "printf"):
            self._at += 1
            return Node(word, parts=tuple(self._list(";", "\n", "}")))
        if word in ("next", "exit", "break", "continue"):
            self._at += 1
            ended = self._peek() in (";", "\n", "}", "")
            return Node(word, parts=() if ended else (self._expression(),))
        if word == "if":
            return self._if()
        if word == "while":
            self._at += 1
            return Node("while", parts=(self._in_parentheses(), self._body()))
        if word == "for":
            return self._for()
        return Node("do", parts=(self._expression(),))

    def _if(self) -> Node:
        self._at += 1
        condition, body = self._in_parentheses(), self._body()
        at = self._at
        self._skip_ends()
        if self._take("else"):
            return Node("if", parts=(condition, body, self._body()))
        self._at = at
        return Node("if", parts=(condition, body))

    def _for(self) -> Node:
        self._at += 1
        self._expect("(")
        if self._tokens[self._at + 1 : self._at + 2] == [("name", "in")]:
            name = self._next()[1]
            self._at += 1
            array = self._next()[1]
            self._expect(")")
            return Node("each", f"{name} {array}", (self._body(),))
        first = Node("block") if self._peek() == ";" else self._statement()
        self._expect(";")
        test = Node("number", "1") if self._peek() == ";" else self._expression()
        self._expect(";")
        step = Node("block") if self._peek() == ")" else self._statement()
        self._expect(")")
        return Node("for", parts=(first, test, step, self._body()))

    def _body(self) -> Node:
        self._skip_ends()
        return self._statement()

    def _in_parentheses(self) -> Node:
        self._expect("(")
        inner = self._expression()
        self._expect(")")
        return inner

    def _list(self, *ends: str) -> list[Node]:
        parts: list[Node] = []
        while self._peek() not in (*ends, ""):
            parts.append(self._expression())
            if not self._take(","):
                break
        return parts

    # -- expressions

    def _expression(self) -> Node:
        left = self._level(0)
        if self._take("?"):
            yes = self._expression()
            self._expect(":")
            return Node("?", parts=(left, yes, self._expression()))
        if self._peek() in _ASSIGNS and left.kind in ("name", "$", "["):
            sign = self._next()[1]
            return Node("set", sign, (left, self._expression()))
        return left

    def _level(self, depth: int) -> Node:
        if depth == len(_LEVELS):
            return self._unary()
        signs = _LEVELS[depth]
        left = self._level(depth + 1)
        while True:
            if signs == ("concat",):
                if not self._starts_value():
                    return left
                left = Node("concat", parts=(left, self._level(depth + 1)))
            elif self._kind() == "mark" and self._peek() in signs:
                sign = self._next()[1]
                left = Node("op", sign, (left, self._level(depth + 1)))
            else:
                return left

    def _starts_value(self) -> bool:
        words = ("in", "else")
        kind, text = self._kind(), self._peek()
        return (kind in ("number", "string", "name") and text not in words) or text in ("$", "(")

    def _unary(self) -> Node:
        for sign in ("!", "-", "+", "++", "--"):
            if self._take(sign):
                return Node("unary", sign, (self._unary(),))
        value = self._value()
        while self._kind() == "mark" and self._peek() in ("++", "--"):
            value = Node("after", self._next()[1], (value,))
        return value

    def _value(self) -> Node:
        kind, text = self._next()
        if kind in ("number", "regex"):
            return Node(kind, text)
        if kind == "string":
            return Node("string", text[1:-1])
        if text == "$":
            return Node("$", parts=(self._value(),))
        if text == "(":
            inner = self._expression()
            self._expect(")")
            return Node("group", parts=(inner,))
        if kind != "name":
            raise BadAwk(f"unexpected '{text or 'end'}'")
        if self._take("("):
            arguments = self._list(")")
            self._expect(")")
            return Node("call", text, tuple(arguments))
        if self._take("["):
            index = self._expression()
            self._expect("]")
            return Node("[", text, (index,))
        return Node("call", text) if text == "length" else Node("name", text)

    # -- small steps

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        self._at += 1
        return token

    def _take(self, text: str) -> bool:
        if self._peek() == text and self._kind() in ("mark", "name"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise BadAwk(f"'{text}' is missing before '{self._peek() or 'end'}'")

    def _skip_ends(self) -> None:
        while self._peek() in (";", "\n") and self._kind() == "mark":
            self._at += 1
