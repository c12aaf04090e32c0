"""The arm64 build with OpenCL under emulation: it loads a library, and trains with a complete one.

Debian's arm64 PoCL needs a root file system (it opens its files by fixed paths, and starts a
compiler and a linker): FARM_ARM64_ROOT names one that this computer can chroot into (so
binfmt_misc must know qemu), with pocl-opencl-icd:arm64 and binutils in it, and /proc and /sys. From
Linux 6.7 on, one process can set this up for itself: unshare --user --map-root-user --mount, then
mount binfmt_misc, write /usr/lib/binfmt.d/qemu-aarch64.conf to its register, and mount --rbind
/proc, /sys and /dev into the root.
"""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.build import HERE, HOST, ZIG, build
from tests.kernels.plans import perceptron
from tests.kernels.test_arm import Start, bionic, pytestmark
from tests.kernels.test_info import LIBRARY, OTHERS
from tests.kernels.test_opencl_backend import on_opencl

__all__ = ["bionic", "pytestmark"]
ROOT = os.environ.get("FARM_ARM64_ROOT")


def test_a_library_for_arm64_is_found(bionic: Start, tmp_path: Path) -> None:
    others = "".join(f"void *cl{name}(void) {{ return 0; }}\n" for name in OTHERS)
    (tmp_path / "opencl.c").write_text(LIBRARY + others)
    compile_words = [
        "cc",
        "-target",
        "aarch64-linux-gnu.2.28",
        "-shared",
        "-fPIC",
        "-w",
        "-DTROUBLE=",
    ]
    subprocess.run([*ZIG, *compile_words, "opencl.c", "-o", "vendor.so"], cwd=tmp_path, check=True)
    start = [*bionic[:-1], "-E", f"FARM_OPENCL={tmp_path / 'vendor.so'}", bionic[-1]]
    info = json.loads(subprocess.run([*start, "info"], capture_output=True, check=True).stdout)
    assert [device["device"] for device in info["opencl"]] == ["A device"]
    assert info["backends"] == ["cpu", "opencl"]
    (tmp_path / "plan").write_bytes(on_opencl(perceptron()))
    words = [*start, "run", tmp_path / "plan", tmp_path]
    done = subprocess.run(words, capture_output=True, check=False)
    fault = json.loads(done.stdout)
    assert (done.returncode, fault["code"]) == (11, "device")
    assert "A device: clCreateC" in fault["text"]


@pytest.mark.skipif(ROOT is None, reason="no arm64 root with PoCL is named in FARM_ARM64_ROOT")
def test_a_model_trains_on_debians_arm64_pocl() -> None:
    folder = Path(str(ROOT), "tmp", "farmhand")
    folder.mkdir(parents=True, exist_ok=True)
    flags = ("-fno-pie", "-mno-outline-atomics")
    arm = replace(HOST, file="runner", zig="aarch64-linux-gnu.2.28", flags=flags, engine=())
    build(arm, folder)
    for file in (HERE / "opencl").iterdir():
        shutil.copy(file, folder)
    (folder / "plan").write_bytes(on_opencl(perceptron()))
    inside = "/tmp/farmhand"
    words = ["chroot", str(ROOT), f"{inside}/runner", "run", f"{inside}/plan", inside]
    done = subprocess.run([*words, "--steps", "20"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads((folder / "out.jsonl").read_text().splitlines()[-1])
    assert last["loss_last"] < last["loss_first"]
    assert last["fallbacks"] == 0
