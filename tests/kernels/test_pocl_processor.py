"""PoCL on processors that are newer than its compiler."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.pocl import find_library
from kernels.pocl_processor import is_unknown_processor, with_known_processor

NAME = "import ctypes, sys; name = ctypes.CDLL(sys.argv[1]).pocl_get_llvm_cpu_name; " + (
    "name.restype = ctypes.c_char_p; print(name().decode())"
)


@pytest.mark.parametrize(
    ("vendor", "family", "is_unknown"),
    [
        ("AuthenticAMD", 23, False),
        ("AuthenticAMD", 25, False),
        ("AuthenticAMD", 26, True),  # Zen 5
        ("GenuineIntel", 26, False),  # LLVM names those that it does not know by their instructions
    ],
)
def test_processors_are_known_by_vendor_and_family(
    vendor: str, family: int, is_unknown: bool
) -> None:
    cpuinfo = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 2\n"
    assert is_unknown_processor(cpuinfo) is is_unknown
    assert not is_unknown_processor("processor\t: 0\nCPU implementer\t: 0x41\n")


def test_the_changed_library_names_a_processor_that_it_knows(tmp_path: Path) -> None:
    installed = find_library()
    if installed is None:
        pytest.skip("PoCL is not installed (pip install pyopencl[pocl])")
    content = installed.read_bytes()
    changed = with_known_processor(content)
    assert len(changed) == len(content)
    assert with_known_processor(changed) == changed
    assert b"znver3\0\0\0\0" in changed
    library = tmp_path / "libpocl.so"
    library.write_bytes(changed)
    needed = installed.parents[2] / "pocl_binary_distribution" / ".libs"
    done = subprocess.run(
        [sys.executable, "-c", NAME, library],
        env={"LD_LIBRARY_PATH": str(needed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "znver3\n", done.stderr


def test_another_library_stays_as_it_is() -> None:
    other = Path(ctypes.__file__).read_bytes()
    assert with_known_processor(other) == other
