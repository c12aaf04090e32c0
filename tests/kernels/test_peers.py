"""Every model of the shelf against PyTorch: the same first values, batches and masks, two steps.

PyTorch computes in double precision here, so that what differs is ours.
"""

import numpy as np
import pytest

from tests.kernels.dumps import Dumped
from workloads.catalogue import CATALOGUE, bind, step_of
from workloads.graph import Model
from workloads.training import Training

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch==2.13.0`")

STEPS = 2
SMALL = {"batch_size": 4, "image_size": 64, "moments": 8, "days": 2}
# What is checked by other names, or has no number to check.
LEFT_OUT = {
    "emdl-cpuconf": "it is emdl-alexnet under another name",
    "emdl-squeezenet": "its loss is not a number after the first step, as in the study",
    "emdl-mobilenetv2": "its rate moves no scale of 1; mobilenetv2 is the same model",
    "emdl-googlenet": "it says 1 whatever it sees, as in the study; nothing but decay moves it",
    "seq2seq": "its 348 M parameters do not fit this way; its layers are those of char-lstm",
}
# Deep and thin, or normalised over few values: rounding grows on its way through.
ERROR_MOST = 0.02


def trained() -> list[str]:
    """Every workload that trains."""
    return [
        name
        for name, workload in CATALOGUE.items()
        if workload.on_phone and isinstance(step_of(bind(name, {})), Training)
    ]


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
    dumped = Dumped.of(step, threads=2, steps=STEPS)
    before, after = (by_name(dumped, at) for at in (0, STEPS))
    peer = Peer(step, before)
    for at in range(1, STEPS + 1):
        seen = by_name(dumped, at)
        inputs = [loaded(dumped, each.model, number, at) for number, each in enumerate(step.passes)]
        expected = peer.step(inputs, seen)
        assert expected == pytest.approx(float(dumped.moments[at][dumped.plan.loss][0]), rel=1e-3)
    moves = {key: value.detach() - before[key] for key, value in peer.parameters.items()}
    largest = max(float(move.abs().max()) for move in moves.values())
    for key, move in moves.items():
        if float(move.abs().max()) > 1e-5 * largest:  # less is rounding: a bias before a norm
            error = float((after[key] - before[key] - move).norm() / move.norm())
            assert error < ERROR_MOST, f"{key} moved otherwise, by {error:.1e} of its way"


def by_name(dumped: Dumped, at: int) -> dict[str, "torch.Tensor"]:
    """Parameters and masks at a moment, by name."""
    return {
        tensor.name: torch.from_numpy(dumped.moments[at][tensor.number].astype(np.float64))
        for tensor in dumped.body.tensors
        if tensor.arena == "parameter" or tensor.type == "byte"
    }


def loaded(dumped: Dumped, model: Model, number: int, at: int) -> dict[str, "torch.Tensor"]:
    """What a pass was fed with in a step: its loads stand in the order of its columns."""
    loads = [op.outs[0] for op in dumped.body.ops if op.kind == "load"]
    found = {}
    for name, tensor in dumped.body.inputs[number].items():
        assert tensor in loads
        values = dumped.moments[at][tensor.number]
        kind = np.int64 if tensor.type == "index" else np.float64
        found[name] = torch.from_numpy(values.astype(kind))
    assert set(found) == set(model.columns)
    return found
