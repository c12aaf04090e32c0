"""The runner on an OpenCL device: the same results as on the CPU, and what it refuses."""

import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.collect.runner_output import RunnerOutput
from kernels.build import HERE
from kernels.reference import Array, parse, read_dump, relative_error
from kernels.runner_builds import runner_for
from tests.kernels.dumps import CASE, the_runner
from tests.kernels.plans import a_body, a_plan, perceptron
from tests.kernels.pocl import shared_pocl
from workloads.catalogue import bind, lower, step_of
from workloads.lowering import lower_step

Line = dict[str, Any]
KERNELS = HERE / "opencl"
TOLERANCE = 2e-4  # of the largest value of a tensor; both compute in single precision
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="there is no runner for this computer"
)


@pytest.fixture(scope="module")
def pocl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return shared_pocl(tmp_path_factory)


def start(
    words: list[object], environment: Mapping[str, str]
) -> tuple[int, list[Line], subprocess.CompletedProcess[str]]:
    done = subprocess.run(
        list(map(str, [the_runner(), *words])),
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done


def run(plan: bytes, folder: Path, environment: Mapping[str, str], *words: object) -> list[Line]:
    """Run a plan on the device and return its records."""
    (folder / "plan").write_bytes(plan)
    where = [folder / "plan", folder, "--kernels", KERNELS]
    start(["run", *where, *words], environment)
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def fault_of(plan: bytes, folder: Path, environment: Mapping[str, str], *words: object) -> Line:
    (folder / "plan").write_bytes(plan)
    status, records, _ = start(["run", folder / "plan", folder, *words], environment)
    assert records[-1]["line"] == "fault"
    return {"status": status, **records[-1]}


def on_opencl(plan: bytes) -> bytes:
    return plan.replace(b"\nbackend cpu\n", b"\nbackend opencl\n")


def moments(body_text: str, folder: Path, environment: Mapping[str, str]) -> list[list[Array]]:
    """Return every tensor before the first step and after each of two steps."""
    (folder / "plan").write_bytes(a_plan(body_text))
    words = ["dump", folder / "plan", folder, "--steps", 2, "--kernels", KERNELS]
    status, records, done = start(words, environment)
    assert status == 0, (records, done.stderr)
    return read_dump((folder / "dump.bin").read_bytes(), parse(body_text))


@pytest.mark.parametrize(
    ("workload", "given", "steps"),
    [
        ("mlp-1", {}, 2),
        ("mlp-2", {}, 2),
        ("mlp-3", {}, 2),
        ("mlp-4", {}, 2),
        ("sgemm", {"m": 37, "n": 53, "k": 29}, 2),
        ("lenet", {"batch_size": 3}, 2),
        # After its first update, rounding decides the position of a maximum.
        ("squeezenet", {"batch_size": 2, "image_size": 48}, 1),
    ],
)
def test_every_tensor_equals_that_of_the_cpu(
    pocl: dict[str, str], tmp_path: Path, workload: str, given: dict[str, int], steps: int
) -> None:
    body = lower_step(step_of(bind(workload, given)), reuse=False, backend="opencl")
    actual = moments(body.text(CASE, 2), tmp_path, pocl)
    body.backend = "cpu"
    expected = moments(body.text(CASE, 2), tmp_path, pocl)
    wrong = [
        (moment, tensor.name)
        for moment in range(1 + steps)
        for tensor in body.tensors
        if not relative_error(actual[moment][tensor.number], expected[moment][tensor.number])
        <= TOLERANCE
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("image", "window", "out"),
    [
        ((9, 11), "2 3 5 2 3 1 2", (4, 3)),  # groups, odd windows with strides of two and three
        ((4, 5), "1 1 1 1 1 0 0", (4, 5)),  # one pixel: a product over rows of any length
        ((1, 3), "1 1 1 1 1 0 0", (1, 3)),  # rows shorter than a vector
        ((7, 8), "1 1 1 2 3 0 0", (4, 3)),  # one pixel with a stride
        (
            (4, 5),
            "1 1 1 1 1 1 1",
            (6, 7),
        ),  # padding wider than the kernel: cropped in the backward pass
    ],
)
def test_windows_and_their_gradients_equal_those_of_the_cpu(
    pocl: dict[str, str], tmp_path: Path, image: tuple[int, int], window: str, out: tuple[int, int]
) -> None:
    groups, kh, kw, *_ = map(int, window.split())
    x, y = f"4 2 4 {image[0]} {image[1]}", f"4 2 6 {out[0]} {out[1]}"
    w = f"4 6 {4 // groups} {kh} {kw}"
    lists = (
        f"tensor 0 float input 0 {x} uniform 1\n"
        f"tensor 1 float parameter 0 {w} uniform 1\n"
        "tensor 2 float parameter 8192 1 6 uniform 1\n"
        f"tensor 3 float activation 0 {y} none\n"
        f"tensor 4 float activation 8192 {x} none\n"
        f"tensor 5 float gradient 0 {w} none\n"
        f"op forward 0 conv_forward 0 1 2 : 3 : {window} :\n"
        f"op backward 0 conv_input_gradient 1 3 : 4 : {window} :\n"
        f"op backward 0 conv_weight_gradient 0 3 : 5 : {window} :\n"
    )
    body = a_body(lists)
    expected = moments(body, tmp_path, pocl)[1]
    actual = moments(body.replace("backend cpu", "backend opencl"), tmp_path, pocl)[1]
    assert all(np.abs(values).max() > 0 for values in expected)
    off = [relative_error(one, other) for one, other in zip(actual, expected, strict=True)]
    assert max(off) < 1e-5


@pytest.mark.slow
def test_mobilenetv2_agrees_forward_and_learns(pocl: dict[str, str], tmp_path: Path) -> None:
    """Fifty norms over few samples amplify rounding errors, so only the loss is compared."""
    given = {"batch_size": 4, "image_size": 64}
    body = lower_step(step_of(bind("mobilenetv2", given)), reuse=False, backend="opencl")
    actual = moments(body.text(CASE, 2), tmp_path, pocl)
    body.backend = "cpu"
    expected = moments(body.text(CASE, 2), tmp_path, pocl)
    outputs = [tensor for tensor in body.tensors if tensor.name.endswith(".output")]
    assert len(outputs) > 100
    off = [relative_error(actual[1][each.number], expected[1][each.number]) for each in outputs]
    assert max(off) < 1e-2
    assert float(np.median(off)) < 1e-4
    assert body.loss is not None
    losses = [(moment[body.loss.number][0]) for moment in (actual[1], expected[1])]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_run_reports_build_copy_queue_and_compute_time(
    pocl: dict[str, str], tmp_path: Path
) -> None:
    plan = on_opencl(perceptron(evaluate=10))
    records = run(plan, tmp_path, pocl, "--warmup", 3, "--steps", 40, "--trace-steps", 2)
    output = RunnerOutput("case-1")
    output.feed((tmp_path / "out.jsonl").read_bytes())
    assert output.done is not None
    assert output.device is not None
    assert (
        output.done.steps,
        output.done.fallbacks,
        output.done.learned,
        output.done.moved,
    ) == (40, 0, 4, 4)
    assert output.done.loss_first is not None
    assert output.done.loss_last is not None
    assert output.done.loss_last < output.done.loss_first
    assert output.device.build_ns > 0
    assert [len(output.traces), len(output.evaluations)] == [2, 4]
    for window in output.windows:
        assert window.device_ns is not None
        assert window.phases_ns is not None
        assert min(window.device_ns) > 0
        assert sum(window.device_ns) <= window.ns
    assert [line["line"] for line in records[:3]] == ["hello", "memory", "device"]
    programs = [line for line in records if line["line"] == "program"]
    assert len(programs) == output.device.programs == len(output.programs)


def test_the_result_of_a_product_is_checked(pocl: dict[str, str], tmp_path: Path) -> None:
    plan = lower(bind("sgemm", {"m": 65, "n": 33, "k": 129}, backend="opencl"), 1)
    done = run(plan, tmp_path, pocl, "--steps", 3)[-1]
    assert (done["line"], done["steps"]) == ("done", 3)
    assert 0 <= done["answer_error"] < 1e-6


def test_missing_operations_are_refused_or_counted_with_their_copies(
    pocl: dict[str, str], tmp_path: Path
) -> None:
    lists = (
        "tensor 0 float input 0 2 8 6 uniform 1\n"
        "tensor 1 float parameter 0 1 6 uniform 1\n"
        "tensor 2 float activation 0 2 8 6 none\n"
        "tensor 3 float activation 512 2 8 6 none\n"
        "op forward 0 channel_bias 0 1 : 2 : :\n"  # the device does it in place only
        "op forward 0 relu_forward 2 : 3 : :\n"
    )
    plan = on_opencl(a_plan(a_body(lists)))
    fault = fault_of(plan, tmp_path, pocl, "--kernels", KERNELS)
    assert (fault["status"], fault["code"]) == (4, "unsupported")
    assert "cannot run 'channel_bias'" in fault["text"]
    records = run(plan, tmp_path, pocl, "--fallback", "cpu", "--steps", 5)
    windows = [line for line in records if line["line"] == "window"]
    assert (records[-1]["line"], records[-1]["fallbacks"]) == ("done", 1)
    assert all(window["device_ns"][0] > 0 for window in windows)


@pytest.mark.parametrize(
    ("change", "words", "status", "text"),
    [
        ({"FARM_OPENCL": "/nowhere"}, [], 4, "which is not an OpenCL library"),
        (
            {"PYOPENCL_HOME": "/nowhere", "OCL_ICD_VENDORS": "/nowhere"},
            [],
            4,
            "0 devices were found",
        ),
        ({}, ["--device", "9"], 4, "there is no OpenCL device 9"),
        ({}, ["--kernels", "/nowhere"], 3, "cannot read the kernels in /nowhere"),
        ({}, ["--fallback", "gpu"], 2, "use --fallback cpu"),
        ({}, ["--tuned", "/nowhere"], 4, "the tuning file is missing"),
    ],
)
def test_bad_input_gives_one_message(
    pocl: dict[str, str],
    tmp_path: Path,
    change: dict[str, str],
    words: list[str],
    status: int,
    text: str,
) -> None:
    fault = fault_of(on_opencl(perceptron()), tmp_path, {**pocl, **change}, *words)
    assert status == fault["status"]
    assert text in fault["text"]


def test_the_error_of_a_kernel_shows_the_build_log(pocl: dict[str, str], tmp_path: Path) -> None:
    for file in KERNELS.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "losses.cl").write_text("kernel void softmax_cross_entropy() { nonsense; }\n" * 9)
    fault = fault_of(on_opencl(perceptron()), tmp_path, pocl)
    assert (fault["status"], fault["code"]) == (11, "device")
    assert "losses.cl does not build" in fault["text"]
    assert "nonsense" in fault["text"]
    assert len(fault["text"]) < 400


