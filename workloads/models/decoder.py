"""Small language models: decoders as in GPT-2, trained in full or by low-rank adapters (LoRA)."""

from dataclasses import dataclass
from functools import cache

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import (
    GELU,
    Add,
    AttentionHeads,
    Embedding,
    LayerNorm,
    Linear,
    PositionEmbedding,
    SoftmaxCrossEntropy,
    TiedLinear,
)
from workloads.protocol.faults import InvalidRequest

EMBEDDING_DEVIATION = 0.02  # as in GPT-2: the table is also the output layer
MLP_FACTOR = 4


@dataclass(frozen=True)
class DecoderSize:
    """The size of a decoder; every head has the same number of features."""

    vocabulary: int
    features: int
    layers: int
    heads: int


DECODER_SIZES = {
    "decoder-1m": DecoderSize(256, 128, 5, 4),
    "decoder-15m": DecoderSize(2048, 384, 8, 6),
}


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters: the rank, and whether the MLP gets them as well as the attention.

    An adapter adds x A B to a frozen layer (Hu et al. 2021). B starts at zero, and the scale is 1:
    alpha equals the rank.
    """

    rank: int
    mlp: bool = False


@cache
def decoder(name: str, time_steps: int = 128, adapters: Adapters | None = None) -> Model:
    """Return a decoder: learned positions, layer norms first, causal attention, tied output."""
    size = DECODER_SIZES[name]
    if adapters is not None and adapters.rank > size.features:
        raise InvalidRequest(f"lora_rank must be at most {size.features}, got {adapters.rank}")
    trainable = adapters is None
    table = Embedding(size.vocabulary, size.features, trainable, EMBEDDING_DEVIATION)
    nodes = [Node("tokens", table), Node("layer0", PositionEmbedding(trainable))]
    for number in range(1, size.layers + 1):
        nodes += _block(f"layer{number}", f"layer{number - 1}", size, adapters)
    nodes += [
        Node("norm", LayerNorm(trainable=trainable)),
        Node("logits", TiedLinear(size.vocabulary, trainable=trainable, table="tokens")),
        Node("loss", SoftmaxCrossEntropy()),
    ]
    return Model(name, {"text": (time_steps,)}, tuple(nodes), _published(size))


def _block(
    name: str, source: str, size: DecoderSize, adapters: Adapters | None
) -> tuple[Node, ...]:
    """Return attention and an MLP, each after a layer norm and with a shortcut."""
    width, trainable = size.features, adapters is None
    mlp = adapters if adapters is None or adapters.mlp else Adapters(0)
    return (
        Node(f"{name}.norm1", LayerNorm(trainable=trainable), (source,)),
        *_projection(f"{name}.qkv", 3 * width, f"{name}.norm1", adapters),
        Node(f"{name}.heads", AttentionHeads(size.heads, causal=True)),
        *_projection(f"{name}.out", width, f"{name}.heads", adapters),
        Node(f"{name}.add", Add(), (f"{name}.out", source)),
        Node(f"{name}.norm2", LayerNorm(trainable=trainable)),
        *_projection(f"{name}.wide", MLP_FACTOR * width, f"{name}.norm2", mlp),
        Node(f"{name}.gelu", GELU()),
        *_projection(f"{name}.narrow", width, f"{name}.gelu", mlp),
        Node(name, Add(), (f"{name}.narrow", f"{name}.add")),
    )


def _projection(
    name: str, features: int, source: str, adapters: Adapters | None
) -> tuple[Node, ...]:
    """Return a fully connected layer; with adapters it is frozen, and theirs are trained."""
    if adapters is None or adapters.rank == 0:
        return (Node(name, Linear(features, trainable=adapters is None), (source,)),)
    return (
        Node(f"{name}.base", Linear(features, trainable=False), (source,)),
        Node(f"{name}.a", Linear(adapters.rank, bias=False), (source,)),
        Node(f"{name}.b", Linear(features, bias=False, zero_start=True)),
        Node(name, Add(), (f"{name}.base", f"{name}.b")),
    )


def _published(size: DecoderSize, time_steps: int = 128) -> PublishedSize:
    """Return the size of GPT-2's architecture with these sizes, by hand."""
    width = size.features
    block = (4 + 2 * MLP_FACTOR) * width * width
    biases = (3 + 1 + MLP_FACTOR + 1 + 4) * width
    table, ends = size.vocabulary * width, (time_steps + 2) * width
    macs = time_steps * (size.layers * (block + 2 * time_steps * width) + table)
    source = "GPT-2 (Radford et al. 2019) with fewer and narrower layers; counted by hand"
    return PublishedSize(table + ends + size.layers * (block + biases), macs, source)
