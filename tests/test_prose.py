"""The prose rules of CONTRIBUTING.md, checked over every text that a user can see.

A user may see every string of three words or more that is not a docstring, the docstrings of
commands and errors (they are printed), and the templates of the report page. Developers also see
names of functions, docstrings, comments and assertion messages, here and in tests and benchmarks.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from docs.generate import walk_commands
from orchestrator.cli import farm
from tests.documents import documents, written_by_hand
from tests.source_files import FILES, PACKAGES, ROOT, relative
from tests.test_names import error_names

SETTINGS_FILES = (".yaml", ".toml", ".sh")
# What made texts hard to read, each with what to write instead.
BANNED = {
    r"(?<![Tt]here )\b(is|are|was) no (?!longer\b|more\b|less\b)": "say 'is not a ...'",
    r"\bso many\b": "name the number",
    r"\bof before\b": "say 'older' or 'earlier'",
    r"\bwhat (is|was) so\b": "name the observation",
    r"\bstands? (in|there|alone|written|beside|still|for itself)\b": "say 'is in', 'is listed'",
    r"\bunlike\b": "say 'different'",
    r"\b(held|holds?|holding) (\S+ ){0,3}(against|beside)\b": "say 'compare'",
    r"\b(goes|went) on\b": "say 'continues'",
    r"\bfor good\b": "say 'permanently', or what really happens",
    r"\bof its own\b": "say 'its own ...' or leave it out",
    r"\bin words\b": "say 'as text'",
    r"\bis had\b": "say 'is available'",
    r"\b(is|are|was|were|not) told\b(?! apart)|\btells? (of|little)\b": "say 'reported'",
    r"\bsays nothing (of|about)\b": "say what is not known",
    r"\b(asks?|asked) of\b": "say 'requires' or 'requested'",
    r"\b(nobody|whoever|somebody)\b": "name the user, the program or the phone",
    r"\bwithout a word\b": "say 'without output'",
    r"\b(the way of|of the middle|than life|in vain)\b": "use the technical term",
    r"\bsays? (so|why)\b": "say 'states this', 'gives the reason'",
    r"\b(is|are) like (that|this)\b": "say 'matches'",
    r"\b(is|was|are|were) said\b|\bsay (it|one|so)\b|\bsaid with\b": "say 'pass', 'set' or 'given'",
    r"\b(put|puts|putting) (it |them |everything )?back\b": "say 'restore'",
    r"\bmade again\b": "say 'repeated'",
    r"\bbec(ame|omes?) of\b": "say 'outcome'",
    r"(\d|[%})]|\b(ms|s|us|µs|mJ|J|W|MB|GB|K|C|FLOPs?|runs|samples|steps|words|rows|lines|energy|"
    r"round trips|values|times|readings|launches|batch)),? a (step|sample|second|minute|hour|tick|"
    r"run|phone|host|row|line|side|job|round|charge|layer|block|day)\b": "say 'per ...'",
    r", a (step|sample|second|run|phone|host)$": "say 'per ...'",
}

FIRST_SENTENCE_MAX = 62  # longer ones are cut in the help of a group


class Text(NamedTuple):
    """A text of the product and where it is."""

    where: str
    text: str


def bad_patterns(text: str) -> list[str]:
    """Return what is wrong with a text, one entry per banned pattern."""
    return [
        f"{match[0].strip()!r}: {advice}"
        for pattern, advice in BANNED.items()
        if (match := re.search(pattern, text))
    ]


def bad_error(text: str) -> str | None:
    """Return what is wrong with the form of an error's text."""
    if text.endswith(".") and not text.endswith("..."):
        return "ends with a full stop"
    first = re.split(r"[^A-Za-z]", text, maxsplit=1)[0]
    if first[:1].isupper() and first[1:].islower():
        return "starts with a capital letter"
    return None


def joined(node: ast.expr) -> str | None:
    """Return a string or an f-string as text, with {} for every value; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return None


def docstring_nodes(tree: ast.Module) -> dict[int, ast.AST]:
    """Return the docstrings of a module, each with what it documents."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value): node
        for node in ast.walk(tree)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }


def is_printed(owner: ast.AST) -> bool:
    """Whether the docstring of this class or function reaches the user."""
    if isinstance(owner, ast.ClassDef):
        return owner.name in error_names()
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = [ast.unparse(node) for node in owner.decorator_list]
        return any(re.match(r"[\w.]+\.(command|group)\b", name) for name in decorators)
    return False


def visible_texts(tree: ast.Module, where: str) -> Iterator[Text]:
    """Yield every text of a module that a user may see."""
    docs = docstring_nodes(tree)
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        for part in node.values
    }  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in inside:
            continue
        if id(node) in docs and not is_printed(docs[id(node)]):
            continue
        text = joined(node)
        if text is not None and len(text.split()) >= 3:
            yield Text(f"{where}:{node.lineno}", text)


def error_texts(tree: ast.Module, where: str) -> Iterator[Text]:
    """Yield the text of every error of ours that a module raises."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        name = ast.unparse(node.exc.func).rpartition(".")[2]
        if name not in error_names() or not node.exc.args:
            continue
        text = joined(node.exc.args[0])
        if text is not None:
            yield Text(f"{where}:{node.lineno}", text)


def problems_in(tree: ast.Module, where: str) -> list[str]:
    """Return everything that breaks the prose rules in a module."""
    found = [
        f"{at}: {problem} in {text!r}"
        for at, text in visible_texts(tree, where)
        for problem in bad_patterns(text)
    ]
    for at, text in error_texts(tree, where):
        if problem := bad_error(text):
            found.append(f"{at}: {problem}: {text!r}")
    return found


def developer_texts(source: str, where: str) -> Iterator[Text]:
    """Yield the texts of a module that only developers see."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Text(f"{where}:{node.lineno}", node.name.replace("_", " "))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            yield Text(f"{where}:{getattr(node, 'lineno', 1)}", ast.get_docstring(node) or "")
        if isinstance(node, ast.Assert) and node.msg is not None:
            yield Text(f"{where}:{node.lineno}", joined(node.msg) or "")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(f"{where}:{token.start[0]}", token.string)


