"""Writes the file of an export or a report: complete, or not at all."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

import click

from workloads.protocol.faults import InvalidRequest

STANDARD_OUTPUT = "-"


def output_path(requested: str, default_name: str) -> Path:
    """Return where to write: the file as it was named, or in a folder the default name."""
    path = Path(requested or ".")
    return path / default_name if path.is_dir() else path


@contextmanager
def open_output(requested: str, default_name: str, private: bool = False) -> Iterator[BinaryIO]:
    """Open the file to write, or standard output for "-"; print the path afterwards.

    A folder gets the default name. An interrupted write leaves no file. Only the user can read a
    private file; others are as open as the user's umask allows.
    """
    if requested == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        return
    path = output_path(requested, default_name)
    part, mode = path.with_name(f".{path.name}.{token_hex(4)}"), 0o600 if private else 0o666
    try:
        with open(part, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            try:
                yield file
                file.close()
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error
    click.echo(str(path))
