"""Counts how a page speaks, as far as a program can see it: `python -m docs.voice`.

It counts sentences that address the reader, that a semicolon joins, that say "that of", and that
have a verb without an agent. Headings, code, tables and parentheses do not count.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click

ROOT = Path(__file__).resolve().parents[1]
TO_READ = ("docs/tutorial.md", "docs/howto/*.md")  # pages that lead the reader by the hand
ADDRESS = re.compile(r"\b(you|your|yours|yourself|we|our|us)\b", re.IGNORECASE)
THAT_OF = re.compile(r"\b(that|those) of\b")
AGENTLESS = re.compile(
    r"\b(is|are) (refused|stated|shown|printed|reported|given|compared|read|left out)\b"
    r"(?! (after|as|at|before|by|from|in|with))"
)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- generated.*?<!-- end -->", re.DOTALL)
_NO_SENTENCES = re.compile(r"^(\||#|Status:).*$|\]\([^)]*\)|\([^()]*\)", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"*\[])")


class Style(NamedTuple):
    """How a text speaks: the number of its sentences, and the sentences of each kind."""

    sentences: int
    addressing: list[str]
    joined: list[str]
    that_of: list[str]
    agentless: list[str]


def style_of(text: str) -> Style:
    """Return how a Markdown text speaks, without code, tables, headings and parentheses."""
    text = _GENERATED.sub("", _FENCE.sub("", text))
    text = _NO_SENTENCES.sub("", re.sub(r"`[^`]*`", "`x`", text))
    paragraphs = [" ".join(paragraph.split()) for paragraph in _PARAGRAPH.split(text)]
    found = [s for paragraph in paragraphs for s in _SENTENCE.split(paragraph)]
    sentences = [sentence for sentence in found if len(sentence.split()) >= 3]
    return Style(
        len(sentences),
        [sentence for sentence in sentences if ADDRESS.search(sentence)],
        [sentence for sentence in sentences if ";" in sentence],
        [sentence for sentence in sentences if THAT_OF.search(sentence)],
        [sentence for sentence in sentences if AGENTLESS.search(sentence)],
    )


def pages_to_read() -> list[Path]:
    """Return the tutorial and the how-to pages."""
    return sorted(path for pattern in TO_READ for path in ROOT.glob(pattern))


def print_table(pages: Iterable[Path]) -> None:
    """Print a line per page, the pages that address the reader least first."""
    rows = [(path.relative_to(ROOT).as_posix(), style_of(path.read_text())) for path in pages]
    rows = [row for row in rows if row[1].sentences]
    whole = [
        sum(len(part) if isinstance(part, list) else part for part in parts)
        for parts in zip(*(style for _, style in rows), strict=True)
    ]
    click.echo(f"{'PAGE':48} SENTENCES  YOU   SEMICOLON")
    for name, style in sorted(rows, key=lambda row: len(row[1].addressing) / row[1].sentences):
        _print_row(name, style.sentences, len(style.addressing), len(style.joined))
    _print_row("all of them", *whole[:3])


def _print_row(name: str, sentences: int, addressing: int, joined: int) -> None:
    click.echo(f"{name:48} {sentences:9} {addressing / sentences:5.0%} {joined / sentences:9.1%}")


if __name__ == "__main__":
    print_table(pages_to_read())
    others = set(ROOT.glob("docs/**/*.md")) | set(ROOT.glob("*.md"))
    print_table(sorted(others - set(pages_to_read())))
