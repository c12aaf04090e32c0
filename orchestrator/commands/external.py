"""`farm external`: programs of other engines as workloads."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import json_option, print_json, print_table
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.external_engines import EngineFiles


@click.group()
def external() -> None:
    """Make a program of another engine a workload."""


@external.command("list")
@json_option
def list_all(as_json: bool) -> None:
    """List the engines whose manifests are included.

    Example: farm external list
    """
    from orchestrator.app.external_engines import list_engines

    rows = [
        (
            *(name, "training" if engine.manifest.training else "inference"),
            *(engine.manifest.text, ", ".join(engine.needed)),
        )
        for name, engine in list_engines().items()
    ]
    keys = ("engine", "measures", "text", "files")
    if as_json:
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(("ENGINE", "MEASURES", "WHAT", "YOUR FILES"), rows)


@external.command("new")
@click.argument("name")
@click.option("--engine", default="", help="Start from this engine of 'farm external list'.")
@click.option(
    "--python",
    default="python3",
    show_default=True,
    help="Python on the phone, for a program or an engine in Python; it must have the packages.",
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Program that runs on the phone, or a file that the engine needs, in the order of 'farm "
    "external list'. Default: write a program that shows what is expected.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="Folder to write to. Default: this one.",
)
def new(name: str, engine: str, python: str, programs: tuple[Path, ...], folder: Path) -> None:
    """Write NAME.yaml, the commented manifest of a program.

    \b
    Examples:
      farm external new my-engine
      farm external new llama --program llama-bench
      farm external new mnn --engine mnn --python /opt/mnn/bin/python
    """
    from orchestrator.commands.start_files import check_name, write_engine, write_manifest
    from workloads.catalogue import CATALOGUE

    if check_name(name) in CATALOGUE:
        raise InvalidRequest(f"there is a workload '{name}' already; choose another name")
    if engine:
        written = write_engine(name, folder, _find_engine(engine), python, programs)
    elif len(programs) > 1:
        raise click.UsageError("only an --engine takes several programs")
    else:
        written = write_manifest(name, folder, next(iter(programs), None), python)
    for file in written:
        click.echo(str(file))
    used = " ".join(str(file) for file in (*written[1:], *programs))
    click.echo(f"Copy the program into the lab with: farm workload add-file {used}", err=True)
    click.echo(f'Name it in a sweep with: workload: "external:{written[0].name}"', err=True)


def _find_engine(name: str) -> "EngineFiles":
    from orchestrator.app.external_engines import list_engines

    engines = list_engines()
    if name not in engines:
        known = ", ".join(engines)
        raise InvalidRequest(f"unknown engine '{safe_text(name, 60)}'; use {known}")
    return engines[name]
