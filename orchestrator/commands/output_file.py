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
    """Return where to write: the file as it was named, or in a folder the default name.

    The default name of a file with simulated results contains 'simulated'; its content always does.
    """
    path = Path(requested or ".")
    if not path.is_dir():
        return path
    stem, dot, extension = default_name.partition(".")
    is_marked = not simulated or ".simulated." in default_name
    return path / (default_name if is_marked else f"{stem}.simulated{dot}{extension}")


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
