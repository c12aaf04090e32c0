"""MobileNetV2 of width 1.0 (Sandler et al. 2018), which EMDL'21 trained without changes."""

from functools import cache

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import Add, BatchNorm, Conv2d, Dropout, Flatten, GlobalAvgPool, ReLU6
from workloads.models.blocks import IMAGENET_CLASSES, classifier_head

# Expansion, channels, repeats, stride of the first block: table 2 of Sandler et al. 2018.
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv_norm(
    name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[Node, Node]:
    """Return a convolution and its batch norm, whose running statistics change slowly."""
    conv = Conv2d(channels, kernel, stride, "same", groups, bias=False)
    return Node(f"{name}.conv", conv), Node(f"{name}.norm", BatchNorm(momentum=0.999))


def inverted_residual(
    name: str, source: str, n_in: int, channels: int, expansion: int, stride: int
) -> tuple[Node, ...]:
    """Return expansion, depthwise convolution, projection, and a shortcut if shapes match."""
    wide = n_in * expansion
    nodes: tuple[Node, ...] = ()
    if expansion != 1:
        nodes += (*_conv_norm(f"{name}.expand", wide, 1), Node(f"{name}.expand.relu6", ReLU6()))
    nodes += (
        *_conv_norm(f"{name}.depthwise", wide, 3, stride, groups=wide),
        Node(f"{name}.depthwise.relu6", ReLU6()),
        *_conv_norm(f"{name}.project", channels, 1),
    )
    if stride == 1 and n_in == channels:
        nodes += (Node(f"{name}.add", Add(), (nodes[-1].name, source)),)
    return nodes


@cache
def mobilenetv2(
    side: int = 224,
    classes: int = IMAGENET_CLASSES,
    dropout: float = 0.2,
    name: str = "mobilenetv2",
) -> Model:
    """Return seventeen inverted residual blocks between two convolutions."""
    nodes = [*_conv_norm("first", 32, 3, stride=2), Node("first.relu6", ReLU6())]
    n_in = 32
    for stage, (expansion, channels, repeats, first_stride) in enumerate(BLOCKS, start=1):
        for repeat in range(1, repeats + 1):
            stride = first_stride if repeat == 1 else 1
            block = f"block{stage}.{repeat}"
            nodes += inverted_residual(block, nodes[-1].name, n_in, channels, expansion, stride)
            n_in = channels
    nodes += [
        *_conv_norm("last", 1280, 1),
        Node("last.relu6", ReLU6()),
        Node("pool", GlobalAvgPool()),
        Node("flatten", Flatten()),
        Node("dropout", Dropout(dropout)),
        *classifier_head(classes),
    ]
    source = "Sandler et al. 2018, table 4: 3.4 M parameters, 300 M multiply-adds"
    published = PublishedSize(3_504_872, 300_774_272, source)
    return Model(name, {"image": (3, side, side)}, tuple(nodes), published)


@cache
def emdl_mobilenetv2(name: str = "emdl-mobilenetv2") -> Model:
    """Return EMDL'21's version: its demonstration set uses few of the classes, at the same cost."""
    return mobilenetv2(dropout=0.1, name=name)
