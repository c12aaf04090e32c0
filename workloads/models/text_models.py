"""Language models: a character LSTM, a character LSTM with convolutions, BERT, seq2seq."""

from functools import cache

from workloads.data_columns import class_tokens, labels, tokens
from workloads.graph import TARGET, Model, Node, PublishedSize
from workloads.layers import (
    GELU,
    LSTM,
    Add,
    AttentionHeads,
    Concat,
    Dropout,
    Embedding,
    Flatten,
    LastTimeStep,
    LayerNorm,
    Linear,
    PositionEmbedding,
    RepeatVector,
    Reshape,
    SoftmaxCrossEntropy,
    Tanh,
)
from workloads.models.blocks import STUDY_CLASSES, classifier_head, conv_relu

CHARACTERS = 65  # in the collected works of Shakespeare
BERT_VOCABULARY, BERT_FEATURES, BERT_LAYERS, BERT_HEADS = 30_522, 768, 12, 12
SEQ2SEQ_VOCABULARY, STATES = 32_000, 2048


@cache
def char_lstm(time_steps: int = 50) -> Model:
    """Return Karpathy's char-rnn in its default size: two LSTMs of 128 predict the next character.

    The embedding has 128 features, as in its TensorFlow port.
    """
    source = "char-rnn (Karpathy 2015), 2 x 128, 65 characters: 279,873 by hand"
    macs = 50 * (2 * 4 * 128 * 256 + 128 * CHARACTERS)
    return Model(
        "char-lstm",
        {"text": (time_steps,)},
        (
            Node("tokens", Embedding(CHARACTERS, 128)),
            Node("lstm1", LSTM(128)),
            Node("lstm2", LSTM(128)),
            *classifier_head(CHARACTERS),
        ),
        PublishedSize(279_873, macs, source),
    )


@cache
def char_cnn(time_steps: int = 30, classes: int = STUDY_CLASSES) -> Model:
    """Return a classifier of texts: an LSTM, and convolutions over its states as an image.

    The TX2 study describes its model as LSTM and convolution, 1 M parameters, 23 M multiply-adds,
    Shakespeare. The layer sizes were chosen to match these totals.
    """
    source = "arXiv 1906.04278, table of models: 1 M parameters, 23 M multiply-adds"
    return Model(
        "char-cnn",
        {"text": (time_steps,)},
        (
            Node("tokens", Embedding(CHARACTERS, 64)),
            Node("lstm", LSTM(320)),
            Node("as_image", Reshape((1, time_steps, 320))),
            *conv_relu("conv1", 32, 5, 2),
            *conv_relu("conv2", 32, 3, 2),
            Node("flatten", Flatten()),
            *classifier_head(classes),
        ),
        PublishedSize(711_850, 22_768_640, source),
        data={"text": class_tokens(CHARACTERS, classes), TARGET: labels(classes)},
    )


def _transformer(name: str, source: str) -> tuple[Node, ...]:
    """Return attention and two fully connected layers, each with a shortcut and a layer norm."""
    return (
        Node(f"{name}.qkv", Linear(3 * BERT_FEATURES), (source,)),
        Node(f"{name}.heads", AttentionHeads(BERT_HEADS)),
        Node(f"{name}.out", Linear(BERT_FEATURES)),
        Node(f"{name}.dropout1", Dropout(0.1)),
        Node(f"{name}.add1", Add(), (f"{name}.dropout1", source)),
        Node(f"{name}.norm1", LayerNorm(epsilon=1e-12)),
        Node(f"{name}.wide", Linear(4 * BERT_FEATURES)),
        Node(f"{name}.gelu", GELU()),
        Node(f"{name}.narrow", Linear(BERT_FEATURES)),
        Node(f"{name}.dropout2", Dropout(0.1)),
        Node(f"{name}.add2", Add(), (f"{name}.dropout2", f"{name}.norm1")),
        Node(name, LayerNorm(epsilon=1e-12)),
    )


@cache
def bert(time_steps: int = 512, classes: int = 2) -> Model:
    """Return BERT-base (Devlin et al. 2019) as a binary classifier of texts.

    The authors read the first time step, this model the last, at the same cost. It has one position
    per token of the text, at most 512.
    """
    source = "Devlin et al. 2019: 110 M; 109,482,240 with its pooler, and 1,538 for the answer"
    nodes = [
        Node("tokens", Embedding(BERT_VOCABULARY, BERT_FEATURES), ("text",)),
        Node("segments", Embedding(2, BERT_FEATURES), ("segment",)),
        Node("sum", Add(), ("tokens", "segments")),
        Node("positions", PositionEmbedding()),
        Node("norm", LayerNorm(epsilon=1e-12)),
        Node("dropout", Dropout(0.1)),
    ]
    for index in range(1, BERT_LAYERS + 1):
        nodes += _transformer(f"layer{index}", nodes[-1].name)
    nodes += [
        Node("last", LastTimeStep()),
        Node("pooler", Linear(BERT_FEATURES)),
        Node("tanh", Tanh()),
        *classifier_head(classes),
    ]
    return Model(
        "bert",
        {"text": (time_steps,), "segment": (time_steps,)},
        tuple(nodes),
        PublishedSize(109_483_778, 48_318_973_440, source),
        data={
            "text": class_tokens(BERT_VOCABULARY, classes),
            "segment": tokens(2),
            TARGET: labels(classes),
        },
    )


@cache
def seq2seq(time_steps: int = 128) -> Model:
    """Return a translator (Cho et al. 2014): the decoder reads the encoder's last state throughout.

    The TX2 study describes its model as two layers of LSTM, 348 M parameters, 28 G multiply-adds.
    The sizes were chosen to match: 2048 states, two languages of 32,000 tokens.
    """
    source = "arXiv 1906.04278, table of models: 348 M parameters, 28 G multiply-adds"
    return Model(
        "seq2seq",
        {"source": (time_steps,), "target_text": (time_steps,)},
        (
            Node("source_tokens", Embedding(SEQ2SEQ_VOCABULARY, STATES), ("source",)),
            Node("encoder1", LSTM(STATES)),
            Node("encoder2", LSTM(STATES)),
            Node("context", LastTimeStep()),
            Node("repeated", RepeatVector(time_steps)),
            Node("target_tokens", Embedding(SEQ2SEQ_VOCABULARY, STATES), ("target_text",)),
            Node("both", Concat(axis=1), ("target_tokens", "repeated")),
            Node("decoder1", LSTM(STATES)),
            Node("decoder2", LSTM(STATES)),
            Node("logits", Linear(SEQ2SEQ_VOCABULARY)),
            Node("loss", SoftmaxCrossEntropy()),
        ),
        PublishedSize(347_667_712, 27_715_960_832, source),
        data={"source": tokens(SEQ2SEQ_VOCABULARY), "target_text": tokens(SEQ2SEQ_VOCABULARY)},
    )
