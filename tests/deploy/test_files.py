"""The files of deploy/: commands, names and limits that they rely on."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from orchestrator.cli import farm
from workloads.lab.service_metrics import SERVICE_METRICS

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVERS = ("broker", "store")


def parse(words: list[str]) -> None:
    """Parse a farm command as the command line would; fail if it or an option does not exist."""
    command: click.Command = farm
    while isinstance(command, click.Group):
        context = click.Context(command)
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    command.parse_args(click.Context(command), words)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_commands_of_units_exist(unit: Path) -> None:
    starts = re.findall(r"^ExecStart(?:Pre)?=(.*)$", unit.read_text(), re.MULTILINE)
    assert starts
    for start in starts:
        program, *words = shlex.split(start)
        if unit.stem == "farm-broker":
            assert (program, words[0]) == (
                *("/usr/bin/redis-server", "/var/lib/farmhand/lab/servers/broker.conf"),
            )
        else:
            assert program == "/opt/farmhand/venv/bin/farm"
            parse(words)


def test_services_of_one_computer_have_their_own_health_ports() -> None:
    ports = [
        match[1]
        for unit in UNITS
        if (match := re.search(r"FARM_HEALTH=127\.0\.0\.1:(\S+)", unit.read_text()))
    ]
    assert len(ports) == len(set(ports)) == len(UNITS) - 1  # the broker has none


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_container_is_contained(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["user"] == "10001:10001"
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"]
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["logging"]["options"]["max-size"]
    assert "environment" not in service or not any(
        "PASSWORD" in key and not key.endswith("_FILE") for key in service["environment"]
    )
    if name in SERVERS:
        assert ":" in service["image"].rsplit("/", 1)[1], "the version is pinned"
        assert service["secrets"] == [f"{name}_password"], "one secret per server"
    elif "command" in service:
        parse(list(service["command"]))
    long_lived = "profiles" not in service and service["restart"] != "no"
    assert ("test" in service["healthcheck"]) == long_lived


def test_images_are_built_from_the_checkout_where_the_readme_says() -> None:
    """Compose reads paths relative to the folder of its file, where the README changes to."""
    text = (DEPLOY / "README.md").read_text().partition("## Containers")[2]
    block = re.findall(r"```console\n(.*?)```", text, re.DOTALL)[0].splitlines()
    assert block[0] == "cd deploy"
    assert "--project-directory" not in text
    build = COMPOSE["x-farm"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert "deploy/centre" in ignored, "its files belong to another user"
    assert not {path for line in copied for path in line.split()} & set(ignored)


def test_the_list_of_an_agents_packages_is_what_it_imports() -> None:
    """In a fresh process: import every module of an agent, and note the libraries."""
    lines = (DEPLOY / "agent-requirements.txt").read_text().splitlines()
    names = {line.replace("-", "_") for line in lines if line and not line.startswith("#")}
    roots = [ROOT / "agent", ROOT / "workloads"]
    files = [file for root in roots for file in root.rglob("*.py")]
    files += [ROOT / "kernels/runner_builds.py", ROOT / "orchestrator/cli.py"]
    files = [file for file in files if "virtual" not in file.parts]
    imported: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    own = {"agent", "kernels", "orchestrator", "workloads"}
    parts = {"kombu", "pydantic_core"}  # of Celery and of pydantic
    libraries = imported - own - set(sys.stdlib_module_names) - parts
    assert libraries == names


def test_wheels_contain_what_the_folders_contain() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["packages"]["find"]["include"] == [
        *("agent*", "kernels*", "orchestrator*", "workloads*")
    ]


def test_alerts_use_names_that_exist() -> None:
    text = (DEPLOY / "prometheus/alerts.yaml").read_text()
    (group,) = yaml.safe_load(text)["groups"]
    names = {re.sub(r"_bucket$", "", found) for found in re.findall(r"\bfarm_\w+", text)}
    assert names <= SERVICE_METRICS.keys()
    for rule in group["rules"]:
        assert rule["annotations"]["summary"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())["scrape_configs"]
    ports = {item.rsplit(":")[1] for each in job["static_configs"] for item in each["targets"]}
    assert ports == {"8401", "8402", "8411", "8412"}


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_valid(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True)


def test_a_wrong_call_of_a_script_is_one_sentence() -> None:
    for words, text in (((), "by which name"), (("centre.lab", "--rot"), "unknown argument")):
        command = ["sh", DEPLOY / "install-centre.sh", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
