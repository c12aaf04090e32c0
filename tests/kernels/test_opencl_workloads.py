"""Every workload of the catalogue on every backend: what runs, and why something would not.

The small test runs the operations that only some models have; the slow one runs all workloads, at
sizes for a computer. At its default size, a workload may be refused for a reason that is not the
backend's: the memory of the device, found before the first step ("out_of_memory").
"""

import platform
import re
from functools import cache
from pathlib import Path

import pytest

from kernels.build import HERE
from kernels.reference import Machine, parse, relative_error
from tests.kernels.dumps import CASE
from tests.kernels.opencl_runs import dump_tensors, run_records
from tests.kernels.plans import perceptron
from tests.kernels.pocl import shared_pocl
from tests.kernels.test_gradients import BATCH, MODELS
from workloads.catalogue import CATALOGUE, bind, lower, step_of
from workloads.lowering import lower_step
from workloads.step_cost import Backend
from workloads.training import SGD, training_step

BACKENDS: tuple[Backend, ...] = ("cpu", "opencl")
WORKLOADS = [name for name, workload in CATALOGUE.items() if workload.on_phone]
# A workload that a backend refuses at any size, and the reason. There is none.
REFUSED: dict[tuple[str, Backend], str] = {}
SMALL = {"batch_size": 2, "image_size": 32, "text_length": 8, "m": 64, "n": 64, "k": 64}
SMALL |= {"micro_batches": 2, "lora_rank": 4, "lora_mlp": 1}
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="there is no runner for this computer"
)


@pytest.fixture(scope="module")
def pocl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return shared_pocl(tmp_path_factory)


def small_parameters(name: str) -> dict[str, int]:
    """Return the smallest sizes that a workload allows, but not below SMALL."""
    return {
        parameter.name: max(parameter.min, SMALL[parameter.name])
        for parameter in CATALOGUE[name].parameters
    }


@cache
def operations(pattern: str, folder: str) -> frozenset[str]:
    """Return the names that the tables of some C files list."""
    files = (HERE / "engine" / folder).glob("*.c")
    return frozenset(name for file in files for name in re.findall(pattern, file.read_text()))


def test_every_operation_has_a_launch_function() -> None:
    launched = operations(r'(?m)^    \{"(\w+)", \w+, \w+\},$', "opencl")
    kinds = {op.kind for model in MODELS.values() for op in body_of(model).ops}
    assert kinds - launched == set()
    assert len(kinds) > 60


def body_of(model):  # type: ignore[no-untyped-def]
    return lower_step(training_step(model, BATCH, SGD(0.1)), reuse=False, backend="opencl")


def test_every_workload_consists_of_operations_of_the_device() -> None:
    launched = operations(r'(?m)^    \{"(\w+)", \w+, \w+\},$', "opencl")
    missing = {
        name: sorted(kinds - launched)
        for name in WORKLOADS
        if (kinds := {op.kind for op in lower_step(step_of(bind(name, {}))).ops}) - launched
    }
    assert missing == {name: missing[name] for name, backend in REFUSED if backend == "opencl"}


def check_model(pocl: dict[str, str], folder: Path, name: str) -> None:
    """Compare every tensor of a training step with the reference in double precision."""
    body = body_of(MODELS[name])
    text = body.text(CASE, 1)
    before, after = dump_tensors(text, folder, pocl, 1)
    reference = Machine(parse(text), before)
    reference.step(after)
    errors = {t.name: relative_error(after[t.number], reference[t.number]) for t in body.tensors}
    assert {tensor: error for tensor, error in errors.items() if not error < 2e-5} == {}


@pytest.mark.slow
def test_an_lstm_equals_the_reference(pocl: dict[str, str], tmp_path: Path) -> None:
    check_model(pocl, tmp_path, "lstm on lstm")


def test_a_causal_attention_equals_the_reference(pocl: dict[str, str], tmp_path: Path) -> None:
    check_model(pocl, tmp_path, "attention, causal")


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_that_are_not_finite_end_a_run(
    pocl: dict[str, str], tmp_path: Path, backend: Backend
) -> None:
    """An activation or a loss that turned NaN into a number would hide that a model diverged."""
    text = perceptron(rate=1e38).replace(b"backend cpu", b"backend " + backend.encode())
    fault = run_records(text, tmp_path, pocl, "--steps", 10)[-1]
    assert (fault["line"], fault["code"]) == ("fault", "wrong_answer")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_layer_equals_the_reference(pocl: dict[str, str], tmp_path: Path, name: str) -> None:
    check_model(pocl, tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_runs_on_every_backend(
    pocl: dict[str, str], tmp_path: Path, name: str, backend: Backend
) -> None:
    plan = lower(bind(name, small_parameters(name), backend=backend), 2)
    # One step: some diverge in their second one, as they did in the study.
    last = run_records(plan, tmp_path, pocl, "--warmup", 0, "--steps", 1)[-1]
    if (name, backend) in REFUSED:
        assert (last["line"], last["code"]) == ("fault", "unsupported")
        return
    assert (last["line"], last.get("fallbacks")) == ("done", 0), last


@pytest.mark.slow
@pytest.mark.parametrize("name", ["char-cnn", "char-lstm", "dcgan", "dqn", "bert"])
def test_the_first_losses_equal_those_of_the_cpu(
    pocl: dict[str, str], tmp_path: Path, name: str
) -> None:
    losses = []
    for backend in BACKENDS:
        plan = lower(bind(name, small_parameters(name), backend=backend), 2)
        done = run_records(plan, tmp_path, pocl, "--warmup", 0, "--steps", 2)[-1]
        losses.append([done["loss_first"], done["loss_last"]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
