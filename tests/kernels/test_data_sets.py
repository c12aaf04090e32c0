"""Data sets that the engine generates or reads from a file.

A sample depends on the seed and its number only, so streams agree in whatever order they are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kernels.reference import Array, parse, read_dump
from tests.kernels.dumps import run_plan
from tests.kernels.plans import a_body, a_plan

SAMPLES = 64
CLASSES = 10
ROOM = 1 << 18  # bytes between two inputs, more than any has here


@dataclass(frozen=True)
class LoadedStream:
    """A stream, and the batch that a step loads from it."""

    type: str
    shape: tuple[int, ...]
    made: str
    count: int = SAMPLES
    batch: int = SAMPLES
    first: int = 0


def body_of(streams: Sequence[LoadedStream]) -> str:
    """Return a body that loads streams and does almost nothing else."""
    lines = []
    for number, each in enumerate(streams):
        words = ("stream", number, each.type, each.count, len(each.shape), *each.shape, each.made)
        lines.append(" ".join(map(str, words)))
    for number, each in enumerate(streams):
        kind = "index" if each.type == "index" else "float"
        shape = (each.batch, *each.shape)
        words = ("tensor", number, kind, "input", number * ROOM, len(shape), *shape, "none")
        lines.append(" ".join(map(str, words)))
    idle = len(streams)
    lines.append(f"tensor {idle} float activation 0 1 1 zero")
    for number, each in enumerate(streams):
        lines.append(f"op load -1 load : {number} : {number} {each.first} {each.batch} : 1 0")
    lines.append(f"op forward 0 copy_scaled {idle} : {idle} : : 1")
    return a_body("\n".join(lines) + "\n", arena=ROOM * len(streams))


def loaded(
    folder: Path, *streams: LoadedStream, steps: int = 1, data: bytes | None = None
) -> list[Array]:
    """Return what the last step loaded, stream by stream."""
    body = body_of(streams)
    words: tuple[str, ...] = ("--steps", str(steps))
    if data is not None:
        (folder / "data").write_bytes(data)
        words += ("--data", str(folder / "data"))
    ended = run_plan("dump", a_plan(body), folder, *words)
    assert ended.returncode == 0, ended.stdout
    return read_dump((folder / "dump.bin").read_bytes(), parse(body))[-1][:-1]


def refused(folder: Path, stream: LoadedStream, data: bytes | None) -> str:
    """Return the fault text of a refused data file."""
    words: tuple[str, ...] = ()
    if data is not None:
        (folder / "data").write_bytes(data)
        words = ("--data", str(folder / "data"))
    ended = run_plan("dump", a_plan(body_of([stream])), folder, *words)
    assert ended.returncode in (3, 8), ended.stdout
    return ended.stdout


def a_file(*columns: tuple[str, np.ndarray]) -> bytes:
    """Return a data file, as kernels/engine/dataset.h defines it."""
    content = b"farmhand-data 1\n"
    for type, values in columns:
        words = ("column", type, len(values), values.ndim - 1, *values.shape[1:])
        content += " ".join(map(str, words)).encode() + b"\n"
    content += b"end\n"
    for _, values in columns:
        content += b"\0" * (-len(content) % 64) + values.tobytes()
    return content


IMAGES = LoadedStream("byte", (3, 16, 16), f"image {CLASSES} |")
LABELS = LoadedStream("index", (), f"label {CLASSES} |")
FILED = LoadedStream("index", (), f"file 0 {CLASSES} |", count=5, batch=5)
FIVE = np.arange(5, dtype="<i4")


def test_labels_equal_one_hot_rows(tmp_path: Path) -> None:
    hot = LoadedStream("float", (CLASSES,), f"one_hot {CLASSES} |")
    labels, rows = loaded(tmp_path, LABELS, hot)
    assert np.eye(CLASSES)[labels.astype(int)].tolist() == rows.tolist()


def test_the_target_is_the_text_shifted_by_one_symbol(tmp_path: Path) -> None:
    text, later = loaded(
        tmp_path,
        LoadedStream("index", (20,), "tokens 50 |"),
        LoadedStream("index", (20,), "next_tokens 50 |"),
    )
    assert text[:, 1:].tolist() == later[:, :-1].tolist()


def test_a_symbol_predicts_the_next(tmp_path: Path) -> None:
    text, later = loaded(
        tmp_path,
        LoadedStream("index", (40,), "tokens 20 |"),
        LoadedStream("index", (40,), "next_tokens 20 |"),
    )
    pairs = np.zeros((20, 20))
    np.add.at(pairs, (text.astype(int), later.astype(int)), 1)
    assert pairs.max(axis=1).sum() / pairs.sum() > 0.5


def test_images_of_a_class_are_nearest_to_its_mean(tmp_path: Path) -> None:
    pictures, labels = loaded(tmp_path, IMAGES, LABELS)
    flat = pictures.reshape(SAMPLES, -1)
    classes = sorted(set(labels.tolist()))
    means = np.stack([flat[labels == each].mean(axis=0) for each in classes])
    distance = ((flat[:, None] - means) ** 2).sum(axis=2)
    nearest = [classes[each] for each in distance.argmin(axis=1)]
    assert labels.tolist() == nearest
    assert 0 <= pictures.min() < pictures.max() <= 255


def test_personal_images_drift_from_a_given_sample_on(tmp_path: Path) -> None:
    personal = LoadedStream("byte", (3, 16, 16), f"personal {CLASSES} 32 |")
    images, personal_images = loaded(tmp_path, IMAGES, personal)
    away = np.abs(images - personal_images).mean(axis=(1, 2, 3))
    assert away[:32].max() < away[48:].min()


def test_batches_are_consecutive_and_wrap_around(tmp_path: Path) -> None:
    (all_images,) = loaded(tmp_path, IMAGES)
    (batch,) = loaded(
        tmp_path,
        LoadedStream("byte", (3, 16, 16), f"image {CLASSES} |", batch=24, first=3),
        steps=3,
    )
    places = (3 + 2 * 24 + np.arange(24)) % SAMPLES
    assert all_images[places].tolist() == batch.tolist()


def test_noise_is_normal_and_constants_are_constant(tmp_path: Path) -> None:
    noise, value = loaded(
        tmp_path,
        LoadedStream("float", (500,), "normal |"),
        LoadedStream("float", (3,), "constant | 0.75"),
    )
    assert abs(noise.mean()) < 0.03
    assert abs(noise.std() - 1) < 0.03
    assert {0.75} == set(value.ravel().tolist())


def test_a_data_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    pictures = chance.integers(0, 256, (7, 1, 3, 5)).astype("u1")
    numbers = chance.standard_normal((7, 4)).astype("<f4")
    found = loaded(
        tmp_path,
        LoadedStream("byte", (1, 3, 5), "file 0 0 |", count=7, batch=7),
        LoadedStream("float", (4,), "file 1 0 |", count=7, batch=7),
        LoadedStream("index", (), "file 2 10 |", count=5, batch=5),
        data=a_file(("byte", pictures), ("float", numbers), ("index", np.arange(7, dtype="<i4"))),
    )
    assert [pictures.tolist(), numbers.tolist(), [0, 1, 2, 3, 4]] == [x.tolist() for x in found]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "reads a data file, but none was given"),
        (b"", "does not begin with the line 'farmhand-data 1'"),
        (b"farmhand-data 1\ncolumn index 5 0\n", "has a head without the line 'end'"),
        (b"farmhand-data 1\ncolumn index -5 0\nend\n", "has a malformed column line"),
        (b"farmhand-data 1\ncolumn index 5 9\nend\n", "has a malformed column line"),
        (a_file(("index", FIVE))[:-1], "has another length than its head says"),
        (a_file(("index", FIVE)) + b"x", "has another length than its head says"),
        (a_file(("index", FIVE[:4])), "no column with the type, shape and length"),
        (a_file(("byte", FIVE.astype("u1"))), "no column with the type, shape and length"),
        (a_file(("index", FIVE + 6)), "an index outside the limit"),
        (a_file(("index", FIVE - 1)), "an index outside the limit"),
    ],
    ids=[
        *("none", "empty", "no-end", "negative-count", "rank", "torn", "longer", "too-short"),
        *("other-type", "too-great", "negative"),
    ],
)
def test_an_unsuitable_data_file_is_refused(tmp_path: Path, data: bytes | None, why: str) -> None:
    assert why in refused(tmp_path, FILED, data)
