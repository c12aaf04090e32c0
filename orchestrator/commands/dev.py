"""`farm test`, `farm check` and `farm docs`: tools for developers of the farm."""

import os
import subprocess
import sys
from pathlib import Path

import click

from workloads.command_output import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
C_SUFFIXES = (".c", ".h", ".cl")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(arguments: tuple[str, ...]) -> int:
    """Run the test suite; ARGUMENTS go to pytest.

    \b
    Examples:
      farm test
      farm test tests/store -x
      farm test -m slow
    """
    # Two workers: tests wait for processes more than they compute. After a minute of fast tests the
    # folders with the longest files follow (tests/conftest.py), so that both workers end together.
    workers = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    command = [sys.executable, "-m", "pytest", *workers, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


@click.command()
@click.option("--fix", is_flag=True, help="Rewrite files where formatting or lint can be fixed.")
@click.option("--write-ceilings", is_flag=True, help="Lower the ceilings of smaller packages.")
def check(fix: bool, write_ceilings: bool) -> int:
    """Check formatting (Python, C and OpenCL), lint and types.

    Also print the lines of each package and how far they are from tests/ceilings.toml.

    \b
    Examples:
      farm check
      farm check --fix
      farm check --write-ceilings
    """
    failed = []
    for name, command in _checks(fix, write_ceilings):
        click.echo(f"{name}: {Path(command[0]).name} {' '.join(command[1:4])}", err=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
    click.echo(f"failed: {', '.join(failed)}" if failed else "all clean", err=True)
    return 1 if failed else 0


@click.command()
@click.option("--no-demo", is_flag=True, help="Leave the demo's table in README.md as it is.")
@click.option("--site", is_flag=True, help="Build the documentation as a web site in site/.")
def docs(no_demo: bool, site: bool) -> int:
    """Regenerate the tables of docs/reference from the code, and the demo's by running it.

    \b
    Examples:
      farm docs
      farm docs --site
    """
    module = ["docs.site", "site"] if site else ["docs.generate", *["--no-demo"] * no_demo]
    # Pages name commands as `farm`, however this one was called.
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-m", *module]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _checks(fix: bool, write_ceilings: bool) -> list[tuple[str, list[str]]]:
    """List each check with its command line; with `fix`, commands rewrite what they can."""
    ruff, mypy = [sys.executable, "-m", "ruff"], [sys.executable, "-m", "mypy"]
    clang_format = str(Path(sys.executable).with_name("clang-format"))
    sized = ["--write-ceilings"] if write_ceilings else []
    files = sorted(path for path in (ROOT / "kernels").rglob("*") if path.suffix in C_SUFFIXES)
    c_files = [str(path.relative_to(ROOT)) for path in files]
    return [
        ("formatting", [*ruff, "format", *([] if fix else ["--check"]), "."]),
        ("C formatting", [clang_format, *(["-i"] if fix else ["--dry-run", "-Werror"]), *c_files]),
        ("lint", [*ruff, "check", *(["--fix"] if fix else []), "."]),
        ("types", mypy),
        ("size", [sys.executable, "-m", "tests.line_counts", *sized]),
    ]
