"""`info` with an OpenCL library that works or crashes, and on a processor that is too old."""

import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernels.build import BIN
from tests.kernels.plans import perceptron

RUNNER = BIN / "runner-x86_64"
GCC = shutil.which("gcc")
QEMU = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for this computer"),
]

# The functions of OpenCL that list devices, with one device.
LIBRARY = """
#include <stdint.h>
#include <stddef.h>
#include <string.h>
int32_t clGetPlatformIDs(uint32_t room, void **platforms, uint32_t *count) {
    platforms[0] = platforms;
    *count = 1;
    TROUBLE;
    return 0;
}
int32_t clGetDeviceIDs(void *p, uint64_t type, uint32_t room, void **devices, uint32_t *count) {
    devices[0] = devices;
    *count = 1;
    return type == 0xffffffff ? 0 : -1;
}
int32_t clGetPlatformInfo(void *p, uint32_t what, size_t room, void *answer, size_t *size) {
    strcpy(answer, "A \\"platform\\"");
    return 0;
}
int32_t clGetDeviceInfo(void *d, uint32_t what, size_t room, void *answer, size_t *size) {
    switch (what) {
    case 0x102b: strcpy(answer, "A device"); return 0;
    case 0x102f: strcpy(answer, "OpenCL 2.0"); return 0;
    case 0x1002: *(uint32_t *)answer = 9; return 0;
    case 0x101f: *(uint64_t *)answer = 1ull << 33; return 0;
    case 0x1023: *(uint64_t *)answer = 32768; return 0;
    case 0x1004: *(uint64_t *)answer = 512; return 0;
    }
    return -30;
}
"""
# The other functions that the runner requires of a library.
OTHERS = [
    "CreateContext",
    "CreateCommandQueue",
    "CreateBuffer",
    "CreateSubBuffer",
    "CreateImage",
    "CreateProgramWithSource",
    "BuildProgram",
    "GetProgramBuildInfo",
    "CreateKernel",
    "GetKernelWorkGroupInfo",
    "SetKernelArg",
    "EnqueueNDRangeKernel",
    "EnqueueWriteBuffer",
    "EnqueueReadBuffer",
    "EnqueueMapBuffer",
    "EnqueueUnmapMemObject",
    "EnqueueFillBuffer",
    "Flush",
    "Finish",
    "GetEventProfilingInfo",
    "ReleaseEvent",
]


def devices_of(folder: Path, trouble: str) -> list[dict[str, Any]]:
    if GCC is None:
        pytest.skip("gcc is not installed (Debian: apt install gcc)")
    others = "".join(f"void *cl{name}(void) {{ return 0; }}\n" for name in OTHERS)
    (folder / "opencl.c").write_text(LIBRARY + others)
    command = [GCC, "-shared", "-fPIC", "-w", f"-DTROUBLE={trouble}", "opencl.c"]
    subprocess.run([*command, "-o", "libOpenCL.so"], cwd=folder, check=True)
    environment = {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([RUNNER, "info"], env=environment, capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["opencl"]
    return found


def test_the_vendors_devices_are_listed(tmp_path: Path) -> None:
    expected = {
        "platform": 'A "platform"',
        "device": "A device",
        "version": "OpenCL 2.0",
        "driver": "",
        "type": "other",
        "units": 9,
        "global_bytes": 1 << 33,
        "max_alloc_bytes": 0,
        "local_bytes": 32768,
        "max_group": 512,
        "images": False,
    }
    assert [expected] == devices_of(tmp_path, "(void)0")


@pytest.mark.parametrize("trouble", ["*(volatile int *)0 = 1", "return -1001", "for (;;) {}"])
def test_a_crashing_library_gives_an_empty_list(tmp_path: Path, trouble: str) -> None:
    assert devices_of(tmp_path, trouble) == []


@pytest.mark.skipif(QEMU is None, reason="qemu-x86_64 is not installed (apt install qemu-user)")
def test_a_processor_that_is_too_old_is_refused(tmp_path: Path) -> None:
    assert QEMU is not None
    (tmp_path / "plan").write_bytes(perceptron())
    old = [QEMU, "-cpu", "Nehalem", RUNNER]
    info = subprocess.run([*old, "info"], capture_output=True, check=True)
    assert json.loads(info.stdout)["features"] == []
    done = subprocess.run(
        [*old, "run", "plan", "."], cwd=tmp_path, capture_output=True, check=False
    )
    fault = json.loads(done.stdout)
    assert (done.returncode, fault["code"]) == (4, "unsupported")
    assert "lacks AVX2 or FMA" in fault["text"]
