"""--input storage: batches are read from a file in every step, and nothing else changes."""

import json
import os
import platform
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.collect.runner_output import RunnerOutput
from tests.kernels.dumps import the_runner
from tests.kernels.opencl_runs import refusal, run_records
from tests.kernels.plans import CASE, a_body, a_plan, perceptron
from tests.kernels.pocl import shared_pocl
from tests.kernels.test_data_sets import a_file
from workloads.catalogue import bind, lower

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="there is no runner for this computer"
)


def results_of(plan: bytes, folder: Path, *words: object) -> tuple[object, ...]:
    """Return what a run learned, and its accuracies; nine digits of a loss show every bit."""
    records = run_records(plan, folder, {}, "--steps", 25, *words)
    done = records[-1]
    assert done["line"] == "done", done
    assert not (folder / "dataset").exists()
    accuracies = [record["accuracy"] for record in records if record["line"] == "evaluation"]
    return (done["loss_first"], done["loss_last"], done["moved"], *accuracies)


@pytest.mark.parametrize(
    ("workload", "given"),
    [
        ("lenet", {"batch_size": 5}),  # bytes
        ("char-lstm", {"batch_size": 3, "text_length": 7}),  # indices
        ("dcgan", {"batch_size": 1}),  # bytes, floats, and a constant
    ],
)
def test_a_model_learns_the_same_from_storage(
    tmp_path: Path, workload: str, given: dict[str, int]
) -> None:
    plan = lower(bind(workload, given), 2)
    words = ("--warmup", 1, "--max-seconds", 2)
    if workload == "dcgan":  # a step takes long
        words = ("--warmup", 1, "--steps", 2)
    expected = results_of(plan, tmp_path, *words)
    assert results_of(plan, tmp_path, *words, "--input", "storage") == expected


def test_batches_wrap_around_and_evaluations_read_storage_too(tmp_path: Path) -> None:
    for samples in (5, 30, 33):  # fewer than a batch, and not a multiple of 8
        plan = perceptron(evaluate=5, samples=samples)
        expected = results_of(plan, tmp_path)
        assert results_of(plan, tmp_path, "--input", "storage") == expected


def test_the_record_says_what_is_read(tmp_path: Path) -> None:
    records = run_records(perceptron(), tmp_path, {}, "--steps", 20, "--input", "storage")
    assert [record["line"] for record in records[:4]] == ["hello", "memory", "input", "window"]
    direct = records[2].pop("direct")
    assert isinstance(direct, bool)
    assert records[2] == {"line": "input", "source": "storage", "batch_bytes": 8 * (16 * 4 + 4)}
    assert records[1]["dataset"] == 8 * 16 * 4 + 2 * 4096  # one batch and two blocks
    in_storage = sum(r["phases_ns"][0] for r in records if r["line"] == "window")
    records = run_records(perceptron(), tmp_path, {}, "--steps", 20)
    assert "input" not in {record["line"] for record in records}
    assert in_storage > sum(r["phases_ns"][0] for r in records if r["line"] == "window")


def test_the_agent_understands_the_record(tmp_path: Path) -> None:
    run_records(perceptron(), tmp_path, {}, "--steps", 20, "--input", "storage")
    output = RunnerOutput(CASE)
    output.feed((tmp_path / "out.jsonl").read_bytes())
    assert output.done is not None
    assert output.input is not None
    assert (output.input.source, output.input.batch_bytes) == ("storage", 544)


def file_plan(samples: int) -> tuple[bytes, bytes]:
    """Return a plan that learns from a data file and a generated column, and the file."""
    generator = np.random.default_rng(3)
    columns = (
        ("float", generator.standard_normal((samples, 3)).astype("<f4")),  # shifts what follows
        ("float", generator.standard_normal((samples, 16)).astype("<f4")),
    )
    body = perceptron(samples=samples).decode().partition("farmhand-body")[2]
    body = body.replace("1 16 rows 4 |", "1 16 file 1 0 |")
    return a_plan("farmhand-body" + body), a_file(*columns)


