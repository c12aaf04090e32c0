"""The shipped binaries: small, listed by digest, and built from the sources in this tree."""

import hashlib
import json
import shutil
import struct
from pathlib import Path

import pytest

from agent.virtual.runner.runner_program import RUNNER_MARK
from kernels.build import (
    BIN,
    BYTES_MAX,
    HERE,
    MANIFEST,
    TARGETS,
    BuildTarget,
    build,
    digest_of_sources,
)
from kernels.runner_builds import runner_for

MANIFEST_JSON = json.loads((BIN / MANIFEST).read_text())
ENTRIES = {entry["file"]: entry for entry in MANIFEST_JSON["binaries"]}
FILES = [target.file for target in TARGETS]


def segments(content: bytes) -> list[tuple[int, int, int, int]]:
    """Return (type, offset, bytes in the file, alignment) of an ELF file's program headers."""
    start, size, count = struct.unpack_from("<Q", content, 32) + struct.unpack_from(
        "<HH", content, 54
    )
    found = []
    for at in range(start, start + size * count, size):
        kind, _, offset, _, _, length, _, alignment = struct.unpack_from("<IIQQQQQQ", content, at)
        found.append((kind, offset, length, alignment))
    return found


def interpreter(content: bytes) -> str:
    found = [content[at : at + size] for kind, at, size, _ in segments(content) if kind == 3]
    return found[0].rstrip(b"\0").decode() if found else ""


@pytest.mark.parametrize("name", FILES)
def test_a_binary_has_the_digest_of_the_manifest(name: str) -> None:
    content = (BIN / name).read_bytes()
    assert ENTRIES[name]["sha256"] == hashlib.sha256(content).hexdigest()
    assert ENTRIES[name]["bytes"] == len(content) < BYTES_MAX
    assert RUNNER_MARK in content


@pytest.mark.parametrize("target", TARGETS, ids=FILES)
def test_a_binary_was_built_from_these_sources(target: BuildTarget) -> None:
    """If this fails, run: python -m kernels.build"""
    digest = digest_of_sources(target, MANIFEST_JSON["zig"])
    assert digest == ENTRIES[target.file]["sources_sha256"], "build the binaries again"


@pytest.mark.parametrize(
    ("name", "machine", "interpreted_by"),
    [
        ("runner-arm64-bionic", 183, "/system/bin/linker64"),
        ("runner-arm64-musl", 183, ""),
        ("runner-x86_64", 62, "/lib64/ld-linux-x86-64.so.2"),
    ],
)
def test_a_binary_is_for_its_architecture(name: str, machine: int, interpreted_by: str) -> None:
    content = (BIN / name).read_bytes()
    assert (b"\x7fELF", machine) == (content[:4], struct.unpack_from("<H", content, 18)[0])
    assert interpreted_by == interpreter(content)
    loaded = [alignment for kind, _, _, alignment in segments(content) if kind == 1]
    if machine == 183:
        assert {0x4000} == set(loaded), "pages of 16 KB"
    assert 7 not in {kind for kind, *_ in segments(content)} or name.endswith("musl"), "no TLS"


def test_arm_phones_get_the_bionic_build_and_a_static_fallback() -> None:
    first = runner_for("arm64-v8a")
    assert ENTRIES["runner-arm64-bionic"]["sha256"] == first.digest
    assert first.fallback is not None
    assert ENTRIES["runner-arm64-musl"]["sha256"] == first.fallback.digest
    assert first.fallback.fallback is None
    assert first.with_digest(first.fallback.digest) == first.fallback
    assert first.with_digest("unknown") == first
    assert ENTRIES["runner-x86_64"]["sha256"] == runner_for("x86_64").digest
    assert runner_for("mips").content.startswith(b"#!")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=FILES)
def test_the_same_sources_give_the_same_bytes_in_any_folder(
    target: BuildTarget, tmp_path: Path
) -> None:
    pytest.importorskip("ziglang", reason="the compiler is not installed (farmhand[build])")
    elsewhere = tmp_path / "quite" / "elsewhere"
    for room in ("engine", "runner"):
        shutil.copytree(HERE / room, elsewhere / room)
    built = build(target, tmp_path / "bin", elsewhere)
    assert (BIN / target.file).read_bytes() == built.read_bytes()
