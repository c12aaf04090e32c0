"""Checks the documents: links and paths exist, commands parse, examples are valid.

tests/farm/test_documented_commands.py runs the commands as well.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from itertools import dropwhile, takewhile
from pathlib import Path

import click
import pytest
import yaml

from docs.generate import PAGES, walk_commands
from orchestrator.cli import farm
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.documents import (
    Block,
    anchors,
    blocks,
    commands,
    documents,
    without_blocks,
    written_by_hand,
)
from workloads.lab.settings import VARIABLES
from workloads.protocol.unusable_phone import PhoneProblem

ROOT = Path(__file__).resolve().parents[1]
_INLINE = re.compile(r"`(?:\./)?farm ([a-z][^`]*)`")
_FOLDERS = "agent|kernels|orchestrator|workloads|tests|benchmarks|examples|deploy|docs"
_PATH = re.compile(rf"`((?:{_FOLDERS})/[\w./-]*)`")


def name(path: Path) -> str:
    """Return the path of a document below the root."""
    return path.relative_to(ROOT).as_posix()


def resolve(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Find the command that some words name; return it with its context and the other words."""
    command: click.Command = farm
    context = click.Context(command, info_name="farm")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found, inner, words = command.resolve_command(context, words)
        assert inner is not None, f"there is no command {found}"
        settings = inner.context_settings
        command, context = inner, click.Context(inner, info_name=found, parent=context, **settings)
    return command, context, words


@pytest.mark.parametrize("block", list(blocks("sh", "console")), ids=str)
def test_every_command_in_a_block_parses(block: Block) -> None:
    for line in commands(block):
        words = list(takewhile(lambda word: word not in ("<", ">", "|"), line))
        words = list(dropwhile(lambda word: word == "sudo" or re.match(r"[A-Z_]+=", word), words))
        if not words or words[0] not in ("./farm", "farm"):
            assert block.language == "console", f"{block}: only ./farm is run: {line}"
            continue
        command, context, rest = resolve(words[1:])
        if "--help" not in rest:
            command.parse_args(context, list(rest))


def check_options(text: str) -> None:
    """Check that the command and the options that a text names exist; arguments may be missing."""
    command, _, rest = resolve(shlex.split(text.replace("|", " ").replace("'", "")))
    known = {flag for parameter in command.params for flag in (*parameter.opts, "--help")}
    for word in rest:
        assert not word.startswith("--") or word.partition("=")[0] in known, f"farm {text}"


@pytest.mark.parametrize("path", documents(), ids=name)
def test_every_command_in_a_sentence_exists(path: Path) -> None:
    for text in _INLINE.findall(without_blocks(path)):
        check_options(text)


def test_every_example_in_a_help_text_exists() -> None:
    for _, command in walk_commands(farm, click.Context(farm, info_name="farm")):
        for text in re.findall(
            r"^ *(?:Example: )?farm ([a-z].*)$", command.help or "", re.MULTILINE
        ):
            check_options(text)


@pytest.mark.parametrize("path", documents(), ids=name)
def test_every_link_has_a_target(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", without_blocks(path)):
        file, _, anchor = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), f"{name(path)}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{name(path)}: {target}; it has {anchors(linked)}"


@pytest.mark.parametrize("path", documents(), ids=name)
def test_every_path_in_a_sentence_exists(path: Path) -> None:
    for target in _PATH.findall(without_blocks(path)):
        assert "NAME" in target or (ROOT / target).exists(), f"{name(path)}: {target}"


@pytest.mark.parametrize("block", list(blocks("yaml", "toml")), ids=str)
def test_every_example_in_a_document_is_valid(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.setting.endswith(".yaml"):
        assert read_sweep(block.text).runs_per_phone > 0
    else:  # a part of a sweep file
        assert yaml.safe_load(block.text)


def test_the_generated_tables_are_up_to_date() -> None:
    # In its own process: click caches the help option of a command at its first use, and other
    # tests of this process may have used the command without its parent.
    code = """if True:
        from docs.generate import PAGES, rendered
        for page in PAGES.glob("*.md"):
            if rendered(page.read_text()) != page.read_text():
                print(page.name)
    """
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [], "these pages are out of date; run ./farm docs"


@pytest.mark.parametrize(
    ("page", "values"),
    [
        ("states.md", {*PhoneProblem}),
        ("lab-toml.md", {*VARIABLES}),
    ],
)
def test_a_page_names_every_value(page: str, values: Iterable[str]) -> None:
    text = written_by_hand(PAGES / page)
    assert not [str(value) for value in values if f"`{value}`" not in text]


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=name)
def test_every_example_file_is_valid(file: Path) -> None:
    assert read_sweep(file.read_text()).runs_per_phone > 0
