"""Words to fields: parameters, substitutions, splitting and globs, in the shell's order."""

import ast
import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase, translate
from typing import TYPE_CHECKING

from agent.virtual.shell.call import Streams, decode
from agent.virtual.shell.grammar import Arithmetic, Parameter, Part, Substitution, Text, Word
from agent.virtual.shell.reader import BadSyntax

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell

_GLOB = re.compile(r"[*?\[]")
_NAME = re.compile(r"\b0[xX][0-9a-fA-F]+|\$?\b([A-Za-z_]\w*)")

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


async def fields(shell: "Shell", word: Word, streams: Streams) -> list[str]:
    """The fields a word becomes: none, one or many."""
    literal = word.literal
    if literal is not None and not _GLOB.search(literal) and not literal.startswith("~"):
        return [literal]
    gathered = _Fields()
    for part in word.parts:
        if isinstance(part, Parameter) and part.name == "@" and part.quoted:
            gathered.add_each(shell.arguments)
        elif part.quoted or isinstance(part, Text):
            gathered.add(Text(await _value(shell, part, streams), part.quoted))
        else:
            value = await _value(shell, part, streams)
            gathered.add_split(value, shell.variables.get("IFS"))
    return [name for field in gathered.made for name in _globbed(shell, field)]


class _Fields:
    """Fields in the making; the last one is open until a blank closes it."""

    def __init__(self) -> None:
        self.made: list[list[Text]] = []
        self._open = False

    def add(self, text: Text) -> None:
        if not self._open:
            self.made.append([])
            self._open = True
        self.made[-1].append(text)

    def add_each(self, arguments: list[str]) -> None:
        """ "$@": every argument a field of its own."""
        for index, argument in enumerate(arguments):
            self._open = self._open and index == 0
            self.add(Text(argument, quoted=True))

    def add_split(self, value: str, marks: str | None) -> None:
        """An unquoted value: blanks close fields, or whatever IFS names."""
        if marks is not None and marks.strip():
            value = re.sub(f"[{re.escape(marks)}]", " ", value)
        elif marks == "":
            self.add(Text(value))
            return
        if value[:1].isspace():
            self._open = False
        for index, piece in enumerate(value.split()):
            self._open = self._open and index == 0
            self.add(Text(piece))
        if value[-1:].isspace():
            self._open = False


async def single(shell: "Shell", word: Word, streams: Streams) -> str:
    """A word as one text, as in assignments and redirections."""
    return "".join([await _value(shell, part, streams) for part in word.parts])


async def pattern(shell: "Shell", word: Word, streams: Streams) -> str:
    """A word as a pattern: quoted characters stand for themselves."""
    parts = [(await _value(shell, part, streams), part.quoted) for part in word.parts]
    return "".join(_escape(text) if quoted else text for text, quoted in parts)


async def _value(shell: "Shell", part: Part, streams: Streams) -> str:
    if isinstance(part, Text):
        return part.value
    if isinstance(part, Parameter):
        return await _parameter(shell, part, streams)
    if isinstance(part, Substitution):
        output = await shell.capture(part.body, streams)
        return decode(output).rstrip("\n").replace("\0", "")
    if isinstance(part, Arithmetic):
        return str(arithmetic(await single(shell, part.expression, streams), shell.variables))
    raise AssertionError(part)


async def _parameter(shell: "Shell", part: Parameter, streams: Streams) -> str:
    value = shell.parameter(part.name)
    kind = part.operator
    if kind == "length":
        return str(len(value or ""))
    if not kind or part.word is None:
        return value or ""
    if kind in ("#", "##", "%", "%%"):
        return _trimmed(value or "", await pattern(shell, part.word, streams), kind)
    if kind in ("/", "//", ":"):
        return _changed(value or "", await single(shell, part.word, streams), kind, shell)
    missing = value is None or (kind.startswith(":") and not value)
    if kind.endswith("+"):
        return "" if missing else await single(shell, part.word, streams)
    if not missing:
        return value or ""
    word = await single(shell, part.word, streams)
    if kind.endswith("="):
        shell.variables[part.name] = word
    if kind.endswith("?"):
        raise BadSyntax(f"{part.name}: {word or 'parameter null or not set'}")
    return word


def _trimmed(value: str, shape: str, kind: str) -> str:
    cuts = range(len(value) + 1)
    if kind.startswith("#"):
        ends = [cut for cut in cuts if fnmatchcase(value[:cut], shape)]
        return value[(min if kind == "#" else max)(ends) :] if ends else value
    starts = [cut for cut in cuts if fnmatchcase(value[cut:], shape)]
    return value[: (max if kind == "%" else min)(starts)] if starts else value


def _changed(value: str, word: str, kind: str, shell: "Shell") -> str:
    """${x/shape/text}, ${x//shape/text} and ${x:start:length}."""
    if kind == ":":
        start_text, cut, length_text = word.partition(":")
        start = arithmetic(start_text, shell.variables)
        start = max(len(value) + start, 0) if start < 0 else start
        length = arithmetic(length_text, shell.variables) if cut else len(value)
        return value[start : start + length] if length >= 0 else value[start:length]
    shape, _, text = word.partition("/")
    wanted = re.compile(translate(shape).removesuffix(r"\Z"))
    return wanted.sub(lambda _: text, value, count=0 if kind == "//" else 1) if shape else value


def _globbed(shell: "Shell", field: list[Text]) -> list[str]:
    text = "".join(part.value for part in field)
    if not any(_GLOB.search(part.value) and not part.quoted for part in field):
        if text.startswith("~") and not field[0].quoted:
            return [shell.variables.get("HOME", "/") + text[1:]]
        return [text]
    shape = "".join(_escape(part.value) if part.quoted else part.value for part in field)
    return shell.phone.tree.match(shape, shell.process.uid, shell.cwd) or [text]


def _escape(text: str) -> str:
    return _GLOB.sub(lambda mark: f"[{mark[0]}]", text)


def arithmetic(expression: str, variables: dict[str, str]) -> int:
    """Evaluate $(( .. )): whole numbers, variables, the usual operators."""

    def lookup(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        value = variables.get(match[1], "").strip() or "0"
        found = re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|\d+)", value)
        return f"({int(found[1] + found[2], 16 if 'x' in value.lower() else 10)})" if found else "0"

    numeric = _NAME.sub(lookup, expression).strip() or "0"
    numeric = re.sub(r"\b0+(?=\d)", "", numeric)
    numeric = re.sub(r"([^?]+)\?([^:]+):(.+)", r"(\2) if (\1) else (\3)", numeric)
    python = numeric.replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"(?<!/)/(?!/)", "//", re.sub(r"!(?!=)", " not ", python))
    try:
        return _evaluate(ast.parse(python, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, KeyError) as error:
        raise BadSyntax(f"{expression}: bad arithmetic") from error


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test) else node.orelse)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.LShift | ast.Mult) and max(abs(left), abs(right)) > 1 << 40:
            raise ValueError("too large")
        if isinstance(node.op, ast.LShift) and right > 63:
            raise ValueError("too far")
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand)
        signs = {ast.Not: int(not value), ast.USub: -value, ast.UAdd: value, ast.Invert: ~value}
        return signs[type(node.op)]
    if isinstance(node, ast.Compare):
        return int(
            _COMPARE[type(node.ops[0])](_evaluate(node.left), _evaluate(node.comparators[0]))
        )
    if isinstance(node, ast.BoolOp):
        values = [_evaluate(value) != 0 for value in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    raise ValueError(ast.dump(node))
