"""Every operation and every model against PyTorch: the same initial values and batch, one step.

PyTorch computes in double precision here, so that all rounding is ours. Only the first step is
compared: a ReLU or a maximum that flips by rounding changes a gradient by a percent, in PyTorch's
single precision as in ours, and a second step amplifies that.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from kernels.reference import relative_error
from tests.kernels.dumps import Dumped
from tests.kernels.test_gradients import BATCH, MODELS
from workloads.catalogue import CATALOGUE, bind, step_of
from workloads.graph import Model
from workloads.training import SGD, TrainingStep, training_step

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch==2.13.0`")

SMALL = {"batch_size": 4, "image_size": 64, "text_length": 16, "micro_batches": 3}
# Workloads that are checked under another name, or have no value to check.
LEFT_OUT = {
    "emdl-cpuconf": "is emdl-alexnet under another name",
    "emdl-squeezenet": "has a NaN loss after the first step, as in the study",
    "emdl-mobilenetv2": "its learning rate cannot change a scale of 1; see mobilenetv2",
    "emdl-googlenet": "predicts 1 for every input, as in the study; only weight decay changes it",
    "seq2seq": "has 348 M parameters, too many for this test; its layers are those of char-lstm",
}
GRADIENT_ERROR_MAX = 2e-5
LOSS_ERROR_MAX = 1e-4
# A few maxima flip by rounding; a wrong gradient is off by 1. The deepest models may be off by
# more, if PyTorch's own single precision is.
MOVE_ERROR_MAX = 0.05
Values = Mapping[str, Any]


def trained() -> list[str]:
    """List every workload that trains."""
    return [
        name
        for name, workload in CATALOGUE.items()
        if workload.on_phone and isinstance(step_of(bind(name, {})), TrainingStep)
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_gradient_equals_that_of_pytorch(name: str, threads: int) -> None:
    from tests.kernels.torch_peer import Peer

    step = training_step(MODELS[name], BATCH, SGD(1.0))
    dumped = Dumped.of(step, threads)
    before = by_name(dumped, 0)
    peer = Peer(step, before)
    loss = peer.step([loaded(dumped, MODELS[name], 0)], by_name(dumped, 1))
    assert float(dumped.moments[1][dumped.plan.loss][0]) == pytest.approx(loss, rel=1e-5)
    assert dumped.learned
    for parameter, gradient in dumped.learned:
        key = dumped.name(parameter)
        way = before[key] - peer.parameters[key].detach()  # at a rate of 1, the gradient itself
        error = relative_error(dumped.moments[1][gradient], way.numpy())
        assert error < GRADIENT_ERROR_MAX, f"{key}'s gradient is off by {error:.1e} of its size"


@pytest.mark.parametrize("name", trained())
def test_a_model_trains_like_in_pytorch(name: str) -> None:
    from tests.kernels.torch_peer import Peer

    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    chosen = {
        each.name: min(max(SMALL[each.name], each.min), each.max)
        for each in CATALOGUE[name].parameters
        if each.name in SMALL
    }
    step = step_of(bind(name, chosen))
    assert isinstance(step, TrainingStep)
    dumped = Dumped.of(step, threads=2)
    before, after = by_name(dumped, 0), by_name(dumped, 1)
    inputs = [loaded(dumped, each.model, number) for number, each in enumerate(step.passes)]
    exact = Peer(step, before)
    loss = exact.step(inputs, after)
    found = float(dumped.moments[1][dumped.plan.loss][0])
    assert found == pytest.approx(loss, rel=LOSS_ERROR_MAX)
    ours = errors(before, after, exact.parameters)
    if max(ours.values()) > MOVE_ERROR_MAX:
        usual = Peer(step, single(before))
        usual.step([single(each) for each in inputs], single(after))
        theirs = errors(before, usual.parameters, exact.parameters)
        for key, error in ours.items():
            bound = max(MOVE_ERROR_MAX, 2 * max(theirs.values()))
            assert error < bound, f"{key} was updated differently, by {error:.1e} of the update"


def errors(before: Values, after: Values, exact: Values) -> dict[str, float]:
    """Return how far each update deviates from double precision, relative to the update."""
    moves = {key: value.detach() - before[key] for key, value in exact.items()}
    largest = max(float(move.abs().max()) for move in moves.values())
    return {
        key: float((after[key].detach() - before[key] - move).norm() / move.norm())
        for key, move in moves.items()
        if float(move.abs().max())
        > 1e-4 * largest  # smaller updates are rounding: a bias before a norm
    }


def single(values: Values) -> Values:
    """Return the same values in single precision, the default of PyTorch."""
    return {
        key: value.float() if value.is_floating_point() else value for key, value in values.items()
    }


def by_name(dumped: Dumped, at: int) -> Values:
    """Return parameters and masks after a step, by name."""
    return {
        tensor.name: torch.from_numpy(dumped.moments[at][tensor.number].astype(np.float64))
        for tensor in dumped.body.tensors
        if tensor.arena == "parameter" or tensor.type == "byte"
    }


def loaded(dumped: Dumped, model: Model, number: int) -> Values:
    """Return the inputs of a pass."""
    found = {}
    for name, tensor in dumped.body.inputs[number].items():
        values = dumped.moments[1][tensor.number]
        kind = np.int64 if tensor.type == "index" else np.float64
        found[name] = torch.from_numpy(values.astype(kind))
    assert set(found) == set(model.columns)
    return found
