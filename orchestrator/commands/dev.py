"""`farm test` and `farm check`: for whoever changes the farm."""

import subprocess
import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
_CHECKS = (
    ("formatting", ["ruff", "format", "--check", "."]),
    ("lint", ["ruff", "check", "."]),
    ("types", ["mypy"]),
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(arguments: tuple[str, ...]) -> int:
    """Run the test suite; ARGUMENTS go to pytest (try: farm test -m slow)."""
    # Two workers: tests wait for processes more than they compute. The long files come first
    # (tests/conftest.py), so that no worker is left alone with one of them at the end.
    workers = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    command = [sys.executable, "-m", "pytest", *workers, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


@click.command()
def check() -> int:
    """Check formatting, lint and types."""
    failed = []
    for name, command in _CHECKS:
        click.echo(f"{name}: {' '.join(command)}", err=True)
        if subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode:
            failed.append(name)
    click.echo(f"failed: {', '.join(failed)}" if failed else "all clean", err=True)
    return 1 if failed else 0
