"""Writes the file of an export or a report: complete, or not at all."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, cast

import click

from workloads.protocol.faults import InvalidRequest

STANDARD_OUTPUT = "-"


def output_path(requested: str, default_name: str, simulated: bool) -> Path:
    """Return where to write; the name of a file with simulated results says so."""
    path = Path(requested or ".")
    if path.is_dir():
        path = path / default_name
    if not simulated or ".simulated." in path.name:
        return path
    stem, dot, extension = path.name.partition(".")
    return path.with_name(f"{stem}.simulated{dot}{extension}")


@contextmanager
def open_output(requested: str, default_name: str, simulated: bool) -> Iterator[BinaryIO]:
    """Open the file to write, or standard output for "-"; print the path afterwards.

    A folder gets the default name. An interrupted write leaves no file.
    """
    if requested == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        return
    path = output_path(requested, default_name, simulated)
    try:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                yield cast(BinaryIO, file)
                file.close()
                Path(file.name).chmod(0o644)
                Path(file.name).replace(path)
            finally:
                Path(file.name).unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error
    click.echo(str(path))
