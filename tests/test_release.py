"""What a release consists of besides its code: version, citation, licences, issue templates."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_file_names_the_version_that_is_installed() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {version("farmhand"), citation["version"], changes[0]} == {PROJECT["version"]}


def test_a_citation_has_what_the_format_asks_for() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    assert citation["license"] == PROJECT["license"]


def test_the_command_prints_its_version() -> None:
    command = [sys.executable, "-m", "orchestrator", "--version"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == f"farm, version {PROJECT['version']}\n"


def test_binaries_that_are_linked_with_musl_come_with_its_licence() -> None:
    built = json.loads((ROOT / "kernels/bin/manifest.json").read_text())["binaries"]
    static = [entry["file"] for entry in built if not entry["file"].endswith("bionic")]
    notice = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    assert static
    assert all(name in notice for name in static)
    assert "Rich Felker" in notice
    assert "THIRD_PARTY_NOTICES.md" in PROJECT["license-files"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_an_issue_template_can_be_filled_in(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        assert "blank_issues_enabled" in form
        return
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert ids
    assert len(set(ids)) == len(ids)
    assert form["name"]
    assert form["description"]


@pytest.mark.parametrize("name", ["bug.yml", "phone.yml"])
def test_a_report_about_a_phone_is_asked_for_its_capture(name: str) -> None:
    assert "farm phone capture" in (ROOT / ".github/ISSUE_TEMPLATE" / name).read_text()
