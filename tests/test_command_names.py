"""The names of the commands: few enough to read, and old ones lead to new ones."""

import ast
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from docs.generate import walk_commands
from orchestrator.cli import COMMANDS, DEVELOP, farm
from orchestrator.commands.old_names import NEW_NAMES
from tests.source_files import FILES, relative
from workloads.cli_options import DurationUpTo

SCREEN_LINES = 40
TOP_LEVEL_MAX, COMMANDS_MAX = 24, 86


def all_commands() -> dict[str, click.Command]:
    """Return every command of the help, by the words that call it, without `farm`."""
    root = click.Context(farm, info_name="farm")
    return {" ".join(path[1:]): command for path, command in walk_commands(farm, root)}


def test_the_help_fits_on_one_screen() -> None:
    lines = CliRunner().invoke(farm, ["--help"], prog_name="farm").output.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert len(COMMANDS) <= TOP_LEVEL_MAX
    assert not any(name in line.split()[:1] for line in lines for name in DEVELOP)


def test_there_are_few_commands() -> None:
    leaves = [name for name, each in all_commands().items() if not isinstance(each, click.Group)]
    assert len(leaves) <= COMMANDS_MAX, "give a command an option, or take one away"


@pytest.mark.parametrize("name", DEVELOP)
def test_a_tool_of_developers_works_without_being_listed(name: str) -> None:
    result = CliRunner().invoke(farm, [name, "--help"], prog_name="farm")
    assert result.exit_code == 0
    assert f"Usage: farm {name}" in result.output


@pytest.mark.parametrize("old", NEW_NAMES)
def test_an_old_name_prints_the_new_one(old: str) -> None:
    result = CliRunner().invoke(farm, [*old.split(), "anything", "--lab", "x"])
    assert result.exit_code == 2
    assert f"'farm {old}' is now 'farm {NEW_NAMES[old]}'." in result.output


def test_every_new_name_exists() -> None:
    commands = all_commands()
    for old, new in NEW_NAMES.items():
        words = new.split(" --")[0].split()
        longest = " ".join(words)
        if words[0] == "help":  # its topics are arguments
            longest = "help"
        command = commands[longest]
        options = {name for each in command.params for name in each.opts}
        assert {f"--{word}" for word in new.split(" --")[1:]} <= options, new
        assert old not in commands, f"'{old}' has a new name and is a command"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("2h", 7200.0), ("1d", 86400.0), ("1.5m", 90.0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert DurationUpTo(1e6)(text) == seconds


@pytest.mark.parametrize("text", ["90", "2 weeks", "", "nan", "0s", "20d"])
def test_a_duration_without_a_unit_or_beyond_its_limit_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a duration|is too (long|short)"):
        DurationUpTo(1e6)(text)


NAMED = re.compile(r"(['`]|: )farm [a-z]")


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_what_is_printed_names_commands_as_they_are_typed(path: Path) -> None:
    for call in ast.walk(ast.parse(path.read_text())):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "click.echo":
            continue
        texts = [part.value for part in ast.walk(call) if isinstance(part, ast.Constant)]
        named = [text for text in texts if isinstance(text, str) and NAMED.search(text)]
        assert not named, f"line {call.lineno}: use say() of workloads/command_output.py"
