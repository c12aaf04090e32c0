"""Builds the documentation as a web site: `farm docs --site`.

The pages are the Markdown files of the repository, and one that only the site has: the help of
every command. Nothing is loaded from elsewhere: no font, no script. Links to files that are no
pages, such as source files, become plain text.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from docs.generate import ROOT, rendered_cli

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
FOLDERS = ("docs", "benchmarks", "deploy", "examples", "tests")
SUFFIXES = (".md", ".svg", ".png")
CLI_PAGE = "docs/reference/cli.md"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def site_files() -> Iterator[Path]:
    """Yield the files that the site is made of: pages and pictures."""
    yield from (ROOT / name for name in PAGES)
    for folder in FOLDERS:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES)


def build(target: Path) -> int:
    """Write the site to a folder; return how many pages it has."""
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config import load_config

    with TemporaryDirectory() as name:
        source = Path(name) / "pages"
        files = {path.relative_to(ROOT) for path in site_files()} | {Path(CLI_PAGE)}
        for path in files - {Path(CLI_PAGE)}:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, source / path)
        (source / CLI_PAGE).write_text(f"# Command line\n\n{rendered_cli()}\n")
        for path in source.rglob("*.md"):
            path.write_text(_plain_links(path.read_text(), path.relative_to(source), files))
        settings = Path(name) / "mkdocs.yml"
        settings.write_text(f"site_name: Farmhand\ndocs_dir: {source}\n")
        config: Any = load_config(
            str(settings),
            site_dir=str(target),
            theme={"name": "mkdocs", "highlightjs": False, "nav_style": "light"},
            plugins=["search"],
            nav=_navigation(),
            validation={"omitted_files": "ignore"},
            strict=True,
        )
        build_pages(config)
    return len(list(target.rglob("*.html")))


def _plain_links(text: str, page: Path, files: set[Path]) -> str:
    """Return a page whose links all have a target on the site."""

    def replaced(match: re.Match[str]) -> str:
        _, shown, target, _ = match.groups()
        if "://" in target:
            return match[0]
        path = (ROOT / page.parent / target).resolve()
        if path.is_relative_to(ROOT) and path.relative_to(ROOT) in files:
            return match[0]
        return shown

    return _LINK.sub(replaced, text)


def _navigation() -> list[dict[str, Any]]:
    """Return the menu: the sections of docs/README.md with their pages."""
    text = (ROOT / "docs/README.md").read_text()
    menu: list[dict[str, Any]] = [{"Farmhand": "README.md"}]
    for section in text.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        found = re.findall(r"^- \[([^\]]*)\]\(([^)]*\.md)\)", section, re.MULTILINE)
        pages = [{name: _from_docs(target)} for name, target in found]
        if not pages:
            raise LookupError(f"the section {title} of docs/README.md lists no page")
        menu.append({title: pages})
    menu[-2][next(iter(menu[-2]))].append({"Command line": CLI_PAGE})
    return menu


def _from_docs(target: str) -> str:
    return (ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix()


if __name__ == "__main__":
    click.echo(f"{build(Path(sys.argv[1]))} pages in {sys.argv[1]}")
