"""awk: fields, patterns, variables and arithmetic; without loops, arrays and functions."""

import operator
import re
from collections.abc import Callable

from agent.virtual.commands.awk_parser import AwkError, AwkNode, AwkParser
from agent.virtual.commands.command_input import read_input_lines
from agent.virtual.commands.posix_regex import compile_posix
from agent.virtual.commands.text_commands import format_printf, unescape
from agent.virtual.shell.command_call import CommandCall, CommandFunction

Value = str | float
_NUMBER = re.compile(r"\s*[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
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


class _AwkJump(Exception):
    """next or exit was executed."""

    def __init__(self, kind: str, status: int = 0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.status = status


class _AwkMachine:
    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.variables: dict[str, Value] = {"FS": " ", "OFS": " ", "ORS": "\n", "NR": 0.0}
        self._record = ""
        self._fields: list[str] = []

    def set_record(self, record: str) -> None:
        self._record = record
        separator = str(self.variables["FS"])
        if separator == " ":
            self._fields = record.split()
        elif not record:
            self._fields = []
        else:
            is_single = len(separator) == 1
            self._fields = record.split(separator) if is_single else re.split(separator, record)
        self.variables["NF"] = float(len(self._fields))

    # -- statements

    def run(self, node: AwkNode) -> None:
        match node.kind:
            case "block":
                for part in node.parts:
                    self.run(part)
            case "print":
                words = [_to_text(self.evaluate(part)) for part in node.parts] or [self._record]
                self._write(str(self.variables["OFS"]).join(words) + str(self.variables["ORS"]))
            case "printf":
                template, *rest = [_to_text(self.evaluate(part)) for part in node.parts]
                self._write(format_printf(template, rest)[0])
            case "if":
                branch = 1 if _is_true(self.evaluate(node.parts[0])) else 2
                if branch < len(node.parts):
                    self.run(node.parts[branch])
            case "do":
                self.evaluate(node.parts[0])
            case _:
                status = int(_to_number(self.evaluate(node.parts[0]))) if node.parts else 0
                raise _AwkJump(node.kind, status)

    # -- expressions

    def evaluate(self, node: AwkNode) -> Value:
        match node.kind:
            case "number":
                return float(node.text)
            case "string":
                return unescape(node.text)
            case "regex":
                return float(
                    compile_posix(node.text, extended=True).search(self._record) is not None
                )
            case "name":
                return self.variables.get(node.text, "")
            case "$":
                return self._get_field(int(_to_number(self.evaluate(node.parts[0]))))
            case "group":
                return self.evaluate(node.parts[0])
            case "concat":
                return "".join(_to_text(self.evaluate(part)) for part in node.parts)
            case _:
                return self._evaluate_operation(node)

    def _assign_or_step(self, node: AwkNode) -> Value:
        """Evaluate an assignment, ++ or --."""
        if node.kind == "set":
            new = self.evaluate(node.parts[1])
            if node.text != "=":
                old = _to_number(self.evaluate(node.parts[0]))
                new = _ARITHMETIC[node.text[0]](old, _to_number(new))
            self._assign(node.parts[0], new)
            return new
        old = _to_number(self.evaluate(node.parts[0]))
        stepped = old + (1 if node.text == "++" else -1)
        self._assign(node.parts[0], stepped)
        return stepped if node.kind == "unary" else old

    def _unary(self, node: AwkNode) -> Value:
        if node.text in ("++", "--"):
            return self._assign_or_step(node)
        value = self.evaluate(node.parts[0])
        if node.text == "!":
            return float(not _is_true(value))
        return -_to_number(value) if node.text == "-" else _to_number(value)

    def _evaluate_operation(self, node: AwkNode) -> Value:
        match node.kind, node.text:
            case "unary", _:
                return self._unary(node)
            case "set" | "after", _:
                return self._assign_or_step(node)
            case "op", "&&":
                return float(all(_is_true(self.evaluate(part)) for part in node.parts))
            case "op", "||":
                return float(any(_is_true(self.evaluate(part)) for part in node.parts))
            case "op", ("~" | "!~"):
                match = self._compile_pattern(node.parts[1]).search(
                    _to_text(self.evaluate(node.parts[0]))
                )
                return float((match is not None) == (node.text == "~"))
        left, right = self.evaluate(node.parts[0]), self.evaluate(node.parts[1])
        if node.text in _COMPARISONS:
            are_numbers = _looks_numeric(left) and _looks_numeric(right)
            pair = (
                (_to_number(left), _to_number(right))
                if are_numbers
                else (_to_text(left), _to_text(right))
            )
            return float(_COMPARISONS[node.text](*pair))
        if node.text in "/%" and _to_number(right) == 0:
            raise AwkError("division by zero")
        return _ARITHMETIC[node.text](_to_number(left), _to_number(right))

    def _compile_pattern(self, node: AwkNode) -> re.Pattern[str]:
        text = node.text if node.kind == "regex" else _to_text(self.evaluate(node))
        return compile_posix(text, extended=True)

    def _get_field(self, index: int) -> str:
        if index == 0:
            return self._record
        return self._fields[index - 1] if 0 < index <= len(self._fields) else ""

    def _assign(self, target: AwkNode, value: Value) -> None:
        if target.kind == "name":
            self.variables[target.text] = value
        elif target.kind == "$":
            index = int(_to_number(self.evaluate(target.parts[0])))
            if index == 0:
                self.set_record(_to_text(value))
                return
            self._fields += [""] * (min(index, 10_000) - len(self._fields))
            self._fields[index - 1] = _to_text(value)
            self._record = str(self.variables["OFS"]).join(self._fields)


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
    machine = _AwkMachine(call.print)
    words = call.argv[1:]
    while words and words[0].startswith("-") and len(words[0]) > 1:
        letter, value = words[0][1], words.pop(0)[2:]
        if letter not in "Fv":
            continue
        value = value or words.pop(0)
        if letter == "F":
            machine.variables["FS"] = unescape(value)
        else:
            name, _, text = value.partition("=")
            machine.variables[name] = unescape(text)
    try:
        rules = AwkParser(words[0]).parse_rules()
        return await _run(call, machine, rules, words[1:])
    except (AwkError, re.error) as error:
        return call.fail(str(error), 2)


async def _run(
    call: CommandCall,
    machine: _AwkMachine,
    rules: list[tuple[AwkNode | None, AwkNode | None]],
    names: list[str],
) -> int:
    def actions_for(name: str) -> list[AwkNode]:
        rule_name = AwkNode("name", name)
        return [action for pattern, action in rules if pattern == rule_name and action is not None]

    main_rules = [
        rule for rule in rules if rule[0] not in (AwkNode("name", "BEGIN"), AwkNode("name", "END"))
    ]
    status = 0
    try:
        for action in actions_for("BEGIN"):
            machine.run(action)
        lines, status = (
            await read_input_lines(call, names) if main_rules or actions_for("END") else ([], 0)
        )
        for number, line in enumerate(lines, 1):
            machine.variables["NR"] = float(number)
            machine.set_record(line)
            _apply(machine, main_rules)
    except _AwkJump as jump:
        status = jump.status
    try:
        for action in actions_for("END"):
            machine.run(action)
    except _AwkJump as jump:
        status = jump.status
    return status


def _apply(machine: _AwkMachine, rules: list[tuple[AwkNode | None, AwkNode | None]]) -> None:
    try:
        for pattern, action in rules:
            if pattern is None or _is_true(machine.evaluate(pattern)):
                machine.run(action or AwkNode("print"))
    except _AwkJump as jump:
        if jump.kind != "next":
            raise


AWK_COMMANDS: dict[str, CommandFunction] = {"awk": awk}
