"""Xception (Chollet 2017), a network of depthwise separable convolutions."""

from functools import cache

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import Add, BatchNorm, Conv2d, Flatten, GlobalAvgPool, MaxPool, ReLU
from workloads.models.blocks import IMAGENET_CLASSES, classifier_head, conv_norm, conv_norm_relu


def separable(name: str, n_in: int, channels: int) -> tuple[Node, ...]:
    """Return a 3x3 depthwise convolution, a 1x1 convolution, and their batch normalization."""
    return (
        Node(f"{name}.depthwise", Conv2d(n_in, 3, padding="same", groups=n_in, bias=False)),
        Node(f"{name}.pointwise", Conv2d(channels, 1, bias=False)),
        Node(f"{name}.norm", BatchNorm()),
    )


def downsampling(
    name: str, source: str, channels: tuple[int, int, int], first_relu: bool = True
) -> tuple[Node, ...]:
    """Return two separable convolutions and a pool, and a 1x1 convolution as their shortcut."""
    n_in, between, n_out = channels
    shortcut = conv_norm(f"{name}.shortcut", n_out, 1, 2, source=source)
    start = (Node(f"{name}.relu1", ReLU(), (source,)),) if first_relu else ()
    first, *rest = separable(f"{name}.a", n_in, between)
    return (
        *shortcut,
        *start,
        first if first_relu else Node(first.name, first.layer, (source,)),
        *rest,
        Node(f"{name}.relu2", ReLU()),
        *separable(f"{name}.b", between, n_out),
        Node(f"{name}.pool", MaxPool(3, 2, "same")),
        Node(name, Add(), (f"{name}.pool", shortcut[-1].name)),
    )


def middle_block(name: str, source: str, channels: int) -> tuple[Node, ...]:
    """Return three separable convolutions, each after a ReLU, and a shortcut around them."""
    nodes: tuple[Node, ...] = ()
    for part in "abc":
        nodes += (Node(f"{name}.{part}.relu", ReLU(), () if nodes else (source,)),)
        nodes += separable(f"{name}.{part}", channels, channels)
    return (*nodes, Node(name, Add(), (nodes[-1].name, source)))


@cache
def xception(side: int = 299, classes: int = IMAGENET_CLASSES) -> Model:
    """Return entry, middle and exit flow: 36 convolutions."""
    nodes = [*conv_norm_relu("first", 32, 3, 2, "valid")]
    nodes += conv_norm_relu("second", 64, 3, 1, "valid")
    nodes += downsampling("entry1", nodes[-1].name, (64, 128, 128), first_relu=False)
    nodes += downsampling("entry2", nodes[-1].name, (128, 256, 256))
    nodes += downsampling("entry3", nodes[-1].name, (256, 728, 728))
    for index in range(1, 9):
        nodes += middle_block(f"middle{index}", nodes[-1].name, 728)
    nodes += downsampling("exit1", nodes[-1].name, (728, 728, 1024))
    nodes += [*separable("exit2", 1024, 1536), Node("exit2", ReLU())]
    nodes += [*separable("exit3", 1536, 2048), Node("exit3", ReLU())]
    nodes += [Node("mean", GlobalAvgPool()), Node("flatten", Flatten()), *classifier_head(classes)]
    source = "Chollet 2017, table 3: 22,855,952 parameters; 8.4 GMAC at 299x299"
    published = PublishedSize(22_855_952, 8_357_403_496, source)
    return Model("xception", {"image": (3, side, side)}, tuple(nodes), published)
