"""A bundle for publication: one zip with data, sweep file, seed, versions, digests and a README.

It contains no time of its creation, so the same sweep gives the same bytes in every lab. A reader
uses nothing of a bundle before it has checked every digest.
"""

import hashlib
import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from pydantic_core import from_json

from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

FORMAT = 1
MANIFEST = "manifest.json"
LINE_BYTES_MAX = 8 * 1024 * 1024
BYTES_MAX = 8 * 1024**3  # of all files together
# Rows shrink to a fiftieth; a file of zeros shrinks to a thousandth.
RATIO_MAX, SMALL_BYTES = 200, 64 * 1024**2
READ_BYTES_MAX = 16 * 1024**2
MEMBERS_MAX = 64
FILES = "files/"  # of external programs and data sets, by their digest; only a backup has them
BACKUP_BYTES_MAX, BACKUP_MEMBERS_MAX = 1024**4, 100_000
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip; the same in every bundle
# zipfile raises RuntimeError for an encrypted member and for an unknown compression.
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    RuntimeError,
)
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
Lines = Iterable[bytes]


class BadBundle(InvalidRequest):
    """The bundle cannot be used."""


@dataclass(frozen=True)
class BundleContents:
    """The metadata of a bundle, and the lines of each of its files."""

    metadata: Mapping[str, Any]
    files: Mapping[str, Callable[[], Lines]]


def write_bundle(contents: BundleContents, stream: BinaryIO) -> None:
    """Write the files, then the manifest with their digests."""
    digests: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(stream, "w") as bundle:
        for name, lines in contents.files.items():
            digest, size = hashlib.sha256(), 0
            with bundle.open(_member(name), "w", force_zip64=True) as member:
                for line in lines():
                    member.write(line)
                    digest.update(line)
                    size += len(line)
            digests[name] = {"sha256": digest.hexdigest(), "bytes": size}
        manifest = {"format": FORMAT, **contents.metadata, "files": digests}
        bundle.writestr(_member(MANIFEST), _json(manifest, indent=1))


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _ZIP_EPOCH)
    # A data set of zeros would look like an attack if it were compressed.
    is_file = name.startswith(FILES)
    member.compress_type = zipfile.ZIP_STORED if is_file else zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


def json_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as one line: the same row gives the same bytes."""
    return _json(row) + b"\n"


def _json(content: Any, indent: int | None = None) -> bytes:
    separators = (",", ":") if indent is None else None
    text = json.dumps(
        content, sort_keys=True, ensure_ascii=False, indent=indent, separators=separators
    )
    return text.encode()


@dataclass(frozen=True)
class Bundle:
    """An open bundle whose digests are all correct."""

    archive: zipfile.ZipFile
    manifest: Mapping[str, Any]

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file of JSON lines."""
        for line in _lines(self.archive, name):
            try:
                row = from_json(line, allow_inf_nan=False)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise BadBundle(f"{safe_text(name)} in the bundle has a line that is not a row")
            yield row


class _BoundedReads:
    """A file that refuses to read very much at once: the list of a zip's files is read as one."""

    def __init__(self, stream: BinaryIO) -> None:
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """Read as the file does."""
        content = self._stream.read(size if 0 <= size <= READ_BYTES_MAX else READ_BYTES_MAX + 1)
        if len(content) > READ_BYTES_MAX:
            raise zipfile.BadZipFile("its list of files is too long")
        return content


def open_bundle(stream: BinaryIO, is_backup: bool = False) -> Bundle:
    """Open a bundle and check all of it; BadBundle states what is wrong.

    A backup was made by an admin of the lab, and may be as large as the lab.
    """
    members_max, bytes_max = MEMBERS_MAX, BYTES_MAX
    if is_backup:
        members_max, bytes_max = BACKUP_MEMBERS_MAX, BACKUP_BYTES_MAX
    try:
        archive = zipfile.ZipFile(_BoundedReads(stream))
        with archive.open(MANIFEST) as member:
            manifest = json.loads(member.read(LINE_BYTES_MAX))
        files = {str(name): dict(file) for name, file in manifest["files"].items()}
        version = int(manifest["format"])
    except (
        *(*_UNREADABLE, KeyError, ValueError, TypeError, AttributeError),
        *(OverflowError, RecursionError),
    ) as error:
        raise BadBundle("not a Farmhand bundle, or truncated") from error
    if version != FORMAT:
        raise BadBundle(f"the bundle has format {version}; this version reads format {FORMAT}")
    names = archive.namelist()
    if len(names) > members_max or sorted(names) != sorted({*files, MANIFEST}):
        raise BadBundle("the files in the bundle differ from those in its manifest")
    packed = sum(member.compress_size for member in archive.infolist())
    left = min(bytes_max, SMALL_BYTES + RATIO_MAX * packed)
    for name, file in files.items():
        left -= _check(archive, name, file, left)
    return Bundle(archive, manifest)


def _check(archive: zipfile.ZipFile, name: str, file: Mapping[str, Any], left: int) -> int:
    """Check a file of at most `left` bytes against the manifest; return its size."""
    digest, size = hashlib.sha256(), 0
    try:
        with archive.open(name) as member:
            if archive.getinfo(name).compress_type not in _COMPRESSIONS:
                raise BadBundle(f"{safe_text(name)} in the bundle has another compression")
            while piece := member.read(1 << 20):
                digest.update(piece)
                size += len(piece)
                if size > left:
                    raise BadBundle(f"{safe_text(name)} in the bundle is too large when unpacked")
    except _UNREADABLE as error:
        reason = safe_text(error)
        raise BadBundle(f"{safe_text(name)} in the bundle cannot be read: {reason}") from error
    if (digest.hexdigest(), size) != (file.get("sha256"), file.get("bytes")):
        raise BadBundle(f"checksum mismatch: {safe_text(name)} in the bundle was changed")
    return size


def _lines(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with archive.open(name) as member:
        while line := member.readline(LINE_BYTES_MAX):
            yield line