@pytest.mark.parametrize("samples", [11, 300])
def test_a_data_file_is_read_where_it_is(tmp_path: Path, samples: int) -> None:
    plan, content = file_plan(samples)
    data = tmp_path / "data"
    data.write_bytes(content)
    expected = results_of(plan, tmp_path, "--data", data)
    assert results_of(plan, tmp_path, "--data", data, "--input", "storage") == expected
    assert data.read_bytes() == content


def test_indices_of_a_data_file_are_checked_before_the_first_step(tmp_path: Path) -> None:
    lists = (
        "stream 0 index 20000 0 file 0 4 |\n"
        "tensor 0 index input 0 1 8 none\n"
        "tensor 1 float activation 0 1 1 zero\n"
        "op load -1 load : 0 : 0 0 8 : 1 0\n"
        "op forward 0 copy_scaled 1 : 1 : : 1\n"
    )
    labels = np.zeros(20000, "<i4")
    labels[19999] = 4
    (tmp_path / "data").write_bytes(a_file(("index", labels)))
    words = ["--data", tmp_path / "data", "--input", "storage"]
    status, code, text = refusal(a_plan(a_body(lists)), tmp_path, {}, *words)
    assert (status, code) == (8, "io")
    assert "has an index outside the limit of the plan" in text


def test_a_full_disk_is_a_fault_of_the_storage(tmp_path: Path) -> None:
    (tmp_path / "dataset").symlink_to("/dev/full")
    status, code, text = refusal(perceptron(), tmp_path, {}, "--input", "storage")
    assert (status, code) == (8, "io")
    assert "No space left on device; free space on the phone" in text
    last = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[-1])
    assert (last["line"], last["code"]) == ("fault", "io")
    assert not os.path.lexists(tmp_path / "dataset")


def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    status, code, _ = refusal(perceptron(), tmp_path, {}, "--input", "storage")
    assert (status, code) == (8, "io")


def start_long_run(folder: Path, *words: object) -> "subprocess.Popen[str]":
    """Start a run that lasts a minute, and wait for its first window."""
    command = [the_runner(), "run", folder / "plan", folder, "--seconds", 60, "--input", "storage"]
    process = subprocess.Popen(
        list(map(str, [*command, *words])), stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        out = folder / "out.jsonl"
        if out.exists() and '"window"' in out.read_text():
            return process
        time.sleep(0.02)
    process.kill()
    pytest.fail("the run wrote no window")


def last_record(process: "subprocess.Popen[str]") -> tuple[int, dict[str, Any]]:
    """Wait for the end of a run; return its status and its last record."""
    printed, _ = process.communicate(timeout=300)
    return process.returncode, json.loads(printed.splitlines()[-1])


def test_a_file_that_shrinks_ends_the_run_with_its_step(tmp_path: Path) -> None:
    plan, content = file_plan(300)
    (tmp_path / "plan").write_bytes(plan)
    (tmp_path / "data").write_bytes(content)
    process = start_long_run(tmp_path, "--data", tmp_path / "data")
    os.truncate(tmp_path / "data", 4096)
    status, fault = last_record(process)
    assert (status, fault["code"]) == (8, "io")
    assert "cannot read the data set" in fault["text"]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 7), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_run_that_is_stopped_or_killed_leaves_no_data_set(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    (tmp_path / "plan").write_bytes(perceptron())
    process = start_long_run(tmp_path)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == status
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "plan"]


@pytest.mark.parametrize("feed", ["copied", "mapped", "resident"])
def test_a_device_is_fed_from_storage(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, feed: str
) -> None:
    pocl = shared_pocl(tmp_path_factory)
    plan = perceptron().replace(b"\nbackend cpu\n", b"\nbackend opencl\n")
    words = ["--steps", 20, "--feed", feed]
    expected = run_records(plan, tmp_path, pocl, *words)[-1]
    records = run_records(plan, tmp_path, pocl, *words, "--input", "storage")
    assert [r["line"] for r in records[:4]] == ["hello", "memory", "input", "device"]
    assert records[-1]["line"] == "done", records[-1]
    assert records[-1]["loss_last"] == expected["loss_last"]
