"""Data files: MNIST and CIFAR-10 as they are published, turned into the file that the runner reads.

The format is written down in kernels/engine/data.h: a head of text, then columns as they lie in
memory. Nothing is downloaded; whoever has the files brings them.
"""

import gzip
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from workloads.fault import Refused

ALIGNMENT = 64
MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
CIFAR10_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
FILES = {"mnist": MNIST_FILES, "cifar10": CIFAR10_FILES}
CIFAR10_SHAPE = (3, 32, 32)
_IDX = {1: (0x801, ">II"), 3: (0x803, ">IIII")}  # rank -> magic number, and what stands in a head


@dataclass(frozen=True)
class Column:
    """One column of a data file: bytes of so many samples of a shape."""

    type: str
    count: int
    shape: tuple[int, ...]
    content: bytes


def data_file(kind: str, files: Mapping[str, bytes], samples: int) -> bytes:
    """Make the data file of a data set from its published files, of its first samples."""
    images, labels = (_mnist if kind == "mnist" else _cifar10)(files)
    count = min(samples, images.count, labels.count)
    return pack([_first(images, count), _first(labels, count)])


def pack(columns: Sequence[Column]) -> bytes:
    """Write columns one after another, each at a multiple of 64 bytes."""
    lines = ["farmhand-data 1"]
    for column in columns:
        shape = "".join(f" {side}" for side in column.shape)
        lines.append(f"column {column.type} {column.count} {len(column.shape)}{shape}")
    content = "\n".join([*lines, "end", ""]).encode()
    for column in columns:
        content += bytes(-len(content) % ALIGNMENT) + column.content
    return content


def _mnist(files: Mapping[str, bytes]) -> tuple[Column, Column]:
    images, labels = (_unzipped(files[name]) for name in MNIST_FILES)
    count, height, width = _idx(images, 3, MNIST_FILES[0])
    (labelled,) = _idx(labels, 1, MNIST_FILES[1])
    return (
        Column("byte", count, (1, height, width), images[16:]),
        _labels(labels[8:], labelled, MNIST_FILES[1]),
    )


def _cifar10(files: Mapping[str, bytes]) -> tuple[Column, Column]:
    size = 1 + prod(CIFAR10_SHAPE)
    content = b""
    for name in CIFAR10_FILES:
        if name in files:
            if not files[name] or len(files[name]) % size:
                raise Refused(f"{name} is no batch of CIFAR-10: it ends within an image.")
            content += files[name]
    count = len(content) // size
    images = b"".join(content[at + 1 : at + size] for at in range(0, len(content), size))
    return (
        Column("byte", count, CIFAR10_SHAPE, images),
        _labels(content[::size], count, CIFAR10_FILES[0]),
    )


def _labels(content: bytes, count: int, name: str) -> Column:
    if any(label > 9 for label in content):
        raise Refused(f"{name} has a label above 9.")
    return Column("index", count, (), struct.pack(f"<{len(content)}i", *content))


def _idx(content: bytes, rank: int, name: str) -> tuple[int, ...]:
    magic, head = _IDX[rank]
    size = struct.calcsize(head)
    if len(content) < size or struct.unpack(head, content[:size])[0] != magic:
        raise Refused(f"{name} is no such file of MNIST: its head says something else.")
    sides = struct.unpack(head, content[:size])[1:]
    if len(content) != size + prod(sides):
        raise Refused(f"{name} is torn: it should have {size + prod(sides)} bytes.")
    return sides


def _unzipped(content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise Refused(f"a file cannot be unzipped: {error}") from error


def _first(column: Column, count: int) -> Column:
    size = len(column.content) // max(column.count, 1)
    return Column(column.type, count, column.shape, column.content[: count * size])
