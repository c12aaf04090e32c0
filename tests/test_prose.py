"""What docs/style.md asks for, as far as a program can see it.

Documents and helps: sentences that a semicolon joins, "that of" and "those of", and verbs without
an agent. Errors and helps also have a fixed form.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs.generate import walk_commands
from docs.voice import pages_to_read, style_of
from orchestrator.cli import farm
from tests.documents import documents, written_by_hand
from tests.source_files import FILES, relative
from tests.test_names import error_names

FIRST_SENTENCE_MAX = 62  # longer ones are cut in the help of a group
# Of the sentences of a page, and of all pages. Good documentation of others has one in a hundred.
JOINED_MAX, JOINED_MAX_OF_ALL = 0.25, 0.06
AGENTLESS_MAX = 0.10
JOINED_MAX_TO_READ, ADDRESSING_MIN = 0.01, 0.25  # tutorial and how-to pages
FEW = 2  # a short page may have as many in any case


def pages() -> dict[str, str]:
    """Return every document, and the helps of all commands as one page."""
    found = {relative(path): written_by_hand(path) for path in documents()}
    helps = (inspect.cleandoc(command.help or "") for _, command in shown_commands())
    return found | {"farm --help": "\n\n".join(text.split("\b")[0] for text in helps)}


def shown_commands() -> list[tuple[str, click.Command]]:
    """Return every command of the help, by the words that call it."""
    root = click.Context(farm, info_name="farm")
    return [(" ".join(path), command) for path, command in walk_commands(farm, root)]


@pytest.mark.parametrize("page", pages())
def test_a_page_speaks_in_plain_sentences(page: str) -> None:
    style = style_of(pages()[page])
    assert not style.that_of, "repeat the noun"
    for bad, share in ((style.joined, JOINED_MAX), (style.agentless, AGENTLESS_MAX)):
        assert len(bad) <= max(FEW, share * style.sentences), "see docs/style.md:\n" + "\n".join(
            bad
        )


@pytest.mark.parametrize("path", pages_to_read(), ids=relative)
def test_a_page_that_leads_the_reader_addresses_them(path: Path) -> None:
    style = style_of(path.read_text())
    assert len(style.joined) <= JOINED_MAX_TO_READ * style.sentences, "\n".join(style.joined)
    assert len(style.addressing) >= ADDRESSING_MIN * style.sentences, "say 'you'"


def test_semicolons_do_not_become_more() -> None:
    styles = [style_of(text) for text in pages().values()]
    joined = sum(len(style.joined) for style in styles)
    assert joined <= JOINED_MAX_OF_ALL * sum(style.sentences for style in styles)


def test_bad_sentences_are_found() -> None:
    text = """\
# A title; it is not a sentence

The run is void; it is repeated. Its time is that of the first run.
The file is refused. Then you repeat it. The phone is read by the agent `a; b` (in a bracket; here).

| a cell; no sentence | those of a table |
"""
    style = style_of(text)
    assert style.sentences == 5
    assert style.addressing == ["Then you repeat it."]
    assert style.joined == ["The run is void; it is repeated."]
    assert style.that_of == ["Its time is that of the first run."]
    assert style.agentless == ["The file is refused."]


def bad_error(text: str) -> str | None:
    """Return what is wrong with the form of an error's text."""
    if text.endswith(".") and not text.endswith("..."):
        return "ends with a full stop"
    first = re.split(r"[^A-Za-z]", text, maxsplit=1)[0]
    if first[:1].isupper() and first[1:].islower():
        return "starts with a capital letter"
    return None


def error_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every error of ours that a module raises, {} for each value."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        name = ast.unparse(node.exc.func).rpartition(".")[2]
        text = node.exc.args[0] if name in error_names() and node.exc.args else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield node.lineno, text.value
        elif isinstance(text, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in text.values]
            yield node.lineno, "".join(map(str, parts))


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_errors_have_their_form(path: Path) -> None:
    texts = error_texts(ast.parse(path.read_text()))
    assert not [f"line {line}: {bad_error(text)}" for line, text in texts if bad_error(text)]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('raise InvalidRequest("The host is unknown")', "starts with a capital letter"),
        ('raise InvalidRequest(f"{host} is unknown.")', "ends with a full stop"),
        ("raise InvalidRequest(f\"{host} is unknown; see 'farm host list'\")", None),
        ('raise InvalidRequest("CPU clock not applied")', None),
    ],
)
def test_a_bad_error_is_found(source: str, problem: str | None) -> None:
    ((_, text),) = error_texts(ast.parse(source))
    assert bad_error(text) == problem


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
