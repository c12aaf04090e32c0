"""Reads files that a user names: only ordinary files, and only up to a limit.

A pipe or a device would be read forever.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path

from workloads.protocol.faults import InvalidRequest
from workloads.protocol.limits import MIB

TEXT_BYTES_MAX = 4 * MIB


def open_input(path: Path) -> BufferedReader:
    """Open an ordinary file for reading."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is invalid"
        raise InvalidRequest(f"{path} cannot be read: {reason}") from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise InvalidRequest(f"{path} cannot be read: it is not an ordinary file")
    return os.fdopen(number, "rb")


def read_input(path: Path, limit: int = TEXT_BYTES_MAX) -> bytes:
    """Return the content of an ordinary file."""
    with open_input(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InvalidRequest(f"{path} cannot be read: it has more than {limit} bytes")
    return content
