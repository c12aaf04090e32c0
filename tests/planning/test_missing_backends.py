"""A phone whose GPU cannot compute gets no cell with backend: opencl, and a reason in the plan."""

import pytest

from orchestrator.app.twin_estimate import to_request
from orchestrator.planning.expand import SkipCode, expand_sweep
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.analysis.builders import phone
from workloads.protocol.phone_facts import OpenCLFacts

ADRENO = OpenCLFacts(
    name="Adreno",
    version="OpenCL 2.0",
    driver="1",
    units=2,
    memory_mb=2757,
    max_alloc_mb=1024,
)
ABLE = phone("able", backends=("cpu", "opencl"), opencl=ADRENO)
CPU_ONLY = phone("cpu-only", backends=("cpu",))
UNKNOWN = phone("unknown")  # announced by an agent that does not report backends
TEXT = """\
farm: 1
name: both
workload: mlp-4
phones: {phones}
matrix: {{backend: {backends}}}
conditions: {{cores: all4, freq: free, start_temp_max_c: any}}
repeat: 1
"""


def sweep(backends: str = "[cpu, opencl]", phones: str = "all") -> str:
    return TEXT.format(backends=backends, phones=phones)


def test_cells_for_the_gpu_are_skipped_where_it_cannot_compute() -> None:
    expansion = expand_sweep(read_sweep(sweep()), [ABLE, CPU_ONLY, UNKNOWN])
    trials = {(trial.phone, trial.case.backend) for trial in expansion.trials}
    assert trials == {
        ("able", "cpu"),
        ("able", "opencl"),
        ("cpu-only", "cpu"),
        ("unknown", "cpu"),
        ("unknown", "opencl"),
    }
    (skipped,) = expansion.skipped
    assert (skipped.phone, skipped.code) == ("cpu-only", SkipCode.NO_BACKEND)
    assert skipped.reason == "its runner found no OpenCL device; use backend: cpu"
    assert len(skipped.cells) == 1


def test_a_phone_without_any_possible_cell_is_skipped_once() -> None:
    expansion = expand_sweep(read_sweep(sweep("[opencl]")), [ABLE, CPU_ONLY])
    assert expansion.phones == ("able",)
    (skipped,) = expansion.skipped
    assert (skipped.code, skipped.cells) == (SkipCode.NO_BACKEND, ())


def test_a_selector_can_ask_for_opencl() -> None:
    expansion = expand_sweep(read_sweep(sweep(phones="{select: opencl}")), [ABLE, CPU_ONLY])
    assert expansion.phones == ("able",)
    (skipped,) = expansion.skipped
    assert skipped.code is SkipCode.NOT_SELECTED


@pytest.mark.parametrize("backend", ["cpu", "opencl"])
def test_a_twin_learns_which_processor_computes(backend: str) -> None:
    expansion = expand_sweep(read_sweep(sweep(f"[{backend}]")), [ABLE])
    request = to_request(expansion.trials[0])
    assert (request["backend"], "feed" in request) == (backend, False)
