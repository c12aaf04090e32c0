"""The kernels on oclgrind, which checks every memory access of every work item.

oclgrind is a simulated device; the runner loads it in place of a driver.
"""

import json
import os
import platform
from pathlib import Path

import pytest

from kernels.harness.matmul_bench import VARIANTS
from tests.kernels.dumps import CASE
from tests.kernels.opencl_runs import SOURCES, dump_tensors, start_runner
from tests.kernels.test_gradients import BATCH, MODELS
from workloads.lowering import lower_step
from workloads.training import SGD, training_step

LIBRARIES = [
    Path(os.environ.get("FARM_OCLGRIND", "/nowhere")),
    Path("/usr/lib/oclgrind/liboclgrind-rt.so"),
]
# One set of parameters for all variants; oclgrind is a thousand times slower than a processor.
SMALL = "TILE=8 MR=4 NR=16 NC=3 PANELS=2 PACK_A=1 GX=2 GY=2"
TRIED = [
    *("conv 3x3 stride 2 same", "conv groups", "depthwise", "linear", "GELU", "max pool", "lstm"),
    *("batch norm and ReLU6", "layer norm over time", "attention, causal", "tied output"),
    *("softmax cross-entropy", "avg pool 3x3 same", "concat", "upsample by 2"),
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no runner for it"),
]


@pytest.fixture
def oclgrind(tmp_path: Path) -> dict[str, str]:
    library = next((path for path in LIBRARIES if path.exists()), None)
    if library is None:
        pytest.skip("oclgrind is not installed (Debian: apt install oclgrind)")
    log = {"OCLGRIND_LOG": str(tmp_path / "log"), "OCLGRIND_DATA_RACES": "1"}
    return {**os.environ, **log, "FARM_OPENCL": str(library)}


def log_of(oclgrind: dict[str, str]) -> str:
    log = Path(oclgrind["OCLGRIND_LOG"])
    return log.read_text() if log.exists() else ""


def multiply(folder: Path, oclgrind: dict[str, str], kernels: Path) -> list[float]:
    """Multiply small matrices by every variant; return the errors."""
    shapes = ("9 17 11 0 0", "7 18 9 1 1")
    lines = [f"{shape} {variant} {SMALL}\n" for shape in shapes for variant in VARIANTS]
    (folder / "candidates").write_text("".join(lines))
    words = ["tune", folder, "--kernels", kernels, "--rounds", 1, "--launches", 1]
    records = [json.loads(line) for line in start_runner(words, oclgrind).stdout.splitlines()]
    assert records[-1]["line"] == "done", records
    return [record["error"] for record in records if record["line"] == "candidate"]


def test_an_injected_race_is_found(tmp_path: Path, oclgrind: dict[str, str]) -> None:
    for file in SOURCES.iterdir():
        text = file.read_text()
        if file.name == "sgemm_3_tiled.cl":
            assert text.count("barrier(") > 1
            text = text.replace("barrier(CLK_LOCAL_MEM_FENCE);", ";")
        (tmp_path / file.name).write_text(text)
    multiply(tmp_path, oclgrind, tmp_path)
    assert "data race" in log_of(oclgrind)


def test_no_variant_has_a_race_or_an_invalid_access(
    tmp_path: Path, oclgrind: dict[str, str]
) -> None:
    errors = multiply(tmp_path, oclgrind, SOURCES)
    assert (len(errors), log_of(oclgrind)) == (2 * len(VARIANTS), "")
    assert max(errors) < 1e-5


@pytest.mark.parametrize("name", TRIED)
def test_no_layer_has_a_race_or_an_invalid_access(
    tmp_path: Path, oclgrind: dict[str, str], name: str
) -> None:
    step = training_step(MODELS[name], BATCH, SGD(0.1))
    body = lower_step(step, reuse=False, backend="opencl")
    dump_tensors(body.text(CASE, 1), tmp_path, oclgrind, 1)
    assert log_of(oclgrind) == ""
