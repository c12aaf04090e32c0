"""A training step, counted: what scales with the batch, what is left out, what is kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.catalogue import CATALOGUE, bind, work_of
from workloads.fault import Refused
from workloads.graph import Model, Node, Stated
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
from workloads.training import SGD, Adam, training_work
from workloads.work import FLOAT_BYTES, Op, Work

UNSTATED = Stated(0, 0, "a test")
LOSS = Node("loss", SoftmaxCrossEntropy())
BATCHED = [
    name
    for name, workload in CATALOGUE.items()
    if any(each.name == "batch_size" and not each.only for each in workload.parameters)
]


def names(work: Work) -> list[str]:
    return [op.name for op in work.ops]


def flops(ops: tuple[Op, ...], *endings: str) -> int:
    return sum(op.flops for op in ops if op.name.endswith(endings))


@pytest.mark.parametrize("name", BATCHED)
@settings(max_examples=2, deadline=None)
@given(batch=st.integers(2, 512))
def test_arithmetic_grows_with_the_batch_except_the_update(name: str, batch: int) -> None:
    one = work_of(bind(name, {"batch_size": 1}))
    many = work_of(bind(name, {"batch_size": batch}))
    for before, after in zip(one.ops, many.ops, strict=True):
        of_parameters = before.kind == "update" or before.name.endswith(".gradient_total")
        assert after.flops == before.flops * (1 if of_parameters else batch)
    assert one.parameter_bytes == many.parameter_bytes
    assert batch == many.samples_per_step
    assert one.bytes < many.bytes < batch * one.bytes


@pytest.mark.parametrize(
    "name", ["emdl-alexnet", "emdl-squeezenet", "emdl-googlenet", "emdl-mobilenetv2"]
)
def test_backward_is_about_twice_the_forward(name: str) -> None:
    ops = work_of(bind(name, {})).ops
    heavy = tuple(op for op in ops if op.kind in {"conv", "pointwise", "depthwise", "matmul"})
    ratio = flops(heavy, ".weight_gradient", ".input_gradient") / flops(heavy, ".forward")
    assert 1.7 < ratio <= 2.0  # the image needs no gradient


def test_the_three_times_rule_holds_for_what_was_coded() -> None:
    """Six FLOPs a multiply-add, less what conv1's image and LeNet's frozen conv2 do not need."""
    for name, gflop in [
        ("emdl-alexnet", 5.935),
        ("emdl-squeezenet", 4.724),
        ("emdl-googlenet", 2.94),
        ("emdl-mobilenetv2", 1.805),
        ("emdl-lenet", 0.013),
    ]:
        work = work_of(bind(name, {"batch_size": 1}))
        assert gflop == pytest.approx(work.flops / 1e9, rel=0.15)


def test_a_step_of_lenet_is_what_its_study_ran() -> None:
    """A frozen layer passes gradients on, and that is all; the image gets none."""
    assert names(training_work(emdl_lenet(), 1, SGD())) == [
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


def test_prices_can_be_reckoned_by_hand() -> None:
    """A 4x4 image of 2 channels, a 3x3 window to 5 channels, a batch of 7."""
    nodes = (Node("pre", Conv2d(2, 1)), Node("conv", Conv2d(5, 3)), Node("flat", Flatten()), LOSS)
    work = training_work(
        Model("tried", {"image": (2, 4, 4)}, nodes, UNSTATED), 7, SGD(momentum=0.9)
    )
    ops = {op.name: op for op in work.ops}
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
        assert expected == ops[expected.name]
    assert FLOAT_BYTES * 3 * (95 + 6) == work.parameter_bytes
    # The image, what goes into conv, what goes into the loss (through a view), and the shares.
    assert FLOAT_BYTES * (x + x + y + y) == work.activation_bytes


def test_a_kept_tensor_is_counted_once_however_many_need_it() -> None:
    nodes = (Node("fc1", Linear(8)), Node("relu", ReLU()), Node("fc2", Linear(4)), LOSS)
    work = training_work(Model("tried", {"row": (16,)}, nodes, UNSTATED), 1, SGD())
    assert FLOAT_BYTES * (16 + 8 + 4 + 4) == work.activation_bytes


def test_gradients_that_meet_are_added() -> None:
    nodes = (
        Node("first", Linear(8)),
        Node("second", Linear(8)),
        Node("join", Add(), ("first", "second")),
        LOSS,
    )
    work = training_work(Model("tried", {"row": (8,)}, nodes, UNSTATED), 2, SGD())
    (met,) = [op for op in work.ops if op.name.endswith("gradient_sum")]
    assert ("first.gradient_sum", 16, FLOAT_BYTES * 32) == (met.name, met.flops, met.read_bytes)


def test_an_lstm_goes_back_through_time_even_where_its_input_needs_nothing() -> None:
    nodes = (Node("lstm", LSTM(8)), Node("flat", Flatten()), Node("fc", Linear(4)), LOSS)
    found = names(training_work(Model("tried", {"text": (5, 3)}, nodes, UNSTATED), 2, SGD()))
    assert {"lstm.gates_gradient", "lstm.state_gradient", "lstm.weight_gradient"} <= set(found)
    assert "lstm.input_gradient" not in found


def test_a_symbol_gets_no_gradient_but_its_row_does() -> None:
    nodes = (Node("rows", Embedding(50, 8)), Node("flat", Flatten()), Node("fc", Linear(4)), LOSS)
    found = names(training_work(Model("tried", {"text": (5,)}, nodes, UNSTATED), 2, SGD()))
    assert {"rows.weight_gradient", "rows.update"} <= set(found)
    assert "rows.input_gradient" not in found


def test_a_model_with_nothing_to_learn_has_no_backward_pass() -> None:
    nodes = (Node("frozen", Linear(4, trainable=False)), LOSS)
    work = training_work(Model("tried", {"row": (8,)}, nodes, UNSTATED), 2, SGD())
    assert ["frozen.forward", "loss.forward"] == names(work)
    assert (FLOAT_BYTES * 36, 0) == (work.parameter_bytes, work.activation_bytes)


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
def test_an_optimizer_keeps_what_it_needs(
    optimizer: SGD | Adam, copies: int, flops_each: int
) -> None:
    model = Model("tried", {"row": (8,)}, (Node("fc", Linear(4)), LOSS), UNSTATED)
    work = training_work(model, 1, optimizer)
    assert FLOAT_BYTES * copies * 36 == work.parameter_bytes
    assert flops_each * 36 == flops(work.ops, ".update")


def test_dropout_and_pooling_keep_what_tells_the_way_back() -> None:
    image = (1, 4, 4)
    nodes = (Node("conv", Conv2d(1, 1)), Node("norm", BatchNorm()), Node("pool", MaxPool(2, 2)))
    tail = (Node("drop", Dropout()), Node("flat", Flatten()), LOSS)
    work = training_work(Model("tried", {"image": image}, (*nodes, *tail), UNSTATED), 1, SGD())
    kept = 16 + 16 + 2 + 4 + 4 + 4 + 4  # image, conv, statistics, places, mask, logits, shares
    assert FLOAT_BYTES * kept == work.activation_bytes


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(Refused, match="a batch has at least one sample, not 0"):
        training_work(emdl_lenet(), 0, SGD())
