"""Data files are built from published files, and the runner learns from them."""

import gzip
import json
import platform
import random
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sweepfile.sweep_errors import BadSweep
from orchestrator.sweepfile.sweep_file import read_sweep
from workloads.catalogue import Case, bind, cost_of, lower, step_of
from workloads.dataset_files import (
    CIFAR10_FILES,
    MNIST_FILES,
    data_file,
    data_mismatch,
    text_file,
)
from workloads.lowering import lower_step
from workloads.protocol.faults import InvalidRequest

RUNNER = Path(__file__).parents[2] / "kernels" / "bin" / "runner-x86_64"
DIGEST = "ab" * 32
SWEEP = "farm: 1\nname: filed\nphones: all\nworkload: {use: lenet, data: %s}\n"


def mnist(count: int = 64, seed: int = 3) -> dict[str, bytes]:
    """Build images of ten classes: a bright bar at the height of the label, with noise."""
    rng = random.Random(seed)
    labels = bytes(rng.randrange(10) for _ in range(count))
    images = bytearray()
    for label in labels:
        rows = [255 if row // 3 == label else 0 for row in range(28)]
        images += bytes(
            max(0, min(255, row + rng.randrange(-9, 9))) for row in rows for _ in range(28)
        )
    return {
        MNIST_FILES[0]: struct.pack(">IIII", 0x803, count, 28, 28) + bytes(images),
        MNIST_FILES[1]: gzip.compress(struct.pack(">II", 0x801, count) + labels),
    }


def test_mnist_becomes_a_data_file() -> None:
    files = mnist()
    content = data_file("mnist", files, samples=5)
    header = b"farmhand-data 1\ncolumn byte 5 3 1 28 28\ncolumn index 5 0\nend\n"
    assert content.startswith(header)
    images = 64
    assert content[len(header) : images] == bytes(images - len(header))
    assert content[images : images + 5 * 784] == files[MNIST_FILES[0]][16 : 16 + 5 * 784]
    labels = -(-(images + 5 * 784) // 64) * 64
    expected = gzip.decompress(files[MNIST_FILES[1]])[8:13]
    assert content[labels:] == struct.pack("<5i", *expected)


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        (b"a\r\n\xff\0" * 600, {"text_length": 8}, None),
        (b"a" * 3000, {"text_length": 16}, "samples of 8 values, and the workload reads 16; add"),
        (b"a" * 3000, {"text_length": 8, "batch_size": 64}, "374 samples, and .* reads 1024; add"),
        (None, {"text_length": 8}, "is not a data set; add one"),
    ],
)
def test_a_data_set_that_a_case_cannot_read_is_found_before_a_run(
    text: bytes | None, parameters: dict[str, int], expected: str | None
) -> None:
    case = bind("decoder-1m", parameters).model_copy(update={"data": DIGEST})
    head = b"\x7fELF column" if text is None else text_file(text, 8, 4096)[:4096]
    found = data_mismatch(head, lower_step(step_of(case)).streams)
    assert found is expected is None or re.search(str(expected), str(found))


def test_cifar10_becomes_a_data_file() -> None:
    batch = b"".join(bytes([label]) + bytes([label * 20]) * 3072 for label in (7, 2))
    content = data_file("cifar10", {CIFAR10_FILES[1]: batch}, samples=100)
    assert b"column byte 2 3 3 32 32\ncolumn index 2 0\n" in content
    assert content.endswith(struct.pack("<2i", 7, 2))
    assert bytes([140]) * 3072 + bytes([40]) * 3072 in content


@pytest.mark.parametrize(
    ("kind", "files", "text"),
    [
        ("mnist", mnist() | {MNIST_FILES[0]: b"junk"}, "its header is wrong"),
        ("mnist", mnist() | {MNIST_FILES[0]: mnist()[MNIST_FILES[0]][:-1]}, "is damaged: expected"),
        ("mnist", mnist() | {MNIST_FILES[1]: b"\x1f\x8bjunk"}, "cannot decompress a file"),
        ("cifar10", {CIFAR10_FILES[0]: b"x" * 100}, "ends within an image"),
        ("cifar10", {CIFAR10_FILES[0]: bytes([11]) * 3073}, "label above 9"),
    ],
)
def test_a_file_of_another_kind_is_rejected(kind: str, files: dict[str, bytes], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        data_file(kind, files, 10)


def test_a_case_with_a_data_file_is_another_case_of_the_same_cost() -> None:
    generated, from_file = bind("lenet", {}), bind("lenet", {}, DIGEST)
    assert generated.digest != from_file.digest != bind("lenet", {}, "cd" * 32).digest
    assert cost_of(from_file).ops == cost_of(generated).ops
    assert b" file 0 0 |" in lower(from_file, 1)
    assert from_file.label.endswith("data=abababab")


@pytest.mark.parametrize("name", ["mlp-4", "sgemm", "dcgan", "char-lstm", "daily-increment"])
def test_only_image_classifiers_and_decoders_read_a_data_file(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot read a data file"):
        bind(name, {}, DIGEST)


def test_a_sweep_names_its_data_by_digest() -> None:
    assert read_sweep(SWEEP % DIGEST).cases[0].data == DIGEST
    assert read_sweep(SWEEP % DIGEST).id != read_sweep(SWEEP % ("cd" * 32)).id
    for text, words in (
        (SWEEP % "mnist", "'mnist' is not the digest of a data set"),
        ((SWEEP % DIGEST).replace("lenet", "sgemm"), "cannot read a data file"),
    ):
        with pytest.raises(BadSweep) as refused:
            read_sweep(text)
        assert words in refused.value.problems[0].text


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_the_runner_learns_from_the_file(tmp_path: Path) -> None:
    last = train(
        tmp_path, bind("lenet", {"batch_size": 4}, DIGEST), data_file("mnist", mnist(), 64)
    )
    assert last["loss_last"] < last["loss_first"] / 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_runner_learns_a_text(tmp_path: Path, micro_batches: int) -> None:
    given = {"batch_size": 2, "text_length": 16, "micro_batches": micro_batches}
    content = text_file(b"the quick brown fox jumps over the lazy dog. " * 40, 16, 64)
    last = train(tmp_path, bind("decoder-1m", given, DIGEST), content)
    assert last["loss_last"] < last["loss_first"] / 2


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs more than 16 for one sample"):
        text_file(b"x" * 16, 16, 8)


def train(folder: Path, case: Case, content: bytes) -> dict[str, Any]:
    (folder / "plan").write_bytes(lower(case, 1))
    (folder / "data").write_bytes(content)
    options = ["--data", folder / "data", "--steps", "120"]
    command = [RUNNER, "run", folder / "plan", folder, *options]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=600, check=False
    )
    last: dict[str, Any] = json.loads((folder / "out.jsonl").read_text().splitlines()[-1])
    assert (done.returncode, last["line"]) == (0, "done"), last
    return last