def developer_files() -> list[Path]:
    """Return the Python files of tests and benchmarks."""
    return sorted(path for name in ("tests", "benchmarks") for path in (ROOT / name).rglob("*.py"))


@pytest.mark.parametrize("path", developer_files(), ids=relative)
def test_tests_and_benchmarks_are_plain(path: Path) -> None:
    found = [
        f"{at}: {problem} in {text!r}"
        for at, text in developer_texts(path.read_text(), relative(path))
        for problem in bad_patterns(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "def test_nobody_is_there() -> None:\n    pass",
        'def f() -> None:\n    """Wait for so many runs."""',
        "x = 1  # it is put back",
        'assert x, "the figures of before"',
    ],
)
def test_a_bad_text_of_a_test_is_found(source: str) -> None:
    assert any(bad_patterns(text) for _, text in developer_texts(source, "x.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_are_plain(package: str) -> None:
    paths = [path for path in FILES if relative(path).startswith(f"{package}/")]
    found = [
        problem
        for path in paths
        for problem in problems_in(ast.parse(path.read_text()), relative(path))
    ]
    found += [
        f"{at}: {problem} in {text!r}"
        for path in paths
        for at, text in developer_texts(path.read_text(), relative(path))
        for problem in bad_patterns(text)
    ]
    assert not found, "\n".join(found)


def other_texts() -> list[Path]:
    """Return other files whose texts a user reads: neither Python nor Markdown."""
    found = [path for end in ("html", "js") for path in (ROOT / "orchestrator").rglob(f"*.{end}")]
    found += [*(ROOT / "orchestrator/study").rglob("*.toml"), *(ROOT / "deploy").glob("*.*")]
    found += [path for path in (ROOT / "examples").rglob("*.*") if path.suffix in SETTINGS_FILES]
    return [*found, ROOT / "farm"]


@pytest.mark.parametrize("path", other_texts(), ids=relative)
def test_templates_examples_and_scripts_are_plain(path: Path) -> None:
    for line in path.read_text().splitlines():
        assert not bad_patterns(line), f"{bad_patterns(line)} in {line}"


def test_messages_of_the_runner_are_plain() -> None:
    for path in (ROOT / "kernels").rglob("*.c"):
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text()):
            if len(text.split()) >= 3:
                assert not bad_patterns(text), f"{relative(path)}: {bad_patterns(text)} in {text}"


@pytest.mark.parametrize("path", documents(), ids=relative)
def test_documents_are_plain(path: Path) -> None:
    for line in written_by_hand(path).splitlines():
        assert not bad_patterns(line), f"{bad_patterns(line)} in {line}"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('TEXT = f"{name} is no host; so many are known"', "is no"),
        ('click.echo("needs 3 mJ a step")', "per ..."),
        ('raise InvalidRequest("The host is unknown")', "capital"),
        ('raise InvalidRequest(f"{host} is unknown.")', "full stop"),
        ('class StoreDown(FarmError):\n    """The store went on without us."""', "went on"),
        ('@click.command()\ndef f() -> None:\n    """Hold two sides against each other."""', None),
        ('@click.command()\ndef f() -> None:\n    """Sides held against each other."""', "compare"),
    ],
)
def test_a_bad_text_is_found(source: str, problem: str | None) -> None:
    found = problems_in(ast.parse(source), "x.py")
    assert (problem is None and not found) or problem in "".join(found), found


@pytest.mark.parametrize(
    "source",
    [
        "raise InvalidRequest(f\"{host} is unknown; see 'farm agent list'\")",
        'raise InvalidRequest("CPU clock not applied")',
        'TEXT = "there is no valid run of a step that is no longer used"',
        'def f() -> None:\n    """So many words of before."""',
    ],
)
def test_a_good_text_passes(source: str) -> None:
    assert not problems_in(ast.parse(source), "x.py")


def shown_commands() -> list[tuple[str, click.Command]]:
    """Return every command of the help, by the words that call it."""
    root = click.Context(farm, info_name="farm")
    return [(" ".join(path), command) for path, command in walk_commands(farm, root)]


@pytest.mark.parametrize(("name", "command"), shown_commands(), ids=str)
def test_the_help_of_a_command_is_complete(name: str, command: click.Command) -> None:
    is_listed = name.count(" ") > 1  # in the help of its group; `farm --help` has its own texts
    problems = bad_help(command, FIRST_SENTENCE_MAX if is_listed else 100)
    assert not problems, f"{name}: {problems}"


def bad_help(command: click.Command, first_max: int) -> list[str]:
    """Return what is wrong with the help of a command and of its options."""
    text = inspect.cleandoc(command.help or "")
    found = [f"the first sentence: {text[:60]!r}"] if not re.match(r"[A-Z][a-z]+\b", text) else []
    if not isinstance(command, click.Group) and "Example" not in text:
        found.append("no example")
    first = text.split("\n\n")[0].replace("\n", " ").split(". ")[0]
    if len(first) > first_max:
        found.append(f"the first sentence has {len(first)} characters")
    for option in command.params:
        shown = getattr(option, "help", "") or ""
        is_shown = isinstance(option, click.Option) and not option.hidden
        if is_shown and not re.fullmatch(r"[A-Z].*\.\s*", shown, re.DOTALL):
            found.append(f"{option.opts[0]}: {shown!r} is not a sentence")
    return found
