"""`farm kernels` on PoCL: every kernel is right and is timed by the runner; refusals with one
sentence.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kernels.autotuner import MatmulShape, OpenCLIdentity, tuned_text
from kernels.harness.cli import kernels, read_sizes
from kernels.harness.kernel_check import check_products, check_training, covering_workloads
from kernels.harness.local_runner import open_runner
from kernels.harness.matmul_bench import TUNER_ONLY, VARIANTS
from kernels.harness.opencl_device import Device, choose_device
from kernels.reference import KINDS
from workloads.catalogue import bind, lower
from workloads.protocol.faults import BadFile, InvalidRequest
from workloads.run_options import FEEDS, KERNELS

ROOT = Path(__file__).resolve().parents[2]


def invoke(device_number: str, *words: str) -> dict[str, object]:
    """Run a command of `farm kernels`, and return its JSON."""
    result = CliRunner().invoke(kernels, [*words, "--json", "--device", device_number])
    assert result.exit_code == 0, result.output
    document: dict[str, object] = json.loads(result.stdout)
    return document


def test_pocl_needs_no_linker_of_the_system(tmp_path: Path, device_number: str) -> None:
    words = [sys.executable, "-m", "orchestrator", "kernels", "bench", "--sizes", "8"]
    words += ["--device", device_number]
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(words, env=nothing, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not list(tmp_path.iterdir())


def test_the_harness_names_what_the_runner_has() -> None:
    assert [name for name in VARIANTS if name not in TUNER_ONLY] == [*KERNELS[:-1]]
    assert KERNELS[-1] == "tuned"


@pytest.mark.parametrize("shape", [MatmulShape(33, 17, 21), MatmulShape(7, 61, 40, True, True)])
def test_every_variant_multiplies_correctly(device: Device, shape: MatmulShape) -> None:
    with open_runner(device.facts.identity) as runner:
        checked, records = check_products(runner, shape)
    assert [one for one in checked if not one.passed] == []
    assert len(checked) == len(records) == len(VARIANTS)


@pytest.mark.slow
def test_every_kernel_agrees_with_its_reference(device_number: str) -> None:
    report = invoke(device_number, "check", "--random-shapes", "12")
    assert report["wrong"] == []
    assert isinstance(report["worst_error"], dict)
    assert {f"sgemm {name}" for name in VARIANTS} <= set(report["worst_error"])
    assert isinstance(report["programs"], list)
    assert all(kernel["max_group"] > 0 for one in report["programs"] for kernel in one["kernels"])


def test_the_checked_steps_have_every_operation() -> None:
    kinds = {op.kind for body in covering_workloads().values() for op in body.ops}
    assert kinds - set(KINDS) == {"load"}
    assert len(kinds) > 60


def test_a_wrong_result_is_found(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    body = covering_workloads()["bottleneck"]
    with open_runner(device.facts.identity) as runner:
        checked, programs = check_training(runner, "bottleneck", body)
        assert [one for one in checked if not one.passed] == []
        assert programs
        monkeypatch.setitem(
            KINDS, "conv_forward", lambda call: (np.zeros(call.shapes[0], np.float64),)
        )
        wrong, _ = check_training(runner, "bottleneck", body)
    assert {one.name for one in wrong if not one.passed} == {"conv_forward"}


def test_the_error_of_a_kernel_shows_the_build_log(device: Device) -> None:
    with pytest.raises(InvalidRequest, match=r"broken\.cl does not build for .*\n(?s:.)*nonsense"):
        device.inspect("kernel void broken() { nonsense; }", "broken.cl")


def test_a_build_log_is_bounded(device: Device) -> None:
    wrong = "".join(f"nonsense_{at};" for at in range(2000))
    with pytest.raises(InvalidRequest) as refused:
        device.inspect(f"kernel void broken() {{ {wrong} }}", "broken.cl")
    assert len(str(refused.value)) < 3000


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


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidRequest, match=r"no OpenCL device matches 'adreno'; choose one of 0: "
    ):
        choose_device("adreno")
    with pytest.raises(InvalidRequest, match="no OpenCL device matches '99'"):
        choose_device("99")


def test_a_device_that_the_runner_does_not_find_is_refused() -> None:
    unknown = OpenCLIdentity("Mali-G78", "OpenCL 2.1", "r38p1")
    with (
        pytest.raises(InvalidRequest, match="does not find Mali-G78 with driver r38p1"),
        open_runner(unknown),
    ):
        pytest.fail("a runner was opened")


def test_a_failed_run_gives_the_reason_of_the_runner() -> None:
    plan = lower(bind("sgemm-square", {"n": 8}), 1)
    with (
        open_runner() as runner,
        pytest.raises(InvalidRequest, match="the runner of this computer failed: .*feed"),
    ):
        runner.run(plan, 2, "--feed", "nothing")


@pytest.mark.parametrize("text", ["", "1x", "0,4", "8:4:1", "9000"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--sizes"):
        read_sizes(text)


def test_a_bench_prints_the_speeds_and_the_kernels(device_number: str) -> None:
    report = invoke(device_number, "bench", "--sizes", "33", "--rounds", "1", "--launches", "2")
    assert isinstance(report["rows"], list)
    (row,) = report["rows"]
    assert (row["n"], set(row["variants"])) == (33, set(VARIANTS))
    assert all(times["gflops"] > 0 for times in row["variants"].values())
    assert row["variants"]["tiled_vector"]["options"] == "-w -DTA=0 -DTB=0 -DTILE=16"


def test_a_bench_refuses_a_tuning_file_of_another_device(
    device_number: str, tmp_path: Path
) -> None:
    path = tmp_path / "phone.tuned"
    path.write_text(tuned_text(OpenCLIdentity("Mali-G78", "OpenCL 2.1", "r38p1"), []))
    result = CliRunner().invoke(kernels, ["bench", "--device", device_number, "--tuned", str(path)])
    assert isinstance(result.exception, BadFile)
    assert "was tuned for Mali-G78 with driver r38p1" in str(result.exception)


def test_a_cached_tuning_is_not_repeated(
    device_number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["tune", "--sizes", "8", "--transposes", "NN", "--for", "1s"]
    found = invoke(device_number, *words)
    (cache,) = (tmp_path / "farmhand" / "tuned").iterdir()
    stored = cache.read_text()
    assert invoke(device_number, *words) == found
    assert cache.read_text() == stored


def test_training_is_reported_as_json_with_its_source(device_number: str) -> None:
    report = invoke(device_number, "train", "--models", "mlp-1,lenet", "--rounds", "2")
    assert report["source"] == "host"
    assert isinstance(report["models"], list)
    perceptron, network = report["models"]
    assert (perceptron["name"], perceptron["passed"]) == ("mlp-1", True)
    assert set(perceptron["feeds"]) == set(FEEDS)
    assert (network["name"], network["passed"]) == ("lenet", True)
    fastest = network["feeds"]["preloaded"]
    assert set(fastest["phases_s"]) == {"load", "forward", "backward", "update"}
    assert sum(fastest["phases_s"].values()) == pytest.approx(fastest["step_s"], rel=0.05)
    assert fastest["step_s"] == min(fastest["turns_s"])
    assert fastest["programs"]
    assert "does not predict a phone's GPU" in str(report["note"])


def test_an_unknown_model_is_refused(device_number: str) -> None:
    result = CliRunner().invoke(kernels, ["train", "--models", "mlp-9", "--device", device_number])
    assert "'mlp-9' is not a model" in str(result.exception)
