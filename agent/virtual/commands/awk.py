"""awk at work: fields, patterns, variables, arrays and the usual functions, line by line."""

import operator
import re
from collections.abc import Callable

from agent.virtual.commands.awk_words import BadAwk, Node, Reader
from agent.virtual.commands.inputs import input_lines
from agent.virtual.commands.patterns import compiled
from agent.virtual.commands.texts import formatted, unescape
from agent.virtual.shell.call import Call, Program

Value = str | float
_NUMBER = re.compile(r"\s*[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_TURNS_MAX = 1_000_000
_MATHS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": lambda a, b: a - b * int(a / b),
}
_ORDERS: dict[str, Callable[[Value, Value], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Jump(Exception):
    """next, exit, break or continue."""

    def __init__(self, kind: str, status: int = 0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.status = status


class _Machine:
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.variables: dict[str, Value] = {"FS": " ", "OFS": " ", "ORS": "\n", "NR": 0.0}
        self._arrays: dict[str, dict[str, Value]] = {}
        self._record = ""
        self._fields: list[str] = []
        self._turns = 0

    def take(self, record: str) -> None:
        self._record = record
        mark = str(self.variables["FS"])
        if mark == " ":
            self._fields = record.split()
        elif not record:
            self._fields = []
        else:
            plain = len(mark) == 1
            self._fields = record.split(mark) if plain else re.split(mark, record)
        self.variables["NF"] = float(len(self._fields))

    # -- statements

    def run(self, node: Node) -> None:
        self._turns += 1
        if self._turns > _TURNS_MAX:
            raise BadAwk("it never ends")
        match node.kind:
            case "block":
                for part in node.parts:
                    self.run(part)
            case "print":
                words = [_text(self.value(part)) for part in node.parts] or [self._record]
                self._say(str(self.variables["OFS"]).join(words) + str(self.variables["ORS"]))
            case "printf":
                shape, *rest = [_text(self.value(part)) for part in node.parts]
                self._say(formatted(shape, rest)[0])
            case "if":
                branch = 1 if _true(self.value(node.parts[0])) else 2
                if branch < len(node.parts):
                    self.run(node.parts[branch])
            case "while" | "for" | "each":
                self._loop(node)
            case "do":
                self.value(node.parts[0])
            case _:
                status = int(_number(self.value(node.parts[0]))) if node.parts else 0
                raise _Jump(node.kind, status)

    def _loop(self, node: Node) -> None:
        if node.kind == "each":
            name, array = node.text.split()
            for key in list(self._arrays.get(array, {})):
                self.variables[name] = key
                if not self._turn(node.parts[0]):
                    return
            return
        nothing = Node("block")
        parts = (
            node.parts if node.kind == "for" else (nothing, node.parts[0], nothing, node.parts[1])
        )
        first, test, step, body = parts
        self.run(first)
        while _true(self.value(test)) and self._turn(body):
            self.run(step)

    def _turn(self, body: Node) -> bool:
        try:
            self.run(body)
        except _Jump as jump:
            if jump.kind not in ("break", "continue"):
                raise
            return jump.kind == "continue"
        return True

    # -- expressions

    def value(self, node: Node) -> Value:
        match node.kind:
            case "number":
                return float(node.text)
            case "string":
                return unescape(node.text)
            case "regex":
                return float(compiled(node.text, extended=True).search(self._record) is not None)
            case "name" | "$" | "[":
                return self._place(node)
            case "group":
                return self.value(node.parts[0])
            case "concat":
                return "".join(_text(self.value(part)) for part in node.parts)
            case "?":
                return self.value(node.parts[1 if _true(self.value(node.parts[0])) else 2])
            case "call":
                return self._call(node)
            case _:
                return self._operation(node)

    def _place(self, node: Node) -> Value:
        if node.kind == "name":
            return self.variables.get(node.text, "")
        inner = self.value(node.parts[0])
        if node.kind == "$":
            return self._field(int(_number(inner)))
        return self._arrays.setdefault(node.text, {}).setdefault(_text(inner), "")

    def _change(self, node: Node) -> Value:
        """Assignments and steps of one."""
        if node.kind == "set":
            new = self.value(node.parts[1])
            if node.text != "=":
                old = _number(self.value(node.parts[0]))
                new = _MATHS[node.text[0]](old, _number(new))
            self._assign(node.parts[0], new)
            return new
        old = _number(self.value(node.parts[0]))
        stepped = old + (1 if node.text == "++" else -1)
        self._assign(node.parts[0], stepped)
        return stepped if node.kind == "unary" else old

    def _unary(self, node: Node) -> Value:
        if node.text in ("++", "--"):
            return self._change(node)
        value = self.value(node.parts[0])
        if node.text == "!":
            return float(not _true(value))
        return -_number(value) if node.text == "-" else _number(value)

    def _operation(self, node: Node) -> Value:
        match node.kind, node.text:
            case "unary", _:
                return self._unary(node)
            case "set" | "after", _:
                return self._change(node)
            case "op", "&&":
                return float(all(_true(self.value(part)) for part in node.parts))
            case "op", "||":
                return float(any(_true(self.value(part)) for part in node.parts))
            case "op", ("~" | "!~"):
                found = self._pattern(node.parts[1]).search(_text(self.value(node.parts[0])))
                return float((found is not None) == (node.text == "~"))
        left, right = self.value(node.parts[0]), self.value(node.parts[1])
        if node.text in _ORDERS:
            both = _looks_numeric(left) and _looks_numeric(right)
            pair = (_number(left), _number(right)) if both else (_text(left), _text(right))
            return float(_ORDERS[node.text](*pair))
        if node.text in "/%" and _number(right) == 0:
            raise BadAwk("division by zero")
        return _MATHS[node.text](_number(left), _number(right))

    def _pattern(self, node: Node) -> re.Pattern[str]:
        text = node.text if node.kind == "regex" else _text(self.value(node))
        return compiled(text, extended=True)

    def _field(self, index: int) -> str:
        if index == 0:
            return self._record
        return self._fields[index - 1] if 0 < index <= len(self._fields) else ""

    def _assign(self, target: Node, value: Value) -> None:
        if target.kind == "name":
            self.variables[target.text] = value
        elif target.kind == "[":
            key = _text(self.value(target.parts[0]))
            self._arrays.setdefault(target.text, {})[key] = value
        elif target.kind == "$":
            index = int(_number(self.value(target.parts[0])))
            if index == 0:
                self.take(_text(value))
                return
            self._fields += [""] * (min(index, 10_000) - len(self._fields))
            self._fields[index - 1] = _text(value)
            self._record = str(self.variables["OFS"]).join(self._fields)

    def _call(self, node: Node) -> Value:
        name = node.text
        if name in ("sub", "gsub"):
            return self._substitute(node)
        if name == "split":
            mark = _text(self.value(node.parts[2])) if len(node.parts) > 2 else " "
            text = _text(self.value(node.parts[0]))
            pieces = text.split() if mark == " " else re.split(re.escape(mark), text)
            numbered = {str(place): piece for place, piece in enumerate(pieces, 1)}
            self._arrays[node.parts[1].text] = dict(numbered)
            return float(len(pieces))
        if name == "match":
            found = self._pattern(node.parts[1]).search(_text(self.value(node.parts[0])))
            return float(found.start() + 1 if found else 0)
        words = [self.value(part) for part in node.parts]
        if name == "length":
            return float(len(_text(words[0]) if words else self._record))
        if name == "substr":
            start = int(_number(words[1])) - 1
            end = start + int(_number(words[2])) if len(words) > 2 else None
            return _text(words[0])[max(start, 0) : end]
        if name == "index":
            return float(_text(words[0]).find(_text(words[1])) + 1)
        if name == "sprintf":
            return formatted(_text(words[0]), [_text(word) for word in words[1:]])[0]
        simple: dict[str, Callable[[Value], Value]] = {
            "int": lambda word: float(int(_number(word))),
            "tolower": lambda word: _text(word).lower(),
            "toupper": lambda word: _text(word).upper(),
            "strtonum": lambda word: float(int(_text(word), 0)),
        }
        if name not in simple:
            raise BadAwk(f"no function {name}")
        return simple[name](words[0])

    def _substitute(self, node: Node) -> float:
        target = node.parts[2] if len(node.parts) > 2 else Node("$", parts=(Node("number", "0"),))
        new = _text(self.value(node.parts[1]))
        text, count = self._pattern(node.parts[0]).subn(
            lambda match: new.replace("&", match[0]),
            _text(self.value(target)),
            count=0 if node.text == "gsub" else 1,
        )
        self._assign(target, text)
        return float(count)


def _text(value: Value) -> str:
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else f"{value:.6g}"
    return value


def _number(value: Value) -> float:
    if isinstance(value, float):
        return value
    match = _NUMBER.match(value)
    return float(match[0]) if match else 0.0


def _looks_numeric(value: Value) -> bool:
    return isinstance(value, float) or not value or _NUMBER.fullmatch(value.strip()) is not None


def _true(value: Value) -> bool:
    return _number(value) != 0 if _looks_numeric(value) else bool(value)


async def awk(call: Call) -> int:
    machine = _Machine(call.say)
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
        rules = Reader(words[0]).rules()
        return await _run(call, machine, rules, words[1:])
    except (BadAwk, re.error) as error:
        return call.complain(str(error), 2)


async def _run(
    call: Call, machine: _Machine, rules: list[tuple[Node | None, Node | None]], names: list[str]
) -> int:
    def special(name: str) -> list[Node]:
        wanted = Node("name", name)
        return [action for pattern, action in rules if pattern == wanted and action is not None]

    others = [rule for rule in rules if rule[0] not in (Node("name", "BEGIN"), Node("name", "END"))]
    status = 0
    try:
        for action in special("BEGIN"):
            machine.run(action)
        lines, status = await input_lines(call, names) if others or special("END") else ([], 0)
        for number, line in enumerate(lines, 1):
            machine.variables["NR"] = float(number)
            machine.take(line)
            _apply(machine, others)
    except _Jump as jump:
        status = jump.status
    try:
        for action in special("END"):
            machine.run(action)
    except _Jump as jump:
        status = jump.status
    return status


def _apply(machine: _Machine, rules: list[tuple[Node | None, Node | None]]) -> None:
    try:
        for pattern, action in rules:
            if pattern is None or _true(machine.value(pattern)):
                machine.run(action or Node("print"))
    except _Jump as jump:
        if jump.kind != "next":
            raise


AWK: dict[str, Program] = {"awk": awk}
