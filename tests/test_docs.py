"""Every command in the documents is understood; tests/farm/test_readme.py runs them as well."""

import re
from pathlib import Path

import click
import pytest
import yaml

from orchestrator.cli import farm
from orchestrator.plan.sweep import read_sweep
from workloads.measure import metrics_table

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "deploy/README.md")
_COMMAND = re.compile(r"\./farm ([^`#\n]*)")


def commands() -> list[tuple[str, list[str]]]:
    """Every `./farm ...` of the documents."""
    found = []
    for name in DOCUMENTS:
        for line in _COMMAND.findall((ROOT / name).read_text()):
            found.append((name, line.split()))
    return found


@pytest.mark.parametrize(("document", "words"), commands(), ids=str)
def test_a_documented_command_is_understood(document: str, words: list[str]) -> None:
    command: click.Command = farm
    context = click.Context(command, info_name="farm")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, f"{document}: there is no command {name}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    if "--help" not in words:
        command.parse_args(context, list(words))
    for word in words:
        if word.endswith(".yaml"):
            read_sweep((ROOT / word).read_text())


def test_the_sweep_in_the_readme_is_valid() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert 24 == read_sweep(text).runs_per_phone


def test_the_table_of_metrics_is_what_the_code_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    _, _, section = text.partition("\n## Metrics\n")
    assert metrics_table() in section, "copy the table of './farm metrics' into ARCHITECTURE.md"


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_is_valid(file: Path) -> None:
    assert read_sweep(file.read_text()).runs_per_phone > 0


def test_the_commands_of_the_deployment_exist() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    up = farm.get_command(click.Context(farm), "up")
    assert up is not None
    assert "up" == compose["services"]["middle"]["command"][0]
    up.parse_args(click.Context(up), compose["services"]["middle"]["command"][1:])
    unit = (ROOT / "deploy/farm-agent.service").read_text()
    (words,) = re.findall(r"^ExecStart=/opt/farmhand/farm agent run (.*)$", unit, re.MULTILINE)
    agent = farm.get_command(click.Context(farm), "agent")
    assert isinstance(agent, click.Group)
    agent.commands["run"].parse_args(click.Context(agent.commands["run"]), words.split())


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for name in DOCUMENTS:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / name).read_text()):
            assert (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"
