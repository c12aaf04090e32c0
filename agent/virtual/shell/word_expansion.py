"""Word expansion: parameters, substitutions, field splitting and globs, in the shell's order."""

import ast
import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase, translate
from typing import TYPE_CHECKING

from agent.virtual.shell.command_call import StdStreams, decode
from agent.virtual.shell.shell_lexer import ShellSyntaxError
from agent.virtual.shell.syntax_tree import (
    ArithmeticPart,
    ParameterPart,
    ShellWord,
    SubstitutionPart,
    TextPart,
    WordPart,
)

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


async def expand_fields(shell: "Shell", word: ShellWord, streams: StdStreams) -> list[str]:
    """Return the fields that a word expands to: none, one or many."""
    literal = word.literal
    if literal is not None and not _GLOB.search(literal) and not literal.startswith("~"):
        return [literal]
    builder = _FieldBuilder()
    for part in word.parts:
        if isinstance(part, ParameterPart) and part.name == "@" and part.is_quoted:
            builder.add_arguments(shell.arguments)
        elif part.is_quoted or isinstance(part, TextPart):
            builder.add(TextPart(await _expand_part(shell, part, streams), part.is_quoted))
        else:
            value = await _expand_part(shell, part, streams)
            builder.add_split(value, shell.variables.get("IFS"))
    return [name for field in builder.fields for name in _expand_globs(shell, field)]


class _FieldBuilder:
    """Collects fields; the last one is open until a separator closes it."""

    def __init__(self) -> None:
        self.fields: list[list[TextPart]] = []
        self._is_open = False

    def add(self, text: TextPart) -> None:
        if not self._is_open:
            self.fields.append([])
            self._is_open = True
        self.fields[-1].append(text)

    def add_arguments(self, arguments: list[str]) -> None:
        """Add the fields of "$@": one per argument."""
        for index, argument in enumerate(arguments):
            self._is_open = self._is_open and index == 0
            self.add(TextPart(argument, is_quoted=True))

    def add_split(self, value: str, separators: str | None) -> None:
        """Add an unquoted value: blanks, or the characters of IFS, separate fields."""
        if separators is not None and separators.strip():
            value = re.sub(f"[{re.escape(separators)}]", " ", value)
        elif separators == "":
            self.add(TextPart(value))
            return
        if value[:1].isspace():
            self._is_open = False
        for index, piece in enumerate(value.split()):
            self._is_open = self._is_open and index == 0
            self.add(TextPart(piece))
        if value[-1:].isspace():
            self._is_open = False


async def expand_single(shell: "Shell", word: ShellWord, streams: StdStreams) -> str:
    """Expand a word to one text, as in assignments and redirections."""
    return "".join([await _expand_part(shell, part, streams) for part in word.parts])


async def expand_pattern(shell: "Shell", word: ShellWord, streams: StdStreams) -> str:
    """Expand a word to a pattern: quoted characters are literal."""
    parts = [(await _expand_part(shell, part, streams), part.is_quoted) for part in word.parts]
    return "".join(_escape_glob(text) if is_quoted else text for text, is_quoted in parts)


async def _expand_part(shell: "Shell", part: WordPart, streams: StdStreams) -> str:
    if isinstance(part, TextPart):
        return part.value
    if isinstance(part, ParameterPart):
        return await _expand_parameter(shell, part, streams)
    if isinstance(part, SubstitutionPart):
        output = await shell.capture_output(part.body, streams)
        return decode(output).rstrip("\n").replace("\0", "")
    if isinstance(part, ArithmeticPart):
        return str(
            evaluate_arithmetic(
                await expand_single(shell, part.expression, streams), shell.variables
            )
        )
    raise AssertionError(part)


async def _expand_parameter(shell: "Shell", part: ParameterPart, streams: StdStreams) -> str:
    value = shell.get_parameter(part.name)
    operator = part.operator
    if operator == "length":
        return str(len(value or ""))
    if not operator or part.word is None:
        return value or ""
    if operator in ("#", "##", "%", "%%"):
        return _trim_pattern(value or "", await expand_pattern(shell, part.word, streams), operator)
    if operator in ("/", "//", ":"):
        return _replace_or_slice(
            value or "", await expand_single(shell, part.word, streams), operator, shell
        )
    is_missing = value is None or (operator.startswith(":") and not value)
    if operator.endswith("+"):
        return "" if is_missing else await expand_single(shell, part.word, streams)
    if not is_missing:
        return value or ""
    word = await expand_single(shell, part.word, streams)
    if operator.endswith("="):
        shell.variables[part.name] = word
    if operator.endswith("?"):
        raise ShellSyntaxError(f"{part.name}: {word or 'parameter null or not set'}")
    return word


def _trim_pattern(value: str, pattern: str, operator: str) -> str:
    positions = range(len(value) + 1)
    if operator.startswith("#"):
        ends = [position for position in positions if fnmatchcase(value[:position], pattern)]
        return value[(min if operator == "#" else max)(ends) :] if ends else value
    starts = [position for position in positions if fnmatchcase(value[position:], pattern)]
    return value[: (max if operator == "%" else min)(starts)] if starts else value


def _replace_or_slice(value: str, word: str, operator: str, shell: "Shell") -> str:
    """Evaluate ${x/pattern/text}, ${x//pattern/text} and ${x:start:length}."""
    if operator == ":":
        start_text, cut, length_text = word.partition(":")
        start = evaluate_arithmetic(start_text, shell.variables)
        start = max(len(value) + start, 0) if start < 0 else start
        length = evaluate_arithmetic(length_text, shell.variables) if cut else len(value)
        return value[start : start + length] if length >= 0 else value[start:length]
    pattern, _, text = word.partition("/")
    regex = re.compile(translate(pattern).removesuffix(r"\Z"))
    return (
        regex.sub(lambda _: text, value, count=0 if operator == "//" else 1) if pattern else value
    )


def _expand_globs(shell: "Shell", field: list[TextPart]) -> list[str]:
    text = "".join(part.value for part in field)
    if not any(_GLOB.search(part.value) and not part.is_quoted for part in field):
        if text.startswith("~") and not field[0].is_quoted:
            return [shell.variables.get("HOME", "/") + text[1:]]
        return [text]
    pattern = "".join(_escape_glob(part.value) if part.is_quoted else part.value for part in field)
    return shell.phone.tree.expand_glob(pattern, shell.process.uid, shell.cwd) or [text]


def _escape_glob(text: str) -> str:
    return _GLOB.sub(lambda match: f"[{match[0]}]", text)


def evaluate_arithmetic(expression: str, variables: dict[str, str]) -> int:
    """Evaluate $(( .. )): integers, variables and the usual operators."""

    def lookup(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        value = variables.get(match[1], "").strip() or "0"
        literal = re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|\d+)", value)
        return (
            f"({int(literal[1] + literal[2], 16 if 'x' in value.lower() else 10)})"
            if literal
            else "0"
        )

    numeric = _NAME.sub(lookup, expression).strip() or "0"
    numeric = re.sub(r"\b0+(?=\d)", "", numeric)
    numeric = re.sub(r"([^?]+)\?([^:]+):(.+)", r"(\2) if (\1) else (\3)", numeric)
    python = numeric.replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"(?<!/)/(?!/)", "//", re.sub(r"!(?!=)", " not ", python))
    try:
        return _evaluate(ast.parse(python, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, KeyError) as error:
        raise ShellSyntaxError(f"{expression}: bad arithmetic") from error


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
