"""The same kernel everywhere: in `farm kernels bench`, in a run, and as a virtual phone says it."""

import json
import platform
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.collect.runner_output import RunnerOutput
from agent.virtual.files.file_nodes import directory_node
from agent.virtual.files.file_tree import FileTree
from agent.virtual.physics.step_timing import SimulatedOp
from agent.virtual.runner.product_programs import PRODUCT_KERNELS, product_programs
from kernels.harness.cli import kernels
from kernels.runner_builds import kernel_sources
from tests.kernels.opencl_runs import run_records
from tests.kernels.pocl import shared_pocl
from workloads.catalogue import bind, lower
from workloads.run_options import KERNELS

N = 16
MEMBERS = ("files", "options", "digest")
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="there is no runner for this computer"
)


@pytest.fixture(scope="module")
def pocl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return shared_pocl(tmp_path_factory)


@pytest.fixture(scope="module")
def benched(device_number: str) -> dict[str, list[str]]:
    """Return what `farm kernels bench` builds each variant from."""
    words = ["bench", "--sizes", str(N), "--rounds", "1", "--json", "--device", device_number]
    result = CliRunner().invoke(kernels, words)
    (row,) = json.loads(result.stdout)["rows"]
    return {name: [times[member] for member in MEMBERS] for name, times in row["variants"].items()}


def virtual_program(variant: str) -> list[str]:
    """Return what a virtual phone with the same files says."""
    tree = FileTree(lambda: 0.0, lambda: None, lambda *_: None, 1 << 30)
    tree.add_node("/data", directory_node())
    for name, content in kernel_sources().files.items():
        tree.write(f"/data/kernels/{name}", content)
    product = SimulatedOp("sgemm", "matmul", 1.0, 1.0, 1.0)
    records = [[f"{N}"] * 3 + ["0", "0", variant]]
    (program,) = product_programs(tree, "/data/kernels", 0, [product], "tuned", records)
    return [str(program[name]) for name in MEMBERS]


def test_every_variant_is_the_same_program_on_a_virtual_phone(
    benched: dict[str, list[str]],
) -> None:
    assert benched == {name: virtual_program(name) for name in PRODUCT_KERNELS}


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "tuned"])
def test_a_run_builds_the_program_that_the_bench_times(
    benched: dict[str, list[str]], pocl: dict[str, str], tmp_path: Path, kernel: str
) -> None:
    case = bind("sgemm-square", {"n": N}, backend="opencl")
    run_records(lower(case, 1), tmp_path, pocl, "--kernel", kernel, "--steps", 2)
    output = RunnerOutput(case.digest)
    output.feed((tmp_path / "out.jsonl").read_bytes())
    (program,) = output.programs
    assert [program.files, program.options, program.digest] == benched[kernel]
