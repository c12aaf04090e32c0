"""Layers: shapes, parameters, and an error for definitions that do not fit together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import (
    LSTM,
    Add,
    AttentionHeads,
    AvgPool,
    Concat,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool,
    LastTimeStep,
    Layer,
    LayerNorm,
    LayerShapes,
    Linear,
    MaxPool,
    MeanSquaredError,
    PositionEmbedding,
    RepeatVector,
    Reshape,
    Shape,
    Softmax,
    SoftmaxCrossEntropy,
    TemporalDifference,
    Upsample,
)
from workloads.layers.layer import OpCosts
from workloads.layers.window_shapes import Padding, transposed_axis, window_axis
from workloads.protocol.faults import InvalidRequest

UNPUBLISHED = PublishedSize(0, 0, "a test")
LOSS = Node("loss", SoftmaxCrossEntropy())
lengths = st.integers(1, 64)
paddings: st.SearchStrategy[Padding] = st.one_of(
    st.just("valid"), st.just("same"), st.integers(0, 4)
)


def tried(*nodes: Node, **inputs: Shape) -> Model:
    return Model("tried", inputs or {"image": (3, 32, 32)}, (*nodes, LOSS), UNPUBLISHED)


@pytest.mark.parametrize(
    ("layer", "inputs", "shape", "parameters"),
    [
        (Conv2d(8, 3), [(3, 32, 32)], (8, 30, 30), 8 * 27 + 8),
        (Conv2d(8, 3, stride=2, padding="same"), [(3, 33, 32)], (8, 17, 16), 8 * 27 + 8),
        (Conv2d(8, (1, 7), padding="same", bias=False), [(4, 9, 9)], (8, 9, 9), 8 * 28),
        (Conv2d(12, 3, padding=1, groups=4), [(8, 9, 9)], (12, 9, 9), 12 * 2 * 9 + 12),
        (Conv2d(8, 3, padding=1, groups=8), [(8, 9, 9)], (8, 9, 9), 8 * 9 + 8),
        (Conv2d(6, 4, 2, 1, transposed=True), [(5, 8, 8)], (6, 16, 16), 5 * 6 * 16 + 6),
        (Linear(10), [(7, 20)], (7, 10), 210),
        (LayerNorm(), [(7, 20)], (7, 20), 40),
        (MaxPool(3, 2), [(4, 54, 54)], (4, 26, 26), 0),
        (AvgPool(2, 2), [(4, 7, 7)], (4, 3, 3), 0),
        (GlobalAvgPool(), [(4, 7, 7)], (4, 1, 1), 0),
        (Concat(), [(4, 7, 7), (5, 7, 7), (6, 7, 7)], (15, 7, 7), 0),
        (Concat(axis=1), [(4, 7), (4, 5)], (4, 12), 0),
        (Add(), [(4, 7), (4, 7)], (4, 7), 0),
        (Reshape((1, 4, 7)), [(4, 7)], (1, 4, 7), 0),
        (Upsample(2), [(4, 7, 5)], (4, 14, 10), 0),
        (PositionEmbedding(), [(12, 16)], (12, 16), 192),
        (LastTimeStep(), [(12, 16)], (16,), 0),
        (RepeatVector(12), [(16,)], (12, 16), 0),
        (Flatten(), [(4, 7, 7)], (196,), 0),
        (Embedding(100, 16), [(12,)], (12, 16), 1600),
        # As many as TensorFlow's; PyTorch has every bias twice.
        (LSTM(32), [(12, 16)], (12, 32), 4 * 32 * (16 + 32 + 1)),
        (AttentionHeads(4), [(12, 192)], (12, 64), 0),
    ],
    ids=lambda value: str(value) if isinstance(value, Layer) else "",
)
def test_a_layer_knows_its_shape_and_parameters(
    layer: Layer, inputs: list[Shape], shape: Shape, parameters: int
) -> None:
    names = {f"in{index}": given for index, given in enumerate(inputs)}
    model = Model("tried", names, (Node("it", layer, tuple(names)), LOSS), UNPUBLISHED)
    assert model.shapes["it"] == shape
    assert model.parameters == parameters


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            [Node("c", Conv2d(8, 40))],
            "tried, layer 'c': a window of 40 does not fit into 32 padded",
        ),
        ([Node("c", Conv2d(8, 0))], "window and stride must be at least 1, got 0x0"),
        ([Node("c", Conv2d(8, 3, padding=-1))], "a window of 3 does not fit into 32 padded by -1"),
        ([Node("c", Conv2d(8, 3, groups=2))], "2 groups do not divide 3 and 8 channels"),
        ([Node("c", Conv2d(0, 3))], "its output cannot have shape (0, 30, 30)"),
        ([Node("c", Conv2d(8, 1, padding=16, transposed=True))], "cropped by 16 leaves nothing"),
        (
            [Node("f", Flatten()), Node("c", Conv2d(8, 3))],
            "needs an input of (channels, height, width), got",
        ),
        ([Node("f", Linear(0))], "cannot map the shape (3, 32, 32) to 0 features"),
        ([Node("d", Dropout(1.0))], "the dropout rate must be from 0 to below 1, got 1.0"),
        ([Node("s", Softmax(axis=3))], "the shape (3, 32, 32) has no axis 3"),
        ([Node("l", LSTM(4))], "needs an input of (time, features), got (3, 32, 32)"),
        (
            [Node("f", Flatten()), Node("a", Add(), ("f", "image"))],
            "(3072,) and (3, 32, 32) cannot",
        ),
        (
            [Node("p", MaxPool(2, 2)), Node("j", Concat(), ("p", "image"))],
            "other axes differ",
        ),
        ([Node("j", Concat(axis=3), ("image", "image"))], "(3, 32, 32) has no axis 3"),
        ([Node("r", Reshape((3, 1000)))], "3072 values do not fit into the shape (3, 1000)"),
        ([Node("r", RepeatVector(4))], "needs an input of (features,), got (3, 32, 32)"),
        ([Node("p", PositionEmbedding())], "needs an input of (time, features), got (3, 32, 32)"),
        (
            [Node("t", TemporalDifference(), ("image",) * 4)],
            "needs two rows of Q values of one length",
        ),
        ([Node("a", Add())], "needs two inputs or more, got 1"),
        ([Node("c", Conv2d(8, 3), ("image", "image"))], "needs 1 input(s), got 2"),
        (
            [Node("c", Conv2d(8, 3), ("d",)), Node("d", Flatten())],
            "no earlier layer is called 'd'",
        ),
        ([Node("c", Flatten()), Node("c", Flatten())], "tried has two layers called 'c'"),
    ],
)
def test_a_definition_that_does_not_fit_together_is_explained(
    nodes: list[Node], expected: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _ = tried(*nodes).shapes
    assert expected in str(refused.value)
    assert str(refused.value).startswith("tried")


def test_a_model_ends_in_a_loss_and_begins_with_a_shape() -> None:
    with pytest.raises(InvalidRequest, match="tried does not end in a loss"):
        _ = Model("tried", {"row": (3,)}, (Node("f", Linear(3)),), UNPUBLISHED).node_inputs
    with pytest.raises(InvalidRequest, match="tried has no input"):
        _ = Model("tried", {}, (LOSS,), UNPUBLISHED).shapes
    with pytest.raises(InvalidRequest, match="the input 'row' cannot have shape"):
        _ = tried(Node("f", Linear(3)), row=(0,)).shapes


@given(lengths, lengths, st.integers(1, 8), paddings)
def test_windows_fit_and_one_more_does_not(
    length: int, kernel: int, stride: int, padding: Padding
) -> None:
    try:
        positions, before, after = window_axis(length, kernel, stride, padding)
    except InvalidRequest:
        assert padding != "same"
        return
    padded = length + before + after
    assert positions >= 1
    if padding != "same" or kernel >= stride:
        assert (positions - 1) * stride + kernel <= padded < positions * stride + kernel
    assert 0 <= after - before <= 1


@given(lengths, st.integers(1, 12), st.integers(1, 8), paddings)
def test_a_transposed_axis_reverses_a_window_axis(
    length: int, kernel: int, stride: int, padding: Padding
) -> None:
    try:
        wide = transposed_axis(length, kernel, stride, padding)
    except InvalidRequest:
        return
    assert window_axis(wide.positions, kernel, stride, padding).positions == length


def test_attention_and_lstm_do_the_products_that_they_state() -> None:
    """A product of n multiply-adds is 2 n FLOPs forward and 4 n backward."""
    for layer, features in ((AttentionHeads(4), 192), (LSTM(64), 64)):
        shapes = LayerShapes(3, ((12, features),), (12, 64))
        backward = (
            layer.shared_gradient_costs(shapes)
            | layer.parameter_gradient_costs(shapes)
            | layer.input_gradient_costs(shapes)
        )
        assert matmul_flops(layer.forward_costs(shapes)) == 2 * layer.macs(shapes)
        assert matmul_flops(backward) == 4 * layer.macs(shapes)


def matmul_flops(costs: OpCosts) -> int:
    return sum(cost.flops for cost in costs.values() if cost.kind == "matmul")


def test_a_loss_accepts_any_shape() -> None:
    assert MeanSquaredError().output_shape((3, 64, 64)) == ()
