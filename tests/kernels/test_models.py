"""Whole training steps: losses and parameters equal the reference, memory the prediction."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from kernels.plan_memory import memory_of_plan
from kernels.reference import relative_error
from tests.kernels.dumps import CASE, Dumped, dump, run_plan
from tests.kernels.plans import a_plan
from workloads.catalogue import bind, lower, step_of
from workloads.lowering import lower_step, step_memory
from workloads.models.dcgan import dcgan_step as dcgan
from workloads.models.densenet import densenet
from workloads.models.dqn import dqn
from workloads.models.lenet import emdl_lenet
from workloads.models.mobilenetv2 import mobilenetv2
from workloads.models.perceptrons import perceptron
from workloads.models.resnet import resnet20
from workloads.models.squeezenet import squeezenet
from workloads.models.text_models import char_cnn, char_lstm
from workloads.protocol.memory_outcome import ENGINE_OVERHEAD_MB
from workloads.step_cost import Step
from workloads.training import SGD, Adam, EvaluationSpec, TrainingPass, TrainingStep, training_step

STEPS = 3
MOMENTUM = SGD(0.01, momentum=0.9, weight_decay=5e-4)
SMALL: dict[str, Callable[[], Step]] = {
    "mlp-4": lambda: training_step(perceptron("mlp-4"), 8, SGD(0.05)),
    "emdl-lenet": lambda: training_step(emdl_lenet(), 3, MOMENTUM),
    "resnet20": lambda: training_step(resnet20(8), 4, MOMENTUM),
    "char-lstm": lambda: training_step(char_lstm(6), 3, Adam()),
}
LARGER: dict[str, Callable[[], Step]] = {
    "dcgan": lambda: dcgan(3),
    "dqn": lambda: training_step(dqn(), 2, Adam()),
    "densenet40": lambda: training_step(densenet(40, 16), 2, MOMENTUM),
    "mobilenetv2": lambda: training_step(mobilenetv2(64), 4, SGD(1e-3)),
    "squeezenet": lambda: training_step(squeezenet(64), 2, MOMENTUM),
    "char-cnn": lambda: training_step(char_cnn(8), 2, Adam()),
}


@pytest.mark.parametrize("name", SMALL)
def test_three_steps_equal_the_reference(name: str) -> None:
    dumped = Dumped.of(SMALL[name](), threads=2, steps=STEPS)
    machine = dumped.reference()
    for moment in dumped.moments[1:]:
        machine.step(moment)
        loss = dumped.plan.loss
        assert moment[loss][0] == pytest.approx(machine[loss][0], rel=1e-4)
    for number, tensor in enumerate(dumped.plan.tensors):
        if tensor.arena in ("parameter", "state"):
            error = relative_error(dumped.moments[-1][number], machine[number])
            assert error < 2e-3, f"{dumped.name(number)} is off by {error:.1e}"


@pytest.mark.parametrize(
    "name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGER)]
)
def test_shared_memory_does_not_change_any_bit(name: str) -> None:
    step = (SMALL | LARGER)[name]()
    apart, shared = (lower_step(step, reuse) for reuse in (False, True))
    assert shared.arenas["activation"] < apart.arenas["activation"]
    one, other = (dump(body.text(CASE, 2), STEPS)[-1] for body in (apart, shared))
    assert apart.loss is not None
    kept = [tensor.number for tensor in apart.tensors if tensor.arena in ("parameter", "state")]
    for number in (*kept, apart.loss.number):
        assert np.array_equal(one[number], other[number]), apart.tensors[number].name


@pytest.mark.parametrize("name", ["mlp-4", "emdl-lenet", "resnet20", "char-lstm", "sgemm"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_memory_equals_the_prediction(name: str, threads: int, tmp_path: Path) -> None:
    case = bind(name, {})
    run_plan("run", lower(case, threads), tmp_path, "--warmup", "0", "--steps", "1")
    lines = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    memory = next(line for line in lines if line["line"] == "memory")
    assert memory_of_plan(lower(case, threads)) == {k: v for k, v in memory.items() if k != "line"}
    predicted = asdict(step_memory(step_of(case)))
    assert predicted == {kind: memory[kind] for kind in predicted}
    assert memory["workspace"] < ENGINE_OVERHEAD_MB * 2**20


def test_a_run_reports_its_accuracy_on_unseen_data(tmp_path: Path) -> None:
    at_once, in_parts = (shares_of(tmp_path / str(batch), batch) for batch in (0, 16))
    assert len(at_once) == 6
    assert at_once[-1] > 0.8 > at_once[0]
    assert in_parts == pytest.approx(at_once)


def shares_of(folder: Path, batch: int) -> list[float]:
    """Return the accuracies of a run that is evaluated with this many samples at a time."""
    folder.mkdir()
    watched = EvaluationSpec(every=4, samples=64, batch=batch)
    step = TrainingStep(
        (TrainingPass(perceptron("mlp-4"), SGD(0.05)),), 16, batches=8, evaluation=watched
    )
    plan = a_plan(lower_step(step).text(CASE, 1), training=True, ops=_ops(step))
    run_plan("run", plan, folder, "--warmup", "0", "--steps", "24")
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert lines[-1]["line"] == "done", lines[-1]
    return [line["accuracy"] for line in lines if line["line"] == "evaluation"]


def _ops(step: Step) -> list[dict[str, object]]:
    return [op.model_dump() for op in step.cost.ops]
