"""The options --kernel, --feed and --input: one list of names, and what each of them changes."""

import json
import platform
from math import inf
from pathlib import Path

import numpy as np
import pytest

from kernels.reference import Machine, parse, relative_error
from tests.kernels.dumps import CASE
from tests.kernels.opencl_runs import Record, dump_tensors, refusal, run_records, start_runner
from tests.kernels.plans import perceptron
from tests.kernels.pocl import shared_pocl
from tests.kernels.test_gradients import BATCH, MODELS
from workloads.catalogue import bind, lower, step_of
from workloads.lowering import lower_step
from workloads.run_options import FEEDS, INPUTS, KERNELS
from workloads.training import SGD, training_step

NAMED_KERNELS = [name for name in KERNELS if name != "tuned"]
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="there is no runner for this computer"
)


@pytest.fixture(scope="module")
def pocl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return shared_pocl(tmp_path_factory)


def on_opencl(plan: bytes) -> bytes:
    return plan.replace(b"\nbackend cpu\n", b"\nbackend opencl\n")


def test_workloads_and_runner_have_the_same_names() -> None:
    info = json.loads(start_runner(["info"], {"FARM_OPENCL": "/nowhere"}).stdout)
    assert tuple(info["kernels"]) == KERNELS
    assert tuple(info["feeds"]) == FEEDS
    assert tuple(info["inputs"]) == INPUTS


@pytest.mark.parametrize(
    "words",
    [
        ["--kernel", "fastest"],
        ["--kernel", "direct"],  # only the tuner has it
        ["--kernel", ""],
        ["--feed", "buffered"],
        ["--feed", "Copied"],
        ["--submit", "all"],
        ["--input", "disk"],
        ["--input"],
        ["--feed", "preloaded", "--input", "storage"],
    ],
)
def test_unknown_names_are_refused_before_anything_is_read(
    tmp_path: Path, words: list[str]
) -> None:
    where = ["run", tmp_path / "no plan", tmp_path / "no folder"]
    ended = start_runner([*where, *words], {})
    fault = json.loads(ended.stdout)
    assert (ended.returncode, fault["code"]) == (2, "usage")
    assert words[0] in fault["text"]


@pytest.mark.parametrize("words", [["--input", "storage"], ["--input", "memory"]])
def test_dump_takes_no_input(tmp_path: Path, words: list[str]) -> None:
    ended = start_runner(["dump", tmp_path / "no plan", tmp_path, *words], {})
    assert (ended.returncode, json.loads(ended.stdout)["code"]) == (2, "usage")


def test_a_plan_for_the_cpu_runs_with_the_options_of_opencl(tmp_path: Path) -> None:
    words = ["--kernel", "naive", "--feed", "copied", "--steps", 3]
    assert run_records(perceptron(), tmp_path, {}, *words)[-1]["line"] == "done"


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_product_is_exact_with_every_kernel(
    pocl: dict[str, str], tmp_path: Path, kernel: str
) -> None:
    plan = lower(bind("sgemm", {"m": 37, "n": 53, "k": 29}, backend="opencl"), 1)
    done = run_records(plan, tmp_path, pocl, "--kernel", kernel, "--steps", 3)[-1]
    assert (done["line"], done["steps"]) == ("done", 3)
    assert 0 <= done["answer_error"] < 1e-6


def check_kernel(pocl: dict[str, str], folder: Path, model: str, kernel: str) -> None:
    """Compare a training step with the reference in double precision."""
    step = training_step(MODELS[model], BATCH, SGD(0.1))
    body = lower_step(step, reuse=False, backend="opencl")
    text = body.text(CASE, 1)
    before, after = dump_tensors(text, folder, pocl, 1, "--kernel", kernel)
    reference = Machine(parse(text), before)
    reference.step(after)
    errors = {t.name: relative_error(after[t.number], reference[t.number]) for t in body.tensors}
    assert {name: error for name, error in errors.items() if not error < 2e-5} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", NAMED_KERNELS)
@pytest.mark.parametrize(
    "model", ["linear wide", "lstm wide", "lstm on lstm", "attention, causal", "attention, longer"]
)
def test_every_product_is_exact_with_every_kernel(
    pocl: dict[str, str], tmp_path: Path, model: str, kernel: str
) -> None:
    check_kernel(pocl, tmp_path, model, kernel)