def tuning(device: Line, entries: str) -> str:
    words = "\t".join(device[name] for name in ("device", "version", "driver"))
    return f"farmhand-tuned 2\ndevice {words}\nkernels 0\n{entries}"


def test_tuned_parameters_are_used_on_their_device_and_refused_on_another(
    pocl: dict[str, str], tmp_path: Path
) -> None:
    (device,) = start(["info"], pocl)[1][0]["opencl"]
    assert (device["type"], device["max_alloc_bytes"] > 0) == ("cpu", True)
    file = tmp_path / "tuned"
    entries = "sgemm 64 64 64 0 0 packed MR=4 NR=8 PANELS=2\nsgemm 999 9 9 0 0 vector\n"
    file.write_text(tuning(device, entries))
    plan = lower(bind("sgemm", {"m": 70, "n": 60, "k": 50}, backend="opencl"), 1)
    records = run(plan, tmp_path, pocl, "--tuned", file, "--steps", 2)
    assert [line["tuned"] for line in records if line["line"] == "device"] == [1]
    assert records[-1]["answer_error"] < 1e-6
    file.write_text(tuning({**device, "driver": "another"}, entries))
    fault = fault_of(plan, tmp_path, pocl, "--kernels", KERNELS, "--tuned", file)
    assert (fault["status"], fault["code"]) == (4, "unsupported")
    assert "another device or driver; tune again" in fault["text"]
    file.write_text(tuning(device, "sgemm 1 2 3 dance\n"))
    assert "line 4" in fault_of(plan, tmp_path, pocl, "--tuned", file)["text"]


