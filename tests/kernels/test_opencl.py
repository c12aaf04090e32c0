"""The OpenCL kernels on the device that pip brings: right for every shape, or one sentence."""

import json
import os
import re
import subprocess
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kernels.harness.bench import bench
from kernels.harness.check import check
from kernels.harness.cli import kernels, read_sizes
from kernels.harness.device import Device, choose_device
from kernels.harness.operations import trials
from kernels.harness.products import WAYS
from kernels.harness.roofline import roofline_svg
from kernels.harness.timing import Roofs
from kernels.harness.trial import TOLERANCE, run_trial
from kernels.harness.tune import cache_path, tune_all
from kernels.tuning import Shape, TunedFor, tuned_text
from workloads.fault import BadFile, Refused

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_linker_pocl_is_refused_before_it_ends_the_process(
    tmp_path: Path, device_number: str
) -> None:
    words = [sys.executable, "-m", "orchestrator", "kernels", "bench", "--sizes", "8"]
    words += ["--device", device_number]
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    said = subprocess.run(words, env=nothing, capture_output=True, text=True, check=False)
    assert 2 == said.returncode
    assert "needs the linker 'ld'" in said.stderr.splitlines()[-1]


_OTHERS = ("sgemm.cl", "peak.cl")  # the ways to multiply, and what only takes time
# One set of numbers for all, so that a shape is built once.
_NUMBERS = {"TILE": 8, "MR": 4, "NR": 16, "NC": 3, "STRIPS": 2, "PACK_A": 0}


@pytest.mark.parametrize("shape", [Shape(33, 17, 21), Shape(7, 61, 40, True, True)])
def test_every_way_multiplies_right_whatever_the_shape(device: Device, shape: Shape) -> None:
    ways = [replace(way, defines=_NUMBERS) for way in WAYS.values()]
    checked = [check(device, way, shape, seed=3) for way in ways]
    assert [] == [one for one in checked if not one.right]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS.values(), ids=lambda way: way.name)
def test_every_way_multiplies_right_in_all_transposes(device: Device, way) -> None:  # type: ignore[no-untyped-def]
    from kernels.harness.check import shapes

    checked = [check(device, way, shape, seed=3) for shape in shapes(seed=3, extra=12)]
    assert [] == [one for one in checked if not one.right]


def test_every_kernel_of_training_agrees_with_numpy(device: Device) -> None:
    wrong = [
        (trial.name, error)
        for trial in trials(seed=5)
        if not (error := run_trial(device, trial)) <= TOLERANCE
    ]
    assert [] == wrong


def test_no_kernel_is_left_out() -> None:
    entry = re.compile(r"^kernel .*?void\s+(\w+)\(", re.MULTILINE | re.DOTALL)
    files = [file for file in (ROOT / "kernels/opencl").iterdir() if file.name not in _OTHERS]
    there = {name for file in files for name in entry.findall(file.read_text())}
    assert there == {trial.entry for trial in trials(seed=5)}


def test_a_wrong_answer_is_found(device: Device) -> None:
    trial = next(trial for trial in trials(seed=5) if trial.entry == "max_pool_forward")
    lied = replace(trial, expected=(trial.expected[0], trial.expected[1] + np.int32(1)))
    assert run_trial(device, lied) > TOLERANCE


def test_a_kernel_that_does_not_build_shows_the_compilers_words(device: Device) -> None:
    with pytest.raises(Refused, match=r"broken\.cl does not build for .*\n(?s:.)*nonsense"):
        device.program_from("kernel void broken() { nonsense; }", "broken.cl")


@pytest.mark.parametrize(("words", "code"), [("list", 0), ("bench --sizes 8", 2)])
def test_without_any_opencl_device_there_is_one_sentence(
    tmp_path: Path, words: str, code: int
) -> None:
    start = [sys.executable, "-m", "orchestrator", "kernels", *words.split()]
    nobody = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path / "nothing"), "PYTHONPATH": str(ROOT)}
    said = subprocess.run(start, env=nobody, capture_output=True, text=True, check=False)
    assert code == said.returncode
    assert "no OpenCL device was found" in said.stderr.splitlines()[-1]


def test_a_device_without_the_local_memory_is_refused(device: Device) -> None:
    poor = copy(device)
    poor.facts = replace(device.facts, local_bytes=1024)
    with pytest.raises(Refused, match=r"tiled needs 2048 bytes of local memory, and .* has 1024"):
        bench(poor, [8], 1, 1)


def test_a_build_log_is_bounded(device: Device) -> None:
    wrong = "".join(f"nonsense_{at};" for at in range(2000))
    with pytest.raises(Refused) as refused:
        device.program_from(f"kernel void broken() {{ {wrong} }}", "broken.cl")
    assert len(str(refused.value)) < 3000


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Refused, match=r"no OpenCL device is 'adreno'; there are 0: "):
        choose_device("adreno")
    with pytest.raises(Refused, match="no OpenCL device is '99'"):
        choose_device("99")


@pytest.mark.parametrize("text", ["", "1x", "0,4", "8:4:1", "9000"])
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="--sizes"):
        read_sizes(text)


def test_a_bench_prints_the_studys_ratio(device_number: str) -> None:
    words = ["bench", "--sizes", "33", "--rounds", "1", "--launches", "2", "--json"]
    said = CliRunner().invoke(kernels, [*words, "--device", device_number])
    rows = json.loads(said.stdout)["rows"]
    assert [33] == [row["n"] for row in rows]
    assert all(row["tiled_vector_over_naive"] > 0 for row in rows)


def test_the_roofline_shows_every_way(device: Device) -> None:
    picture = roofline_svg(bench(device, [33], 1, 1), Roofs(100.0, 10.0), "a <title>")
    assert all(f"{way}, n = 33" in picture for way in WAYS)
    assert "a &lt;title&gt;" in picture


def test_what_was_tuned_is_not_tuned_again(device: Device, tmp_path: Path) -> None:
    asked: list[int] = []
    shape = Shape(8, 8, 8)
    found = tune_all(device, [shape], 0.0, tmp_path, step=asked.append)
    never = lambda count: pytest.fail("again")  # noqa: E731
    assert found == tune_all(device, [shape], 0.0, tmp_path, step=never)
    assert sum(asked) > 1
    assert [cache_path(tmp_path, device)] == list((tmp_path / "tuned").iterdir())


def test_a_bench_refuses_a_tuning_file_of_another_device(
    device_number: str, tmp_path: Path
) -> None:
    path = tmp_path / "phone.tuned"
    path.write_text(tuned_text(TunedFor("Mali-G78", "OpenCL 2.1", "r38p1"), []))
    said = CliRunner().invoke(kernels, ["bench", "--device", device_number, "--tuned", str(path)])
    assert isinstance(said.exception, BadFile)
    assert "was tuned for Mali-G78 with driver r38p1" in str(said.exception)