def test_a_kernel_that_the_device_cannot_run_is_unsupported(
    pocl: dict[str, str], tmp_path: Path
) -> None:
    small_groups = {**pocl, "POCL_MAX_WORK_GROUP_SIZE": "64"}
    plan = lower(bind("sgemm", {"m": 32, "n": 32, "k": 32}, backend="opencl"), 1)
    words = ["--kernel", "tiled", "--kernels", Path("kernels/opencl").resolve()]
    status, code, text = refusal(plan, tmp_path, small_groups, *words)
    assert (status, code) == (4, "unsupported")
    assert "sgemm_tiled needs work groups of 256 items" in text
    assert "choose another kernel" in text


def check_feeds(body: str, folder: Path, pocl: dict[str, str]) -> None:
    """Compare every tensor of every step, bit by bit."""
    expected = dump_tensors(body, folder, pocl, 5)
    for feed in FEEDS:
        actual = dump_tensors(body, folder, pocl, 5, "--feed", feed)
        assert all(
            np.array_equal(one, other)
            for moment, same in zip(actual, expected, strict=True)
            for one, other in zip(moment, same, strict=True)
        ), feed


def test_every_feed_computes_the_same_bits(pocl: dict[str, str], tmp_path: Path) -> None:
    """Images of bytes that are scaled, labels, and batches that wrap around the data set."""
    body = perceptron(samples=30).decode().partition("farmhand-body")[2]
    images = body.replace("float 30 1 16 rows 4 |", "byte 30 3 1 4 4 image 4 |")
    scaled = images.replace("load : 0 : 0 0 8 : 1 0", "load : 0 : 0 0 8 : 0.0078 -1")
    assert body != images != scaled
    check_feeds("farmhand-body" + scaled.replace("backend cpu", "backend opencl"), tmp_path, pocl)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["lenet", "char-lstm", "densenet40"])
def test_every_feed_computes_the_same_bits_for_models(
    pocl: dict[str, str], tmp_path: Path, workload: str
) -> None:
    """Memory is reused between operations, so that a copy too many would destroy a value."""
    body = lower_step(step_of(bind(workload, {"batch_size": 3})), backend="opencl")
    check_feeds(body.text(CASE, 2), tmp_path, pocl)


def copy_ns(records: list[Record]) -> float:
    """Return the time per step in which the device copied: that of the fastest window."""
    windows = [record for record in records if record["line"] == "window"]
    return min(float(window["device_ns"][0] / window["n"]) for window in windows)


def test_feeds_learn_alike_and_differ_in_their_copies(pocl: dict[str, str], tmp_path: Path) -> None:
    plan = on_opencl(perceptron(evaluate=10, samples=30))  # 30 samples in batches of 8
    copies = dict.fromkeys(FEEDS, inf)
    for _ in range(20):  # other work on this computer does not reach the shortest of many copies
        results = {}
        for feed in FEEDS:
            records = run_records(plan, tmp_path, pocl, "--steps", 40, "--feed", feed)
            done = records[-1]
            assert done["line"] == "done", done
            assert done["loss_last"] < done["loss_first"]
            accuracies = [r["accuracy"] for r in records if r["line"] == "evaluation"]
            assert len(accuracies) == 4
            results[feed] = (done["loss_first"], done["loss_last"], accuracies)
            copies[feed] = min(copies[feed], copy_ns(records))
        assert len({str(result) for result in results.values()}) == 1
        if copies["copied"] > 2 * copies["resident"] > 2 * copies["preloaded"]:
            return
    pytest.fail(f"the feeds copy alike: {copies}")


def test_a_fallback_works_with_every_feed(pocl: dict[str, str], tmp_path: Path) -> None:
    """The device adds a bias per channel in place only, so the CPU has to."""
    lists = perceptron().replace(
        b"op forward 1 relu_forward 10 : 10 : :",
        b"op forward 1 channel_bias 10 3 : 15 : :\nop forward 1 relu_forward 15 : 10 : :",
    )
    results = set()
    for feed in FEEDS:
        words = ["--steps", 10, "--feed", feed, "--fallback", "cpu"]
        done = run_records(on_opencl(lists), tmp_path, pocl, *words)[-1]
        assert (done["line"], done["fallbacks"]) == ("done", 1), done
        results.add((done["loss_first"], done["loss_last"]))
    assert len(results) == 1
