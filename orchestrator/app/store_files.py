"""Files of external programs and data sets, stored in the lab by digest."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, Upload, operation
from workloads.dataset_files import HEAD_BYTES_MAX
from workloads.protocol.faults import InvalidRequest

PIECE_BYTES = 1 << 20


@operation(Role.VIEWER)
def has_file(lab: LabConnection, digest: str) -> bool:
    """Return whether the lab has a file."""
    return file_head(lab.lab.files_folder, digest) is not None


def file_head(folder: Path, digest: str) -> bytes | None:
    """Return the first bytes of a file of the lab; None if the lab does not have it."""
    if re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        return None
    try:
        with (folder / digest).open("rb") as file:
            return file.read(HEAD_BYTES_MAX)
    except FileNotFoundError:
        return None


@operation(Role.OPERATOR)
def store_file(lab: LabConnection, digest: str, stream: Upload) -> str:
    """Store a file completely or not at all; return its digest, which must be the given one."""
    write_file(lab.lab.files_folder, digest, stream)
    return digest


def pieces_of(file: Path) -> Iterator[bytes]:
    """Yield the content of a file of the lab."""
    with file.open("rb") as stream:
        yield from iter(partial(stream.read, PIECE_BYTES), b"")


def write_file(folder: Path, digest: str, stream: BinaryIO) -> None:
    """Write a file completely or not at all, under its digest."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
            try:
                found = hashlib.sha256()
                while piece := stream.read(PIECE_BYTES):
                    part.write(piece)
                    found.update(piece)
                part.close()
                if found.hexdigest() != digest:
                    raise InvalidRequest("the file was damaged in transfer; send it again")
                file = folder / part.name
                file.chmod(0o644)
                file.replace(folder / digest)
            finally:
                with suppress(OSError):
                    (folder / part.name).unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{folder} cannot be written: {error.strerror}") from error
