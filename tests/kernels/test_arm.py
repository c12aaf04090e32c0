"""The arm64 builds under qemu: they start, and compute what the build for this computer computes.

Nothing is timed here, because the times of an emulator are not those of a phone.
"""

import json
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernels.build import BIN, ZIG
from kernels.runner_builds import runner_for
from tests.kernels.plans import perceptron, product
from workloads.catalogue import bind, lower

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
GLIBC = Path("/usr/aarch64-linux-gnu/lib")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        QEMU is None or platform.machine() != "x86_64",
        reason="qemu-aarch64 is not installed (Debian: apt install qemu-user)",
    ),
]

# Functions of Android's libc that glibc lacks, in terms of glibc. The emulator redirects only
# open() to the phone's root, so access() is written with it.
SHIM = """
extern int *__errno_location(void);
extern int open(const char *, int, ...), close(int);
int access(const char *path, int mode) { return (void)mode, close(open(path, 0)); }
extern _Noreturn void exit(int);
int *__errno(void) { return __errno_location(); }
void __libc_init(void **raw, void *unused, int (*run)(int, char **, char **), void *structors) {
    (void)unused, (void)structors;
    long count = *(long *)raw;
    exit(run((int)count, (char **)(raw + 1), (char **)(raw + 2 + count)));
}
"""

Start = Sequence[str | Path]


@pytest.fixture(scope="module")
def bionic(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Return how to start the bionic build: glibc's loader as linker64, and a shim for libc."""
    if not (GLIBC / "ld-linux-aarch64.so.1").exists():
        pytest.skip("there is no arm64 libc (Debian: apt install libc6-arm64-cross)")
    pytest.importorskip("ziglang", reason="the compiler is not installed (farmhand[build])")
    root = tmp_path_factory.mktemp("phone")
    (root / "system" / "bin").mkdir(parents=True)
    (root / "lib").mkdir()
    shutil.copy(GLIBC / "ld-linux-aarch64.so.1", root / "system" / "bin" / "linker64")
    for name in GLIBC.glob("*.so.*"):
        shutil.copy(name, root / "lib")
    shutil.copy(GLIBC / "libm.so.6", root / "lib" / "libm.so")
    shutil.copy(GLIBC / "libdl.so.2", root / "lib" / "libdl.so")
    (root / "shim.c").write_text(SHIM)
    words = ["cc", "-target", "aarch64-linux-musl", "-fPIC", "-Os", "-c", "shim.c", "-o", "shim.o"]
    subprocess.run([*ZIG, *words], cwd=root, check=True)
    words = ["ld.lld", "-shared", "-soname", "libc.so", "shim.o", str(GLIBC / "libc.so.6")]
    subprocess.run([*ZIG, *words, "-o", "lib/libc.so"], cwd=root, check=True)
    assert QEMU is not None
    library = f"LD_LIBRARY_PATH={root / 'lib'}"
    return [QEMU, "-L", root, "-E", library, BIN / "runner-arm64-bionic"]


@pytest.fixture(params=["bionic", "musl"])
def arm(request: pytest.FixtureRequest) -> Start:
    assert QEMU is not None
    if request.param == "musl":
        return [QEMU, BIN / "runner-arm64-musl"]
    start: Start = request.getfixturevalue("bionic")
    return start


def last_line(start: Start, plan: bytes, folder: Path, *words: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "plan").write_bytes(plan)
    command = [*start, "run", folder / "plan", folder, *words]
    done = subprocess.run(command, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last: dict[str, Any] = json.loads((folder / "out.jsonl").read_text().splitlines()[-1])
    return last


def test_info_names_the_phone_build(arm: Start) -> None:
    info = json.loads(subprocess.run([*arm, "info"], capture_output=True, check=True).stdout)
    assert (info["abi"], info["contract"], info["opencl"]) == ("arm64-v8a", 1, [])
    assert "asimd" in info["features"]


def test_numbers_have_the_source_phone_only_on_android(bionic: Start) -> None:
    """One binary on Android, on an emulator, as a native virtual phone, and on a computer."""
    phone = [{"source": "phone"}] * 4
    host = [{"source": "host"}, None, None, None]
    root = Path(str(bionic[2]))
    native = [*bionic[:3], "-E", "FARM_NATIVE_PHONE=1", *bionic[3:]]
    assert host == sources(bionic)
    (root / "dev" / "__properties__").mkdir(parents=True)
    try:
        assert host == sources(bionic)  # an empty folder
        (root / "dev" / "__properties__" / "properties_serial").touch()
        assert phone == sources(bionic)
        assert host == sources(native)
        (root / "dev" / "goldfish_pipe").touch()
        assert host == sources(bionic)
    finally:
        shutil.rmtree(root / "dev")


def sources(start: Start) -> list[Any]:
    """Return the provenance of each family of metrics."""
    output = subprocess.run([*start, "info"], capture_output=True, check=True).stdout
    return list(json.loads(output)["provenance"].values())


def test_refusals_follow_the_contract(arm: Start, tmp_path: Path) -> None:
    for words, status in ((["dance"], 2), (["run", "none", tmp_path], 3), (["sample", "no"], 8)):
        done = subprocess.run([*arm, *words], capture_output=True, check=False)
        assert status == done.returncode
        assert json.loads(done.stdout)["line"] == "fault"


def test_nodes_are_sampled_during_a_run(arm: Start, tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("/proc/uptime\n/proc/stat\tcores\n/nowhere\n")
    last_line(arm, perceptron(), tmp_path, "--seconds", "1", "--period-ms", "100")
    readings = [json.loads(line) for line in (tmp_path / "readings.jsonl").open()][1:]
    assert len(readings) > 3
    assert all(reading["v"][1].startswith("0:") for reading in readings)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(product(96), id="sgemm"),
        pytest.param(perceptron(threads=2, batch=32), id="perceptron"),
        *(
            pytest.param(lower(bind(name, {"batch_size": 2}), 1), id=name)
            for name in ("lenet", "resnet20", "char-lstm", "dqn")
        ),
    ],
)
def test_results_equal_those_of_the_build_for_this_computer(
    arm: Start, plan: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "computer"
    folder.mkdir()
    binary = folder / "runner"
    binary.write_bytes(runner_for("x86_64").content)
    binary.chmod(0o755)
    words = ("--warmup", "1", "--steps", "3")
    expected = last_line([binary], plan, folder, *words)
    actual = last_line(arm, plan, tmp_path / "phone", *words)
    for name in ("parameters", "macs", "learned", "moved", "steps"):
        assert expected[name] == actual[name]
    for name in ("loss_first", "loss_last"):
        assert (expected[name] is None) == (actual[name] is None)
        if expected[name] is not None:
            assert expected[name] == pytest.approx(actual[name], rel=2e-3)
    if expected["answer_error"] is not None:
        assert actual["answer_error"] < 1e-6
