"""Steps that are recorded in command buffers: the same bits, and when they are not used.

command_buffers.c adds the extension to PyPI's PoCL, well and badly.
"""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from kernels.build import HOST, ZIG
from kernels.pocl import LIBRARY_VARIABLE
from tests.kernels.dumps import CASE
from tests.kernels.opencl_runs import dump_tensors, run_records
from tests.kernels.pocl import shared_pocl
from workloads.catalogue import bind, lower, step_of
from workloads.lowering import lower_step

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no runner for it"),
]
WORKLOADS = {
    "mlp-4": {},
    "lenet": {"batch_size": 3},
    "alexnet": {"batch_size": 1},  # dropout
    "decoder-1m": {"batch_size": 1},  # AdamW
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with PoCL behind command_buffers.c."""
    environment = shared_pocl(tmp_path_factory)
    folder = tmp_path_factory.mktemp("driver")
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}
    words = [*ZIG, "cc", "-target", HOST.zig, "-D_GNU_SOURCE", "-shared", "-fPIC", "-O1", "-ldl"]
    source = Path(__file__).with_name("command_buffers.c")
    words += ["-o", str(folder / "driver.so"), str(source), environment[LIBRARY_VARIABLE]]
    subprocess.run(words, check=True, env={**os.environ, **caches})
    return {**environment, LIBRARY_VARIABLE: str(folder / "driver.so")}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("feed", ["resident", "mapped", "preloaded"])
def test_a_recorded_step_has_the_same_bits(
    driver: dict[str, str], tmp_path: Path, workload: str, feed: str
) -> None:
    case = bind(workload, WORKLOADS[workload])
    body = lower_step(step_of(case), reuse=True, backend="opencl").text(CASE, 2)
    words = ("--feed", feed, "--submit")
    good = {**driver, "COMMAND_BUFFERS": "good"}
    recorded = dump_tensors(body, tmp_path, good, 3, *words, "recorded")
    single = dump_tensors(body, tmp_path, good, 3, *words, "launch")
    assert len(recorded) == len(single) == 4
    for one, other in zip(recorded, single, strict=True):
        assert [tensor.tobytes() for tensor in one] == [tensor.tobytes() for tensor in other]


def plan_of(workload: str) -> bytes:
    return lower(bind(workload, {}, backend="opencl"), 2)


def test_a_phase_is_one_command_with_times_and_a_traced_step_is_not(
    driver: dict[str, str], tmp_path: Path
) -> None:
    good = {**driver, "COMMAND_BUFFERS": "good"}
    words = ("--steps", 60, "--trace-steps", 3, "--submit", "recorded")
    records = run_records(plan_of("mlp-4"), tmp_path, good, *words)
    device = next(record for record in records if record["line"] == "device")
    assert device["recorded"] == 3  # forward, backward, update
    traces = [record["ends_ns"] for record in records if record["line"] == "trace"]
    assert len(traces) == 3
    assert all(len(set(ends)) == len(ends) > 10 for ends in traces)
    windows = [record for record in records if record["line"] == "window"]
    assert all(min(window["phases_ns"]) > 0 < window["device_ns"][2] for window in windows)
    assert "note" not in records[-1]


@pytest.mark.parametrize(
    ("behaviour", "note"),
    [
        ("wrong", "the command buffers of the driver compute a wrong result"),
        ("untimed", "the timestamps of command buffers do not cover their kernels"),
        ("slow", "the command buffers of the driver take longer than launches"),
        ("create", "clCreateCommandBufferKHR failed with OpenCL error -1138"),
        ("record", "clCommandNDRangeKernelKHR failed with OpenCL error -1138"),
        ("finalize", "clFinalizeCommandBufferKHR failed with OpenCL error -1138"),
        ("enqueue", "clEnqueueCommandBufferKHR failed with OpenCL error -1138"),
    ],
)
def test_bad_command_buffers_are_not_used(
    driver: dict[str, str], tmp_path: Path, behaviour: str, note: str
) -> None:
    bad = {**driver, "COMMAND_BUFFERS": behaviour}
    records = run_records(plan_of("mlp-1"), tmp_path, bad, "--steps", 20)
    device = next(record for record in records if record["line"] == "device")
    assert (device["recorded"], records[-1]["line"]) == (0, "done")
    assert records[-1]["note"] == note


def test_a_driver_that_refuses_later_gets_single_launches(
    driver: dict[str, str], tmp_path: Path
) -> None:
    environment = {**driver, "COMMAND_BUFFERS": "later"}
    words = ("--steps", 60, "--submit", "recorded")
    records = run_records(plan_of("mlp-2"), tmp_path, environment, *words)
    words = ("--steps", 60, "--submit", "launch")
    single = run_records(plan_of("mlp-2"), tmp_path, environment, *words)
    done, other = records[-1], single[-1]
    assert done["note"] == "clEnqueueCommandBufferKHR failed with OpenCL error -1138"
    assert "note" not in other
    assert done["loss_last"] == other["loss_last"]


def test_a_driver_with_wrong_timestamps_can_be_used_without_them(
    driver: dict[str, str], tmp_path: Path
) -> None:
    environment = {**driver, "COMMAND_BUFFERS": "untimed"}
    words = ("--steps", 20, "--submit", "recorded")
    records = run_records(plan_of("mlp-1"), tmp_path, environment, *words)
    windows = [record for record in records if record["line"] == "window"]
    assert next(record for record in records if record["line"] == "device")["recorded"] == 3
    assert {(window["device_ns"], window["phases_ns"]) for window in windows} == {(None, None)}
