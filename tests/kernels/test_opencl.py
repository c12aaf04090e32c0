"""The OpenCL kernels on PoCL: correct for every shape, and refusals with one sentence."""

import json
import os
import subprocess
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kernels.autotuner import MatmulShape, OpenCLIdentity, tuned_text
from kernels.harness.cli import kernels, read_sizes
from kernels.harness.device_tuning import cache_path, tune_all
from kernels.harness.kernel_check import TOLERANCE, run_check, source_files
from kernels.harness.launch_timing import DevicePeaks
from kernels.harness.matmul_bench import bench_matmul
from kernels.harness.matmul_check import check_matmul
from kernels.harness.matmul_variants import VARIANTS
from kernels.harness.opencl_device import Device, choose_device
from kernels.harness.roofline_plot import roofline_svg
from kernels.harness.training_checks import training_checks
from workloads.protocol.faults import BadFile, InvalidRequest

ROOT = Path(__file__).resolve().parents[2]


def test_pocl_needs_no_linker_of_the_system(tmp_path: Path, device_number: str) -> None:
    words = [sys.executable, "-m", "orchestrator", "kernels", "bench", "--sizes", "8"]
    words += ["--device", device_number]
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(words, env=nothing, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not list(tmp_path.iterdir())


_OTHERS = ("sgemm_", "peak.cl")  # matmul variants have their own check, and peaks have no result
# One set of parameters for all, so that a shape is built once.
_PARAMS = {"TILE": 8, "MR": 4, "NR": 16, "NC": 3, "PANELS": 2, "PACK_A": 0}


@pytest.mark.parametrize("shape", [MatmulShape(33, 17, 21), MatmulShape(7, 61, 40, True, True)])
def test_every_variant_multiplies_correctly_for_every_shape(
    device: Device, shape: MatmulShape
) -> None:
    variants = [replace(variant, params=_PARAMS) for variant in VARIANTS.values()]
    checked = [check_matmul(device, variant, shape, seed=3) for variant in variants]
    assert [one for one in checked if not one.passed] == []


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda variant: variant.name)
def test_every_variant_multiplies_correctly_in_all_transposes(device: Device, variant) -> None:  # type: ignore[no-untyped-def]
    from kernels.harness.matmul_check import check_shapes

    checked = [
        check_matmul(device, variant, shape, seed=3) for shape in check_shapes(seed=3, extra=12)
    ]
    assert [one for one in checked if not one.passed] == []


def test_every_kernel_of_training_agrees_with_numpy(device: Device) -> None:
    wrong = [
        (check.name, error)
        for check in training_checks(seed=5)
        if not (error := run_check(device, check)) <= TOLERANCE
    ]
    assert wrong == []


def test_every_kernel_is_checked() -> None:
    defined = {name for name, file in source_files().items() if not file.startswith(_OTHERS)}
    assert defined == {check.entry for check in training_checks(seed=5)}


def test_a_wrong_result_is_found(device: Device) -> None:
    check = next(check for check in training_checks(seed=5) if check.entry == "max_pool_forward")
    wrong = replace(check, expected=(check.expected[0], check.expected[1] + np.int32(1)))
    assert run_check(device, wrong) > TOLERANCE


def test_the_error_of_a_kernel_shows_the_build_log(device: Device) -> None:
    with pytest.raises(InvalidRequest, match=r"broken\.cl does not build for .*\n(?s:.)*nonsense"):
        device.program_from("kernel void broken() { nonsense; }", "broken.cl")


@pytest.mark.parametrize(("words", "code"), [("list", 0), ("bench --sizes 8", 2)])
def test_without_an_opencl_device_the_error_is_one_line(
    tmp_path: Path, words: str, code: int
) -> None:
    start = [sys.executable, "-m", "orchestrator", "kernels", *words.split()]
    environment = {
        **os.environ,
        "OCL_ICD_VENDORS": str(tmp_path / "nothing"),
        "PYTHONPATH": str(ROOT),
    }
    result = subprocess.run(start, env=environment, capture_output=True, text=True, check=False)
    assert code == result.returncode
    assert "no OpenCL device was found" in result.stderr.splitlines()[-1]


def test_a_device_without_the_local_memory_is_refused(device: Device) -> None:
    poor = copy(device)
    poor.facts = replace(device.facts, local_bytes=1024)
    with pytest.raises(
        InvalidRequest, match=r"tiled needs 2048 bytes of local memory, and .* has 1024"
    ):
        bench_matmul(poor, [8], 1, 1)


def test_a_build_log_is_bounded(device: Device) -> None:
    wrong = "".join(f"nonsense_{at};" for at in range(2000))
    with pytest.raises(InvalidRequest) as refused:
        device.program_from(f"kernel void broken() {{ {wrong} }}", "broken.cl")
    assert len(str(refused.value)) < 3000


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidRequest, match=r"no OpenCL device matches 'adreno'; choose one of 0: "
    ):
        choose_device("adreno")
    with pytest.raises(InvalidRequest, match="no OpenCL device matches '99'"):
        choose_device("99")


@pytest.mark.parametrize("text", ["", "1x", "0,4", "8:4:1", "9000"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--sizes"):
        read_sizes(text)


def test_a_bench_prints_the_studys_ratio(device_number: str) -> None:
    words = ["bench", "--sizes", "33", "--rounds", "1", "--launches", "2", "--json"]
    result = CliRunner().invoke(kernels, [*words, "--device", device_number])
    rows = json.loads(result.stdout)["rows"]
    assert [row["n"] for row in rows] == [33]
    assert all(row["tiled_vector_over_naive"] > 0 for row in rows)


def test_the_roofline_shows_every_variant(device: Device) -> None:
    picture = roofline_svg(bench_matmul(device, [33], 1, 1), DevicePeaks(100.0, 10.0), "a <title>")
    assert all(f"{variant}, n = 33" in picture for variant in VARIANTS)
    assert "a &lt;title&gt;" in picture


def test_a_cached_tuning_is_not_repeated(device: Device, tmp_path: Path) -> None:
    timed: list[int] = []
    shape = MatmulShape(8, 8, 8)
    winners = tune_all(device, [shape], 0.0, tmp_path, on_timed=timed.append)
    never = lambda count: pytest.fail("again")  # noqa: E731
    assert winners == tune_all(device, [shape], 0.0, tmp_path, on_timed=never)
    assert sum(timed) > 1
    assert [cache_path(tmp_path, device)] == list((tmp_path / "tuned").iterdir())


def test_a_bench_refuses_a_tuning_file_of_another_device(
    device_number: str, tmp_path: Path
) -> None:
    path = tmp_path / "phone.tuned"
    path.write_text(tuned_text(OpenCLIdentity("Mali-G78", "OpenCL 2.1", "r38p1"), []))
    result = CliRunner().invoke(kernels, ["bench", "--device", device_number, "--tuned", str(path)])
    assert isinstance(result.exception, BadFile)
    assert "was tuned for Mali-G78 with driver r38p1" in str(result.exception)
