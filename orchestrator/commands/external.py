"""`farm external`: programs of other engines as workloads."""

from pathlib import Path

import click


@click.group()
def external() -> None:
    """Make a program of another engine a workload."""


@external.command("new")
@click.argument("name")
@click.option(
    "--program",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Program that runs on the phone. Default: write one that shows what is expected.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="Folder to write to. Default: this one.",
)
def new(name: str, program: Path | None, folder: Path) -> None:
    """Write NAME.yaml, the commented manifest of a program.

    \b
    Examples:
      farm external new my-engine
      farm external new llama --program llama-bench
    """
    from orchestrator.commands.start_files import check_name, write_manifest

    manifest, *programs = write_manifest(check_name(name), folder, program)
    for file in (manifest, *programs):
        click.echo(str(file))
    used = programs[0] if programs else program
    click.echo(f"Copy the program into the lab with: farm workload add-file {used}", err=True)
    click.echo(f'Name it in a sweep with: workload: "external:{manifest.name}"', err=True)