SOME_VARIANTS = ["direct", "tiled_vector TILE=512", "packed MR=4 NR=8 PACK_A=0"]
OTHER_VARIANTS = [
    "dots",
    "packed PANELS=2",
    "tiled_vector",
    "vector",
    "direct",
]


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param([f"40 56 24 0 1 {variant}" for variant in SOME_VARIANTS], id="some"),
        pytest.param(
            [
                f"9 33 24 {transposes} {variant}"
                for transposes in ("0 0", "1 1")
                for variant in OTHER_VARIANTS
            ],
            id="all",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_tune_times_every_variant_and_skips_those_without_room(
    pocl: dict[str, str], tmp_path: Path, listed: list[str]
) -> None:
    (tmp_path / "candidates").write_text("".join(f"{line}\n" for line in listed))
    words = ["tune", tmp_path, "--kernels", KERNELS, "--launches", 2, "--rounds", 1]
    status, records, _ = start(words, pocl)
    assert (status, records[0]["line"], records[-1]["line"]) == (0, "device", "done")
    candidates = records[1:-1]
    assert list(range(len(listed))) == [line["number"] for line in candidates]
    for variant, line in zip(listed, candidates, strict=True):
        if "512" in variant:
            assert "local memory" in line["fault"] or "does not build" in line["fault"]
            continue
        assert line["error"] < 1e-6, variant
        assert min(line["wall_ns"], line["compute_ns"], line["launches"]) > 0


def test_a_static_build_refuses_an_opencl_plan(tmp_path: Path) -> None:
    """The text is in the binary; test_arm.py runs it."""
    fallback = runner_for("arm64-v8a").fallback
    assert fallback is not None
    assert b"this build is static and cannot load an OpenCL library" in fallback.content
