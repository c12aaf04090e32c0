"""Layers: shapes, parameters, and one clear sentence for nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.fault import Refused
from workloads.graph import Model, Node, Stated
from workloads.layers import (
    LSTM,
    Add,
    Attention,
    AvgPool,
    Concat,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool,
    LastMoment,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    MeanSquaredError,
    Place,
    Positions,
    RepeatMoment,
    Reshape,
    Shape,
    Softmax,
    SoftmaxCrossEntropy,
    TemporalDifference,
    Upsample,
)
from workloads.layers.windows import Padding, slide, spread

UNSTATED = Stated(0, 0, "a test")
LOSS = Node("loss", SoftmaxCrossEntropy())
lengths = st.integers(1, 64)
paddings: st.SearchStrategy[Padding] = st.one_of(
    st.just("valid"), st.just("same"), st.integers(0, 4)
)


def tried(*nodes: Node, **inputs: Shape) -> Model:
    return Model("tried", inputs or {"image": (3, 32, 32)}, (*nodes, LOSS), UNSTATED)


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
        (Positions(), [(12, 16)], (12, 16), 192),
        (LastMoment(), [(12, 16)], (16,), 0),
        (RepeatMoment(12), [(16,)], (12, 16), 0),
        (Flatten(), [(4, 7, 7)], (196,), 0),
        (Embedding(100, 16), [(12,)], (12, 16), 1600),
        # As many as TensorFlow's; PyTorch has every bias twice.
        (LSTM(32), [(12, 16)], (12, 32), 4 * 32 * (16 + 32 + 1)),
        (Attention(4), [(12, 64)], (12, 64), 4 * 64 * 65),
    ],
    ids=lambda value: str(value) if isinstance(value, Layer) else "",
)
def test_a_layer_knows_its_shape_and_parameters(
    layer: Layer, inputs: list[Shape], shape: Shape, parameters: int
) -> None:
    names = {f"in{at}": given for at, given in enumerate(inputs)}
    model = Model("tried", names, (Node("it", layer, tuple(names)), LOSS), UNSTATED)
    assert shape == model.shapes["it"]
    assert parameters == model.parameters


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        (
            [Node("c", Conv2d(8, 40))],
            "tried, layer 'c': a window of 40 does not fit into 32 padded",
        ),
        ([Node("c", Conv2d(8, 0))], "a window and its stride are at least 1, not 0x0"),
        ([Node("c", Conv2d(8, 3, padding=-1))], "a window of 3 does not fit into 32 padded by -1"),
        ([Node("c", Conv2d(8, 3, groups=2))], "2 groups do not divide 3 and 8 channels"),
        ([Node("c", Conv2d(0, 3))], "its output cannot be (0, 30, 30)"),
        ([Node("c", Conv2d(8, 1, padding=16, transposed=True))], "leaves nothing when 16 is cut"),
        ([Node("f", Flatten()), Node("c", Conv2d(8, 3))], "it needs (channels, height, width) and"),
        ([Node("f", Linear(0))], "it makes 0 features of the shape (3, 32, 32)"),
        ([Node("d", Dropout(1.0))], "it drops a share from 0 up to, but not including, 1, not 1.0"),
        ([Node("s", Softmax(axis=3))], "the shape (3, 32, 32) has no axis 3"),
        ([Node("l", LSTM(4))], "it needs (time, features) and gets (3, 32, 32)"),
        (
            [Node("f", Flatten()), Node("a", Add(), ("f", "image"))],
            "(3072,) and (3, 32, 32) cannot",
        ),
        (
            [Node("p", MaxPool(2, 2)), Node("j", Concat(), ("p", "image"))],
            "differ in more than the",
        ),
        ([Node("j", Concat(axis=3), ("image", "image"))], "(3, 32, 32) has no axis 3"),
        ([Node("r", Reshape((3, 1000)))], "3072 values do not make the shape (3, 1000)"),
        ([Node("r", RepeatMoment(4))], "it needs (features,) and gets (3, 32, 32)"),
        ([Node("p", Positions())], "it needs (time, features) and gets (3, 32, 32)"),
        (
            [Node("t", TemporalDifference(), ("image",) * 4)],
            "it needs two rows of values, an action and a reward",
        ),
        ([Node("a", Add())], "it takes two inputs or more and is fed by 1"),
        ([Node("c", Conv2d(8, 3), ("image", "image"))], "it takes 1 input and is fed by 2"),
        (
            [Node("c", Conv2d(8, 3), ("d",)), Node("d", Flatten())],
            "nothing before it is called 'd'",
        ),
        ([Node("c", Flatten()), Node("c", Flatten())], "tried has two layers called 'c'"),
    ],
)
def test_nonsense_is_refused_with_one_sentence(nodes: list[Node], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        _ = tried(*nodes).shapes
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("tried")
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_a_model_ends_in_a_loss_and_begins_with_a_shape() -> None:
    with pytest.raises(Refused, match="tried does not end in a loss"):
        _ = Model("tried", {"row": (3,)}, (Node("f", Linear(3)),), UNSTATED).feeds
    with pytest.raises(Refused, match="tried has no input"):
        _ = Model("tried", {}, (LOSS,), UNSTATED).shapes
    with pytest.raises(Refused, match="the input 'row' cannot have the shape"):
        _ = tried(Node("f", Linear(3)), row=(0,)).shapes


@given(lengths, lengths, st.integers(1, 8), paddings)
def test_windows_fit_and_no_further_one_would(
    length: int, kernel: int, stride: int, padding: Padding
) -> None:
    try:
        positions, before, after = slide(length, kernel, stride, padding)
    except Refused:
        assert padding != "same"
        return
    padded = length + before + after
    assert positions >= 1
    if padding != "same" or kernel >= stride:
        assert (positions - 1) * stride + kernel <= padded < positions * stride + kernel
    assert 0 <= after - before <= 1


@given(lengths, st.integers(1, 12), st.integers(1, 8), paddings)
def test_spreading_is_the_reverse_of_sliding(
    length: int, kernel: int, stride: int, padding: Padding
) -> None:
    try:
        wide = spread(length, kernel, stride, padding)
    except Refused:
        return
    assert length == slide(wide.positions, kernel, stride, padding).positions


def test_attention_and_lstm_do_the_products_that_they_state() -> None:
    """A product of n multiply-adds is 2 n FLOPs, forward; twice that again, backward."""
    for layer in (Attention(4), LSTM(64)):
        at = Place(3, ((12, 64),), (12, 64))
        forward = [count for count in layer.forward(at).values() if count.kind == "matmul"]
        backward = [
            count
            for counts in (
                layer.inner_gradients(at),
                layer.parameter_gradients(at),
                layer.input_gradients(at),
            )
            for count in counts.values()
            if count.kind == "matmul"
        ]
        assert 2 * layer.macs(at) == sum(count.flops for count in forward)
        assert 4 * layer.macs(at) == sum(count.flops for count in backward)


def test_a_loss_asks_for_no_particular_shape() -> None:
    assert () == MeanSquaredError().shape((3, 64, 64))
