"""Xception (Chollet 2017): convolutions whose channels are filtered one by one, then mixed."""

from functools import cache

from workloads.graph import Model, Node, Stated
from workloads.layers import Add, BatchNorm, Conv2d, Flatten, GlobalAvgPool, MaxPool, ReLU
from workloads.models.blocks import CLASSES, classified, conv_norm, conv_norm_relu


def separable(name: str, into: int, channels: int) -> tuple[Node, ...]:
    """A 3x3 window over each channel, a 1x1 over all of them, and their normalisation."""
    return (
        Node(f"{name}.depthwise", Conv2d(into, 3, padding="same", groups=into, bias=False)),
        Node(f"{name}.pointwise", Conv2d(channels, 1, bias=False)),
        Node(f"{name}.norm", BatchNorm()),
    )


def shrinking(
    name: str, feed: str, channels: tuple[int, int, int], first_relu: bool = True
) -> tuple[Node, ...]:
    """Two separable convolutions and a pool, and a 1x1 convolution past them."""
    into, between, out = channels
    past = conv_norm(f"{name}.past", out, 1, 2, feed=feed)
    start = (Node(f"{name}.relu1", ReLU(), (feed,)),) if first_relu else ()
    first, *rest = separable(f"{name}.a", into, between)
    return (
        *past,
        *start,
        first if first_relu else Node(first.name, first.layer, (feed,)),
        *rest,
        Node(f"{name}.relu2", ReLU()),
        *separable(f"{name}.b", between, out),
        Node(f"{name}.pool", MaxPool(3, 2, "same")),
        Node(name, Add(), (f"{name}.pool", past[-1].name)),
    )


def middle(name: str, feed: str, channels: int) -> tuple[Node, ...]:
    """Three separable convolutions, each behind a ReLU, and a shortcut past them."""
    nodes: tuple[Node, ...] = ()
    for at in "abc":
        nodes += (Node(f"{name}.{at}.relu", ReLU(), () if nodes else (feed,)),)
        nodes += separable(f"{name}.{at}", channels, channels)
    return (*nodes, Node(name, Add(), (nodes[-1].name, feed)))


@cache
def xception(side: int = 299, classes: int = CLASSES) -> Model:
    """Entry, middle and exit flow: 36 convolutions."""
    nodes = [*conv_norm_relu("first", 32, 3, 2, "valid")]
    nodes += conv_norm_relu("second", 64, 3, 1, "valid")
    nodes += shrinking("entry1", nodes[-1].name, (64, 128, 128), first_relu=False)
    nodes += shrinking("entry2", nodes[-1].name, (128, 256, 256))
    nodes += shrinking("entry3", nodes[-1].name, (256, 728, 728))
    for at in range(1, 9):
        nodes += middle(f"middle{at}", nodes[-1].name, 728)
    nodes += shrinking("exit1", nodes[-1].name, (728, 728, 1024))
    nodes += [*separable("exit2", 1024, 1536), Node("exit2", ReLU())]
    nodes += [*separable("exit3", 1536, 2048), Node("exit3", ReLU())]
    nodes += [Node("mean", GlobalAvgPool()), Node("flatten", Flatten()), *classified(classes)]
    source = "Chollet 2017, table 3: 22,855,952 parameters; 8.4 GMAC at 299x299"
    stated = Stated(22_855_952, 8_357_403_496, source)
    return Model("xception", {"image": (3, side, side)}, tuple(nodes), stated)
