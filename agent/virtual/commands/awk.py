"""awk: rules with patterns, fields, variables and arithmetic, print and printf.

Branches, loops, arrays and functions are errors: phone tools only select fields and add them up.
"""

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from agent.virtual.commands.command_input import read_input_lines
from agent.virtual.commands.posix_regex import compile_posix
from agent.virtual.commands.text_commands import format_printf, unescape
from agent.virtual.shell.command_call import CommandCall, CommandFunction

Value = str | float
_NUMBER = re.compile(r"\s*[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n|\#[^\n]*)
    |(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+)
    |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark>\+=|-=|\*=|/=|%=|==|!=|<=|>=|!~|[-+*/%<>~=$(){}\[\],;\n])""",
    re.VERBOSE,
)
_VALUES = ("number", "string", "name")  # after one of these a slash divides
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": lambda a, b: a - b * int(a / b),
}
_COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_BESIDE = ""  # the operator between two values that stand side by side: they are joined
_LEVELS = (("~", "!~"), tuple(_COMPARISONS), (_BESIDE,), ("+", "-"), ("*", "/", "%"))
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=")
_UNSUPPORTED = ("if", "while", "for", "do", "next", "exit", "function", "delete", "getline")


class AwkError(ValueError):
    """The program is invalid or uses what is not supported here."""


class _AwkState:
    """The variables of a program, and the fields of the present line, itself first."""

    def __init__(self) -> None:
        self.variables: dict[str, Value] = {"FS": " ", "OFS": " ", "ORS": "\n", "NR": 0.0}
        self.fields = [""]

    def set_line(self, number: int, line: str) -> None:
        separator = str(self.variables["FS"])
        pattern = re.escape(separator) if len(separator) == 1 else separator
        fields = line.split() if separator == " " else re.split(pattern, line) if line else []
        self.fields = [line, *fields]
        self.variables |= {"NR": float(number), "NF": float(len(fields))}

    def field(self, index: int) -> str:
        return self.fields[index] if 0 <= index < len(self.fields) else ""


Evaluate = Callable[[_AwkState], Value]


class _AwkRule(NamedTuple):
    event: str  # BEGIN, END, or empty: a line
    pattern: Evaluate | None
    actions: Sequence[Callable[[_AwkState], str]]  # each returns what it prints


class _AwkParser:
    """Parses a program into functions of the state."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokenize(text), ("", ""), ("", "")]
        self._position = 0

    def rules(self) -> list[_AwkRule]:
        rules = []
        self._skip_ends()
        while self._kind():
            event = self._next()[1] if self._peek() in ("BEGIN", "END") else ""
            pattern = None if event or self._peek() == "{" else self._expression()
            rules.append(_AwkRule(event, pattern, self._actions()))
            self._skip_ends()
        return rules

    def _actions(self) -> list[Callable[[_AwkState], str]]:
        if not self._take("{"):
            return [partial(_print, ())]
        actions = []
        self._skip_ends()
        while not self._take("}"):
            actions.append(self._statement())
            self._skip_ends()
        return actions

    def _statement(self) -> Callable[[_AwkState], str]:
        if self._peek() not in ("print", "printf"):
            return partial(_evaluate_only, self._expression())
        action = _print if self._next()[1] == "print" else _printf
        parts: list[Evaluate] = []
        while self._peek() not in (";", "\n", "}", "") and (not parts or self._take(",")):
            parts.append(self._expression())
        return partial(action, parts)

    def _expression(self) -> Evaluate:
        if self._kind() != "name" or self._tokens[self._position + 1][1] not in _ASSIGNMENTS:
            return self._level(0)
        name, sign = self._next()[1], self._next()[1]
        return partial(_assign, name, sign, self._expression())

    def _level(self, depth: int) -> Evaluate:
        if depth == len(_LEVELS):
            return self._value()
        left = self._level(depth + 1)
        while (sign := self._take_sign(_LEVELS[depth])) is not None:
            is_regex = "~" in sign and self._kind() == "regex"
            right = partial(_constant, self._next()[1]) if is_regex else self._level(depth + 1)
            left = partial(_operate, sign, left, right)
        return left

    def _take_sign(self, signs: tuple[str, ...]) -> str | None:
        if signs == (_BESIDE,):
            return _BESIDE if self._kind() in _VALUES or self._peek() in ("$", "(") else None
        is_sign = self._kind() == "mark" and self._peek() in signs
        return self._next()[1] if is_sign else None

    def _value(self) -> Evaluate:
        kind, text = self._next()
        if kind == "number":
            return partial(_constant, float(text))
        if kind == "string":
            return partial(_constant, unescape(text[1:-1]))
        if kind == "regex":
            pattern = compile_posix(text, extended=True)
            return lambda state: float(pattern.search(state.fields[0]) is not None)
        if text == "$":
            index = self._value()
            return lambda state: state.field(int(_to_number(index(state))))
        if text == "(":
            inner = self._expression()
            if not self._take(")"):
                raise AwkError(f"')' is missing before '{self._peek() or 'end'}'")
            return inner
        if kind != "name":
            raise AwkError(f"unexpected '{text or 'end'}'")
        if text in _UNSUPPORTED or self._peek() in ("(", "["):
            raise AwkError(f"not supported: {text}")
        return lambda state: state.variables.get(text, "")

    # -- tokens

    def _kind(self) -> str:
        return self._tokens[self._position][0]

    def _peek(self) -> str:
        return self._tokens[self._position][1]

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._position]
        self._position += bool(token[0])  # the end stays the end
        return token

    def _take(self, text: str) -> bool:
        is_next = self._kind() == "mark" and self._peek() == text
        self._position += is_next
        return is_next

    def _skip_ends(self) -> None:
        while self._take(";") or self._take("\n"):
            pass


