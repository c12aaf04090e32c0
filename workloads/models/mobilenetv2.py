"""MobileNetV2 of width 1.0 (Sandler et al. 2018); EMDL'21 trained it as the textbook has it."""

from functools import cache

from workloads.graph import Model, Node, Stated
from workloads.layers import Add, BatchNorm, Conv2d, Dropout, Flatten, GlobalAvgPool, ReLU6
from workloads.models.blocks import CLASSES, classified

# Expansion, channels, repeats, stride of the first: table 2 of Sandler et al. 2018.
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def conv_norm(
    name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[Node, Node]:
    """A convolution and its normalisation, whose running statistics are slow."""
    conv = Conv2d(channels, kernel, stride, "same", groups, bias=False)
    return Node(f"{name}.conv", conv), Node(f"{name}.norm", BatchNorm(momentum=0.999))


def bottleneck(
    name: str, feed: str, into: int, channels: int, expansion: int, stride: int
) -> tuple[Node, ...]:
    """Expand, filter each channel by itself, project; past it all goes a shortcut if shapes fit."""
    wide = into * expansion
    nodes: tuple[Node, ...] = ()
    if expansion != 1:
        nodes += (*conv_norm(f"{name}.expand", wide, 1), Node(f"{name}.expand.relu6", ReLU6()))
    nodes += (
        *conv_norm(f"{name}.depthwise", wide, 3, stride, groups=wide),
        Node(f"{name}.depthwise.relu6", ReLU6()),
        *conv_norm(f"{name}.project", channels, 1),
    )
    if stride == 1 and into == channels:
        nodes += (Node(f"{name}.add", Add(), (nodes[-1].name, feed)),)
    return nodes


@cache
def mobilenetv2(
    side: int = 224, classes: int = CLASSES, dropout: float = 0.2, name: str = "mobilenetv2"
) -> Model:
    """Seventeen bottlenecks between two convolutions."""
    nodes = [*conv_norm("first", 32, 3, stride=2), Node("first.relu6", ReLU6())]
    into = 32
    for stage, (expansion, channels, repeats, first_stride) in enumerate(BLOCKS, start=1):
        for repeat in range(1, repeats + 1):
            stride = first_stride if repeat == 1 else 1
            block = f"block{stage}.{repeat}"
            nodes += bottleneck(block, nodes[-1].name, into, channels, expansion, stride)
            into = channels
    nodes += [
        *conv_norm("last", 1280, 1),
        Node("last.relu6", ReLU6()),
        Node("pool", GlobalAvgPool()),
        Node("flatten", Flatten()),
        Node("dropout", Dropout(dropout)),
        *classified(classes),
    ]
    source = "Sandler et al. 2018, table 4: 3.4 M parameters, 300 M multiply-adds"
    stated = Stated(3_504_872, 300_774_272, source)
    return Model(name, {"image": (3, side, side)}, tuple(nodes), stated)


@cache
def emdl_mobilenetv2() -> Model:
    """As EMDL'21 trained it: its demonstration set uses few of the classes, at the same cost."""
    return mobilenetv2(dropout=0.1, name="emdl-mobilenetv2")
