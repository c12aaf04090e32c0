"""The Markdown files of the project, and the code blocks, links and commands in them.

The first word after the three backticks is the language. A second word says where the commands of a
block are run; CONTRIBUTING.md explains these words.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("", "docs", "deploy", "benchmarks", "examples", "tests", "agent", "kernels")
SHELLS = {"sh", "console"}
_FENCE = re.compile(r"^ *```(\S*) ?([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- generated.*?<!-- end -->", re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """One code block: where it is, its language, where it is run, and its text."""

    document: str
    line: int
    language: str
    setting: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """Return every Markdown file of the project."""
    folders = [(ROOT / name, "*.md" if not name else "**/*.md") for name in FOLDERS]
    return sorted({path for folder, pattern in folders for path in folder.glob(pattern)})


def blocks(*languages: str) -> Iterator[Block]:
    """Yield every code block of some languages, in reading order: README, tutorial, the rest."""
    first = [ROOT / "README.md", ROOT / "docs/tutorial.md"]
    for path in [*first, *(path for path in documents() if path not in first)]:
        text = path.read_text() if path.exists() else ""
        for match in _FENCE.finditer(text):
            if match[1] in languages:
                line = text.count("\n", 0, match.start()) + 1
                name = path.relative_to(ROOT).as_posix()
                yield Block(name, line, match[1], match[2].strip(), textwrap.dedent(match[3]))


def commands(block: Block) -> list[list[str]]:
    """Return the commands of a shell block as words, without comments."""
    text = block.text.replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def without_blocks(path: Path) -> str:
    """Return the text of a document outside its code blocks."""
    return _FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub derives from the headings of a document."""
    found: set[str] = set()
    for heading in _HEADING.findall(without_blocks(path)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().strip()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def written_by_hand(path: Path) -> str:
    """Return the text of a document without code blocks and generated tables."""
    return _GENERATED.sub("", without_blocks(path))
