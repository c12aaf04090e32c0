"""The cost of a training step: what grows with the batch, what is left out, what is saved."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.catalogue import CATALOGUE, bind, cost_of
from workloads.graph import Model, Node, PublishedSize
from workloads.layers import (
    LSTM,
    Add,
    BatchNorm,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Linear,
    MaxPool,
    ReLU,
    SoftmaxCrossEntropy,
)
from workloads.models.lenet import emdl_lenet
from workloads.protocol.faults import InvalidRequest
from workloads.step_cost import FLOAT_BYTES, Op, StepCost
from workloads.training import SGD, Adam, Optimizer, training_step

UNPUBLISHED = PublishedSize(0, 0, "a test")
LOSS = Node("loss", SoftmaxCrossEntropy())
BATCHED = [
    name
    for name, workload in CATALOGUE.items()
    if any(each.name == "batch_size" and not each.choices for each in workload.parameters)
]


def names(cost: StepCost) -> list[str]:
    return [op.name for op in cost.ops]


def training_cost(model: Model, batch: int, optimizer: Optimizer) -> StepCost:
    return training_step(model, batch, optimizer).cost


def traffic_bytes(cost: StepCost) -> int:
    return sum(op.read_bytes + op.write_bytes for op in cost.ops)


def flops(ops: tuple[Op, ...], *endings: str) -> int:
    return sum(op.flops for op in ops if op.name.endswith(endings))


@pytest.mark.parametrize("name", BATCHED)
@settings(max_examples=2, deadline=None)
@given(batch=st.integers(2, 512))
def test_arithmetic_grows_with_the_batch_except_the_update(name: str, batch: int) -> None:
    one = cost_of(bind(name, {"batch_size": 1}))
    many = cost_of(bind(name, {"batch_size": batch}))
    for before, after in zip(one.ops, many.ops, strict=True):
        is_per_parameter = before.kind == "update" or before.name.endswith(
            (".gradient_total", ".norm")
        )
        assert after.flops == before.flops * (1 if is_per_parameter else batch)
    assert many.parameter_bytes == one.parameter_bytes
    assert many.samples_per_step == batch
    assert traffic_bytes(one) < traffic_bytes(many) < batch * traffic_bytes(one)


@pytest.mark.parametrize(
    "name", ["emdl-alexnet", "emdl-squeezenet", "emdl-googlenet", "emdl-mobilenetv2"]
)
def test_backward_is_about_twice_the_forward(name: str) -> None:
    ops = cost_of(bind(name, {})).ops
    heavy = tuple(op for op in ops if op.kind in {"conv", "pointwise", "depthwise", "matmul"})
    ratio = flops(heavy, ".weight_gradient", ".input_gradient") / flops(heavy, ".forward")
    assert 1.7 < ratio <= 2.0  # the image needs no gradient


def test_training_costs_about_three_times_the_forward_pass() -> None:
    """Six FLOPs per multiply-add, minus what conv1's image and LeNet's frozen conv2 do not need."""
    for name, gflop in [
        ("emdl-alexnet", 5.935),
        ("emdl-squeezenet", 4.724),
        ("emdl-googlenet", 2.94),
        ("emdl-mobilenetv2", 1.805),
        ("emdl-lenet", 0.013),
    ]:
        cost = cost_of(bind(name, {"batch_size": 1}))
        assert cost.flops / 1e9 == pytest.approx(gflop, rel=0.15)


def test_a_step_of_lenet_has_the_operations_of_its_study() -> None:
    """Gradients flow through a frozen layer, which is not updated; the image gets none."""
    assert names(training_cost(emdl_lenet(), 1, SGD())) == [
        "conv1.forward",
        "pool1.forward",
        "conv2.forward",
        "pool2.forward",
        "fc1.forward",
        "relu1.forward",
        "dropout1.forward",
        "fc2.forward",
        "loss.forward",
        "loss.input_gradient",
        "fc2.weight_gradient",
        "fc2.bias_gradient",
        "fc2.input_gradient",
        "dropout1.input_gradient",
        "relu1.input_gradient",
        "fc1.weight_gradient",
        "fc1.bias_gradient",
        "fc1.input_gradient",
        "pool2.input_gradient",
        "conv2.input_gradient",
        "pool1.input_gradient",
        "conv1.weight_gradient",
        "conv1.bias_gradient",
        "conv1.update",
        "fc1.update",
        "fc2.update",
    ]


def test_costs_match_a_calculation_by_hand() -> None:
    """A 4x4 image of 2 channels, a 3x3 window to 5 channels, a batch of 7."""
    nodes = (Node("pre", Conv2d(2, 1)), Node("conv", Conv2d(5, 3)), Node("flat", Flatten()), LOSS)
    cost = training_cost(
        Model("tried", {"image": (2, 4, 4)}, nodes, UNPUBLISHED), 7, SGD(momentum=0.9)
    )
    ops = {op.name: op for op in cost.ops}
    macs, x, y, w = 7 * 4 * 90, 7 * 32, 7 * 20, 90

    def op(name: str, kind: str, flops: int, reads: int, writes: int) -> Op:
        reads, writes = FLOAT_BYTES * reads, FLOAT_BYTES * writes
        values = {"flops": flops, "read_bytes": reads, "write_bytes": writes}
        return Op.model_validate({"name": name, "kind": kind, **values})

    for expected in (
        op("conv.forward", "conv", 2 * macs + y, x + w + 5, y),
        op("conv.weight_gradient", "conv", 2 * macs, x + y, w),
        op("conv.bias_gradient", "reduce", y, y, 5),
        op("conv.input_gradient", "conv", 2 * macs, y + w, x),
        op("conv.update", "update", 4 * 95, 3 * 95, 2 * 95),
        op("pre.forward", "pointwise", 2 * 7 * 64 + x, x + 4 + 2, x),
        op("loss.forward", "loss", 7 * y, 2 * y, 7),
    ):
        assert ops[expected.name] == expected
    assert cost.parameter_bytes == FLOAT_BYTES * 3 * (95 + 6)
    # The image, the input of conv, the input of the loss (through a view), and the probabilities.
    assert cost.activation_bytes == FLOAT_BYTES * (x + x + y + y)


def test_a_saved_tensor_counts_once_however_many_layers_need_it() -> None:
    nodes = (Node("fc1", Linear(8)), Node("relu", ReLU()), Node("fc2", Linear(4)), LOSS)
    cost = training_cost(Model("tried", {"row": (16,)}, nodes, UNPUBLISHED), 1, SGD())
    assert cost.activation_bytes == FLOAT_BYTES * (16 + 8 + 4 + 4)


def test_gradients_of_several_readers_are_added() -> None:
    nodes = (
        Node("first", Linear(8)),
        Node("second", Linear(8)),
        Node("join", Add(), ("first", "second")),
        LOSS,
    )
    cost = training_cost(Model("tried", {"row": (8,)}, nodes, UNPUBLISHED), 2, SGD())
    (total,) = [op for op in cost.ops if op.name.endswith("gradient_sum")]
    assert (total.name, total.flops, total.read_bytes) == (
        "first.gradient_sum",
        16,
        FLOAT_BYTES * 32,
    )


def test_an_lstm_runs_backward_even_if_its_input_needs_no_gradient() -> None:
    nodes = (Node("lstm", LSTM(8)), Node("flat", Flatten()), Node("fc", Linear(4)), LOSS)
    found = names(training_cost(Model("tried", {"text": (5, 3)}, nodes, UNPUBLISHED), 2, SGD()))
    assert {"lstm.gates_gradient", "lstm.state_gradient", "lstm.weight_gradient"} <= set(found)
    assert "lstm.input_gradient" not in found


def test_a_token_gets_no_gradient_but_its_embedding_does() -> None:
    nodes = (Node("rows", Embedding(50, 8)), Node("flat", Flatten()), Node("fc", Linear(4)), LOSS)
    found = names(training_cost(Model("tried", {"text": (5,)}, nodes, UNPUBLISHED), 2, SGD()))
    assert {"rows.weight_gradient", "rows.update"} <= set(found)
    assert "rows.input_gradient" not in found


def test_a_model_without_trainable_parameters_has_no_backward_pass() -> None:
    nodes = (Node("frozen", Linear(4, trainable=False)), LOSS)
    cost = training_cost(Model("tried", {"row": (8,)}, nodes, UNPUBLISHED), 2, SGD())
    assert names(cost) == ["frozen.forward", "loss.forward"]
    assert (cost.parameter_bytes, cost.activation_bytes) == (FLOAT_BYTES * 36, 0)


@pytest.mark.parametrize(
    ("optimizer", "copies", "flops_each"),
    [
        (SGD(), 2, 2),
        (SGD(momentum=0.9), 3, 4),
        (SGD(momentum=0.9, weight_decay=5e-4), 3, 6),
        (Adam(), 4, 12),
    ],
    ids=str,
)
def test_the_state_of_an_optimizer_is_counted(
    optimizer: SGD | Adam, copies: int, flops_each: int
) -> None:
    model = Model("tried", {"row": (8,)}, (Node("fc", Linear(4)), LOSS), UNPUBLISHED)
    cost = training_cost(model, 1, optimizer)
    assert cost.parameter_bytes == FLOAT_BYTES * copies * 36
    assert flops(cost.ops, ".update") == flops_each * 36


def test_dropout_and_pooling_save_masks_and_positions() -> None:
    image = (1, 4, 4)
    nodes = (Node("conv", Conv2d(1, 1)), Node("norm", BatchNorm()), Node("pool", MaxPool(2, 2)))
    tail = (Node("drop", Dropout()), Node("flat", Flatten()), LOSS)
    cost = training_cost(Model("tried", {"image": image}, (*nodes, *tail), UNPUBLISHED), 1, SGD())
    # image, conv, statistics, positions, mask, logits, probabilities
    saved = 16 + 16 + 2 + 4 + 4 + 4 + 4
    assert cost.activation_bytes == FLOAT_BYTES * saved


def test_an_empty_batch_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="the batch size must be at least 1, got 0"):
        training_cost(emdl_lenet(), 0, SGD())
