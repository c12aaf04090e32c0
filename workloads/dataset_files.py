"""Convert MNIST, CIFAR-10 or a text into the data file of the runner.

The format is specified in kernels/engine/dataset.h: a header of text, then columns as they are in
memory. Nothing is downloaded; the user provides the files.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from workloads.lowering.plan_body import DataStream
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.restored_memory import RestoredMemory

ALIGNMENT = 64
MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
CIFAR10_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
FILES = {"mnist": MNIST_FILES, "cifar10": CIFAR10_FILES}
CIFAR10_SHAPE = (3, 32, 32)
HEAD_BYTES_MAX = 4096
FILE_BYTES_MAX = 2**30  # of a compressed file, when it is restored
GZIP_WBITS = 16 + zlib.MAX_WBITS
_COLUMN = re.compile(r"^column ([a-z]+) (\d{1,9}) \d((?: \d{1,9})*)$", re.MULTILINE)
_IDX = {1: (0x801, ">II"), 3: (0x803, ">IIII")}  # rank: magic number and format of the header


@dataclass(frozen=True)
class FileColumn:
    """One column of a data file: the bytes of `count` samples of a shape."""

    type: str
    count: int
    shape: tuple[int, ...]
    content: bytes


def data_file(kind: str, files: Mapping[str, bytes], samples: int) -> bytes:
    """Return a data file with the first samples of a data set."""
    images, labels = (_mnist if kind == "mnist" else _cifar10)(files)
    count = min(samples, images.count, labels.count)
    return pack([_first(images, count), _first(labels, count)])


def text_file(content: bytes, text_length: int, samples: int) -> bytes:
    """Return a data file of texts: their bytes, and the bytes that follow each."""
    count = min((len(content) - 1) // text_length, samples)
    if count < 1:
        raise InvalidRequest(
            f"the text has {len(content)} bytes; it needs more than {text_length} for one sample"
        )
    size = count * text_length
    columns = (content[first : first + size] for first in (0, 1))
    return pack(
        [FileColumn("index", count, (text_length,), _indices(column)) for column in columns]
    )


def sample_count(content: bytes) -> int:
    """Return the number of samples in a data file."""
    column = _COLUMN.search(content.partition(b"\nend\n")[0].decode())
    return int(column[2]) if column else 0


def pack(columns: Sequence[FileColumn]) -> bytes:
    """Return a data file: a header, then each column at a multiple of 64 bytes."""
    lines = ["farmhand-data 1"]
    for column in columns:
        shape = "".join(f" {side}" for side in column.shape)
        lines.append(f"column {column.type} {column.count} {len(column.shape)}{shape}")
    content = "\n".join([*lines, "end", ""]).encode()
    for column in columns:
        content += bytes(-len(content) % ALIGNMENT) + column.content
    return content


def data_mismatch(head: bytes, streams: Iterable[DataStream]) -> str | None:
    """Return why a data file, by its first bytes, does not serve a plan; None if it does."""
    columns = _COLUMN.findall(head.partition(b"\nend\n")[0].decode(errors="replace"))
    for stream in (each for each in streams if each.column.generator == "file"):
        number = stream.column.ints[0]
        if number >= len(columns):
            return "is not a data set; add one with 'farm workload add --dataset'"
        kind, count, *_ = columns[number]
        shape = tuple(map(int, columns[number][2].split()))
        if (kind, shape) != (stream.column.type, stream.shape):
            found, needed = ("x".join(map(str, each)) or "1" for each in (shape, stream.shape))
            return (
                f"has samples of {found} values, and the workload reads {needed}; add it again "
                "with the --text-length of the sweep, or use another data set"
            )
        if int(count) < stream.count:
            return (
                f"has {count} samples, and the workload reads {stream.count}; add it again with "
                "more samples, or use a smaller batch"
            )
    return None


def _mnist(files: Mapping[str, bytes]) -> tuple[FileColumn, FileColumn]:
    images, labels = (_decompressed(files[name]) for name in MNIST_FILES)
    count, height, width = _idx_shape(images, 3, MNIST_FILES[0])
    (label_count,) = _idx_shape(labels, 1, MNIST_FILES[1])
    return (
        FileColumn("byte", count, (1, height, width), images[16:]),
        _labels(labels[8:], label_count, MNIST_FILES[1]),
    )


def _cifar10(files: Mapping[str, bytes]) -> tuple[FileColumn, FileColumn]:
    size = 1 + prod(CIFAR10_SHAPE)
    content = b""
    for name in CIFAR10_FILES:
        if name in files:
            if not files[name] or len(files[name]) % size:
                raise InvalidRequest(f"{name} is not a CIFAR-10 batch: it ends within an image")
            content += files[name]
    count = len(content) // size
    images = b"".join(content[start + 1 : start + size] for start in range(0, len(content), size))
    return (
        FileColumn("byte", count, CIFAR10_SHAPE, images),
        _labels(content[::size], count, CIFAR10_FILES[0]),
    )


def _labels(content: bytes, count: int, name: str) -> FileColumn:
    if any(label > 9 for label in content):
        raise InvalidRequest(f"{name} has a label above 9; it is damaged, or another data set")
    return FileColumn("index", count, (), _indices(content))


def _indices(content: bytes) -> bytes:
    """Return every byte as an index: four bytes, the lowest first."""
    wide = bytearray(4 * len(content))
    wide[::4] = content
    return bytes(wide)


def _idx_shape(content: bytes, rank: int, name: str) -> tuple[int, ...]:
    magic, header = _IDX[rank]
    size = struct.calcsize(header)
    if len(content) < size or struct.unpack(header, content[:size])[0] != magic:
        raise InvalidRequest(f"{name} is not an MNIST file: its header is wrong")
    sides = struct.unpack(header, content[:size])[1:]
    if len(content) != size + prod(sides):
        raise InvalidRequest(
            f"{name} is damaged: expected {size + prod(sides)} bytes, got {len(content)}"
        )
    return sides


def _decompressed(content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return RestoredMemory(FILE_BYTES_MAX).inflate(content, GZIP_WBITS)
    except (ValueError, zlib.error) as error:
        raise InvalidRequest(f"cannot decompress a file: {error}") from error


def _first(column: FileColumn, count: int) -> FileColumn:
    size = len(column.content) // max(column.count, 1)
    return FileColumn(column.type, count, column.shape, column.content[: count * size])