def _tokenize(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        previous = tokens[-1] if tokens else ("mark", "")
        divides = previous[0] in _VALUES or previous[1] in (")", "$")
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


def _constant(value: Value, state: _AwkState) -> Value:
    return value


def _print(parts: Sequence[Evaluate], state: _AwkState) -> str:
    words = [_to_text(part(state)) for part in parts] or [state.fields[0]]
    return str(state.variables["OFS"]).join(words) + str(state.variables["ORS"])


def _printf(parts: Sequence[Evaluate], state: _AwkState) -> str:
    template, *rest = [_to_text(part(state)) for part in parts]
    return format_printf(template, rest)[0]


def _evaluate_only(expression: Evaluate, state: _AwkState) -> str:
    expression(state)
    return ""


def _assign(name: str, sign: str, right: Evaluate, state: _AwkState) -> Value:
    value = right(state)
    if sign != "=":
        value = _calculate(sign[0], state.variables.get(name, ""), value)
    state.variables[name] = value
    return value


def _operate(sign: str, left: Evaluate, right: Evaluate, state: _AwkState) -> Value:
    a, b = left(state), right(state)
    if sign == _BESIDE:
        return _to_text(a) + _to_text(b)
    if "~" in sign:
        found = compile_posix(_to_text(b), extended=True).search(_to_text(a)) is not None
        return float(found == (sign == "~"))
    if sign in _COMPARISONS:
        are_numbers = _looks_numeric(a) and _looks_numeric(b)
        pair = (_to_number(a), _to_number(b)) if are_numbers else (_to_text(a), _to_text(b))
        return float(_COMPARISONS[sign](*pair))
    return _calculate(sign, a, b)


def _calculate(sign: str, left: Value, right: Value) -> float:
    if sign in "/%" and _to_number(right) == 0:
        raise AwkError("division by zero")
    return _ARITHMETIC[sign](_to_number(left), _to_number(right))


def _to_text(value: Value) -> str:
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else f"{value:.6g}"
    return value


def _to_number(value: Value) -> float:
    if isinstance(value, float):
        return value
    match = _NUMBER.match(value)
    return float(match[0]) if match else 0.0


def _looks_numeric(value: Value) -> bool:
    return isinstance(value, float) or not value or _NUMBER.fullmatch(value.strip()) is not None


def _is_true(value: Value) -> bool:
    return _to_number(value) != 0 if _looks_numeric(value) else bool(value)


async def awk(call: CommandCall) -> int:
    state = _AwkState()
    words = call.argv[1:]
    while words and words[0].startswith("-") and len(words[0]) > 1:
        letter, value = words[0][1], words.pop(0)[2:]
        if letter not in "Fv":
            continue
        value = value or words.pop(0)
        name, _, text = value.partition("=") if letter == "v" else ("FS", "", value)
        state.variables[name] = unescape(text)
    try:
        return await _run(call, state, _AwkParser(words[0]).rules(), words[1:])
    except (AwkError, re.error) as error:
        return call.fail(str(error), 2)


async def _run(call: CommandCall, state: _AwkState, rules: list[_AwkRule], names: list[str]) -> int:
    def apply(event: str) -> None:
        for rule in rules:
            if rule.event == event and (rule.pattern is None or _is_true(rule.pattern(state))):
                for action in rule.actions:
                    call.print(action(state))

    apply("BEGIN")
    status = 0
    if any(rule.event != "BEGIN" for rule in rules):
        lines, status = await read_input_lines(call, names)
        for number, line in enumerate(lines, 1):
            state.set_line(number, line)
            apply("")
    apply("END")
    return status


AWK_COMMANDS: dict[str, CommandFunction] = {"awk": awk}
