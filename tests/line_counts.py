"""Counts the lines of each package and compares them with tests/ceilings.toml.

`./farm check` prints the difference. A file counts for the longest folder of ceilings.toml that
contains it. A ceiling is a number; one that was raised says what users get for it.
"""

import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from tests.source_files import PACKAGES, ROOT, relative

CEILINGS = Path(__file__).with_name("ceilings.toml")
SUFFIXES = (".py", ".c", ".h", ".cl")
COUNTED = (*PACKAGES, "benchmarks", "docs", "tests")
GAIN_KEPT = 0.01  # a package that is smaller by more than this share gets a lower ceiling


class Ceiling(NamedTuple):
    """The most lines that a package may have."""

    lines: int
    was: int | None = None  # before it was raised
    reason: str = ""


class PackageSize(NamedTuple):
    """A package, its lines, and the most that it may have."""

    package: str
    lines: int
    ceiling: Ceiling

    @property
    def problem(self) -> str:
        """What to write to ceilings.toml; empty if the package is within its limits."""
        at_most, was = self.ceiling.lines, self.ceiling.was or self.ceiling.lines
        if self.lines > at_most:
            entry = f'{{ lines = {self.lines}, was = {was}, reason = "what users get for it" }}'
            above = f"{self.lines - at_most} lines above its ceiling of {at_most}"
            return (
                f'{self.package} is {above}; make it smaller, or write "{self.package}" = {entry}'
            )
        if self.lines < at_most * (1 - GAIN_KEPT):
            below = f"{at_most - self.lines} lines below its ceiling of {at_most}"
            return f'{self.package} is {below}; keep the gain: "{self.package}" = {self.lines}'
        return ""


def count_lines(folder: Path) -> dict[Path, int]:
    """Count the lines of every file of code in the folders that have ceilings."""
    files = (path for name in COUNTED for path in (folder / name).rglob("*.*"))
    return {path: path.read_bytes().count(b"\n") for path in files if path.suffix in SUFFIXES}


def package_sizes(lines: Mapping[str, int], ceilings: Mapping[str, Ceiling]) -> list[PackageSize]:
    """Return the size of every package; a file outside of all of them is a KeyError."""
    total = Counter(dict.fromkeys(ceilings, 0))
    for file, count in lines.items():
        packages = [name for name in ceilings if file.startswith(f"{name}/")]
        if not packages:
            raise KeyError(f"{file} is in no package of {CEILINGS.name}")
        total[max(packages, key=len)] += count
    return [PackageSize(name, total[name], ceilings[name]) for name in ceilings]


def read_ceilings(text: str) -> dict[str, Ceiling]:
    """Read the ceiling of every package."""
    entries: dict[str, Any] = tomllib.loads(text)
    return {
        name: Ceiling(**entry) if isinstance(entry, dict) else Ceiling(entry)
        for name, entry in entries.items()
    }


def measured_sizes() -> list[PackageSize]:
    """Return the size of every package of this tree."""
    lines = {relative(path): count for path, count in count_lines(ROOT).items()}
    return package_sizes(lines, read_ceilings(CEILINGS.read_text()))


def keep_gains() -> None:
    """Lower the ceilings of packages that have become smaller; raises are written by hand."""
    text = CEILINGS.read_text().splitlines()
    lower = {size.package: size.lines for size in measured_sizes() if size.lines < size.ceiling[0]}
    for number, line in enumerate(text):
        name = line.split('"')[1] if line.startswith('"') else ""
        if name in lower:
            text[number] = f'"{name}" = {lower[name]}'
    CEILINGS.write_text("\n".join(text) + "\n")


def main() -> None:
    """Print the difference of every package from its ceiling, and the sum of the product."""
    if "--write-ceilings" in sys.argv:
        keep_gains()
    sizes = measured_sizes()
    for size in sizes:
        click.echo(f"{size.package:<24} {size.lines:>7,} {size.lines - size.ceiling.lines:>+6,}")
    lines = count_lines(ROOT)
    product = [count for path, count in lines.items() if relative(path).split("/")[0] in PACKAGES]
    click.echo(f"{'product':<24} {sum(product):>7,} lines in {len(product)} files")
    for size in sizes:
        if size.problem:
            click.echo(size.problem)


if __name__ == "__main__":
    main()
