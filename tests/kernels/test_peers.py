"""Every operation and every model against PyTorch: the same first values, the same batch, one step.

PyTorch computes in double precision here, so that what differs is ours. Steps after the first are
the reference's: a ReLU or a maximum that tips over by rounding is one percent of a gradient, in
PyTorch's own single precision as in ours, and a second step makes much of it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.kernels.dumps import Dumped, worst
from tests.kernels.test_gradients import BATCH, MODELS
from workloads.catalogue import CATALOGUE, bind, step_of
from workloads.graph import Model
from workloads.training import SGD, Training, training

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch==2.13.0`")

SMALL = {"batch_size": 4, "image_size": 64, "moments": 8, "days": 2}
# What is checked by other names, or has no number to check.
LEFT_OUT = {
    "emdl-cpuconf": "it is emdl-alexnet under another name",
    "emdl-squeezenet": "its loss is not a number after the first step, as in the study",
    "emdl-mobilenetv2": "its rate moves no scale of 1; mobilenetv2 is the same model",
    "emdl-googlenet": "it says 1 whatever it sees, as in the study; nothing but decay moves it",
    "seq2seq": "its 348 M parameters do not fit this way; its layers are those of char-lstm",
}
GRADIENT_ERROR_MOST = 2e-5
LOSS_ERROR_MOST = 1e-4
# A few maxima that tip over; a gradient that is wrong is off by 1. The deepest models may be off by
# more, if PyTorch's own single precision is.
MOVE_ERROR_MOST = 0.05
Values = Mapping[str, Any]


def trained() -> list[str]:
    """Every workload that trains."""
    return [
        name
        for name, workload in CATALOGUE.items()
        if workload.on_phone and isinstance(step_of(bind(name, {})), Training)
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_gradient_is_that_of_pytorch(name: str, threads: int) -> None:
    from tests.kernels.torch_peer import Peer

    step = training(MODELS[name], BATCH, SGD(1.0))
    dumped = Dumped.of(step, threads)
    before = by_name(dumped, 0)
    peer = Peer(step, before)
    loss = peer.step([loaded(dumped, MODELS[name], 0)], by_name(dumped, 1))
    assert float(dumped.moments[1][dumped.plan.loss][0]) == pytest.approx(loss, rel=1e-5)
    assert dumped.learned
    for parameter, gradient in dumped.learned:
        key = dumped.name(parameter)
        way = before[key] - peer.parameters[key].detach()  # at a rate of 1, the gradient itself
        error = worst(dumped.moments[1][gradient], way.numpy())
        assert error < GRADIENT_ERROR_MOST, f"{key}'s gradient is off by {error:.1e} of its size"


@pytest.mark.parametrize("name", trained())
def test_a_model_trains_as_in_pytorch(name: str) -> None:
    from tests.kernels.torch_peer import Peer

    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    chosen = {
        each.name: min(max(SMALL[each.name], each.least), each.most)
        for each in CATALOGUE[name].parameters
        if each.name in SMALL
    }
    step = step_of(bind(name, chosen))
    assert isinstance(step, Training)
    dumped = Dumped.of(step, threads=2)
    before, after = by_name(dumped, 0), by_name(dumped, 1)
    inputs = [loaded(dumped, each.model, number) for number, each in enumerate(step.passes)]
    exact = Peer(step, before)
    loss = exact.step(inputs, after)
    found = float(dumped.moments[1][dumped.plan.loss][0])
    assert found == pytest.approx(loss, rel=LOSS_ERROR_MOST)
    ours = errors(before, after, exact.parameters)
    if max(ours.values()) > MOVE_ERROR_MOST:
        usual = Peer(step, single(before))
        usual.step([single(each) for each in inputs], single(after))
        theirs = errors(before, usual.parameters, exact.parameters)
        for key, error in ours.items():
            bound = max(MOVE_ERROR_MOST, 2 * max(theirs.values()))
            assert error < bound, f"{key} moved otherwise, by {error:.1e} of its way"


def errors(before: Values, after: Values, exact: Values) -> dict[str, float]:
    """By how much of its way each parameter moved otherwise than in double precision."""
    moves = {key: value.detach() - before[key] for key, value in exact.items()}
    largest = max(float(move.abs().max()) for move in moves.values())
    return {
        key: float((after[key].detach() - before[key] - move).norm() / move.norm())
        for key, move in moves.items()
        if float(move.abs().max()) > 1e-4 * largest  # less is rounding: a bias before a norm
    }


def single(values: Values) -> Values:
    """The same values in single precision, as PyTorch usually has them."""
    return {
        key: value.float() if value.is_floating_point() else value for key, value in values.items()
    }


def by_name(dumped: Dumped, at: int) -> Values:
    """Parameters and masks at a moment, by name."""
    return {
        tensor.name: torch.from_numpy(dumped.moments[at][tensor.number].astype(np.float64))
        for tensor in dumped.body.tensors
        if tensor.arena == "parameter" or tensor.type == "byte"
    }


def loaded(dumped: Dumped, model: Model, number: int) -> Values:
    """What a pass was fed with."""
    found = {}
    for name, tensor in dumped.body.inputs[number].items():
        values = dumped.moments[1][tensor.number]
        kind = np.int64 if tensor.type == "index" else np.float64
        found[name] = torch.from_numpy(values.astype(kind))
    assert set(found) == set(model.columns)
    return found
