"""Models of text: a character LSTM, characters by LSTM and convolution, BERT, seq2seq."""

from functools import cache

from workloads.data import labels, token_class, tokens
from workloads.graph import TARGET, Model, Node, Stated
from workloads.layers import (
    GELU,
    LSTM,
    Add,
    Attention,
    Concat,
    Dropout,
    Embedding,
    Flatten,
    LastMoment,
    LayerNorm,
    Linear,
    Positions,
    RepeatMoment,
    Reshape,
    SoftmaxCrossEntropy,
    Tanh,
)
from workloads.models.blocks import FEW_CLASSES, classified, conv_relu

CHARACTERS = 65  # of the collected Shakespeare
BERT_SYMBOLS, BERT_FEATURES, BERT_LAYERS, BERT_HEADS = 30_522, 768, 12, 12
LANGUAGE_SYMBOLS, STATES = 32_000, 2048


@cache
def char_lstm(moments: int = 50) -> Model:
    """Karpathy's char-rnn in its default size: two LSTMs of 128, the next character at each moment.

    The table of symbols has 128 features, as in its TensorFlow edition.
    """
    source = "char-rnn (Karpathy 2015), 2 x 128, 65 characters: 279,873 by hand"
    macs = 50 * (2 * 4 * 128 * 256 + 128 * CHARACTERS)
    return Model(
        "char-lstm",
        {"text": (moments,)},
        (
            Node("symbols", Embedding(CHARACTERS, 128)),
            Node("lstm1", LSTM(128)),
            Node("lstm2", LSTM(128)),
            *classified(CHARACTERS),
        ),
        Stated(279_873, macs, source),
    )


@cache
def char_cnn(moments: int = 30, classes: int = FEW_CLASSES) -> Model:
    """Whose text is it? An LSTM, and convolutions over its states as an image of moments.

    The TX2 study says of its model: LSTM and convolution, 1 M parameters, 23 M multiply-adds,
    Shakespeare. The sizes are ours, chosen to have the same.
    """
    source = "arXiv 1906.04278, table of models: 1 M parameters, 23 M multiply-adds"
    return Model(
        "char-cnn",
        {"text": (moments,)},
        (
            Node("symbols", Embedding(CHARACTERS, 64)),
            Node("lstm", LSTM(320)),
            Node("as_image", Reshape((1, moments, 320))),
            *conv_relu("conv1", 32, 5, 2),
            *conv_relu("conv2", 32, 3, 2),
            Node("flatten", Flatten()),
            *classified(classes),
        ),
        Stated(711_850, 22_768_640, source),
        data={"text": token_class(CHARACTERS, classes), TARGET: labels(classes)},
    )


def _transformer(name: str, feed: str) -> tuple[Node, ...]:
    """Attention and two full connections, a shortcut past each, normalised behind it."""
    return (
        Node(f"{name}.attention", Attention(BERT_HEADS), (feed,)),
        Node(f"{name}.dropout1", Dropout(0.1)),
        Node(f"{name}.add1", Add(), (f"{name}.dropout1", feed)),
        Node(f"{name}.norm1", LayerNorm(epsilon=1e-12)),
        Node(f"{name}.wide", Linear(4 * BERT_FEATURES)),
        Node(f"{name}.gelu", GELU()),
        Node(f"{name}.narrow", Linear(BERT_FEATURES)),
        Node(f"{name}.dropout2", Dropout(0.1)),
        Node(f"{name}.add2", Add(), (f"{name}.dropout2", f"{name}.norm1")),
        Node(name, LayerNorm(epsilon=1e-12)),
    )


@cache
def bert(moments: int = 512, classes: int = 2) -> Model:
    """BERT-base (Devlin et al. 2019) that says yes or no about a text.

    Where the authors read the first moment, this reads the last, at the same cost. It has as many
    positions as the text is long, 512 at most.
    """
    source = "Devlin et al. 2019: 110 M; 109,482,240 with its pooler, and 1,538 for the answer"
    nodes = [
        Node("symbols", Embedding(BERT_SYMBOLS, BERT_FEATURES), ("text",)),
        Node("segments", Embedding(2, BERT_FEATURES), ("segment",)),
        Node("sum", Add(), ("symbols", "segments")),
        Node("positions", Positions()),
        Node("norm", LayerNorm(epsilon=1e-12)),
        Node("dropout", Dropout(0.1)),
    ]
    for at in range(1, BERT_LAYERS + 1):
        nodes += _transformer(f"layer{at}", nodes[-1].name)
    nodes += [
        Node("last", LastMoment()),
        Node("pooler", Linear(BERT_FEATURES)),
        Node("tanh", Tanh()),
        *classified(classes),
    ]
    return Model(
        "bert",
        {"text": (moments,), "segment": (moments,)},
        tuple(nodes),
        Stated(109_483_778, 48_318_973_440, source),
        data={
            "text": token_class(BERT_SYMBOLS, classes),
            "segment": tokens(2),
            TARGET: labels(classes),
        },
    )


@cache
def seq2seq(moments: int = 128) -> Model:
    """Translation (Cho et al. 2014): the last state of one text is at hand all through another.

    The TX2 study says of its model: two layers of LSTM, 348 M parameters, 28 G multiply-adds. The
    sizes are ours, chosen to have the same: 2048 states, two languages of 32,000 symbols.
    """
    source = "arXiv 1906.04278, table of models: 348 M parameters, 28 G multiply-adds"
    return Model(
        "seq2seq",
        {"source": (moments,), "given": (moments,)},
        (
            Node("source_symbols", Embedding(LANGUAGE_SYMBOLS, STATES), ("source",)),
            Node("encoder1", LSTM(STATES)),
            Node("encoder2", LSTM(STATES)),
            Node("meaning", LastMoment()),
            Node("at_hand", RepeatMoment(moments)),
            Node("given_symbols", Embedding(LANGUAGE_SYMBOLS, STATES), ("given",)),
            Node("both", Concat(axis=1), ("given_symbols", "at_hand")),
            Node("decoder1", LSTM(STATES)),
            Node("decoder2", LSTM(STATES)),
            Node("symbols", Linear(LANGUAGE_SYMBOLS)),
            Node("loss", SoftmaxCrossEntropy()),
        ),
        Stated(347_667_712, 27_715_960_832, source),
        data={"source": tokens(LANGUAGE_SYMBOLS), "given": tokens(LANGUAGE_SYMBOLS)},
    )
