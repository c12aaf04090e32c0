"""Residual networks (He et al. 2016): ResNet-20 for 32x32 images, the deep ones for 224x224.

The stride of a bottleneck is in its 3x3 convolution, as in torchvision. A shortcut that has to
change its shape is a 1x1 convolution (option B of the paper), in ResNet-20 as well.
"""

from functools import cache

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import Add, Flatten, GlobalAvgPool, MaxPool, ReLU
from workloads.models.blocks import (
    IMAGENET_CLASSES,
    STUDY_CLASSES,
    classifier_head,
    conv_norm,
    conv_norm_relu,
)

# Blocks per stage, parameters and multiply-adds of the deep ones, as torchvision counts them.
DEEP = {
    50: ((3, 4, 6, 3), 25_557_032, 4_089_184_256),
    101: ((3, 4, 23, 3), 44_549_160, 7_801_405_440),
    152: ((3, 8, 36, 3), 60_192_808, 11_513_626_624),
}


def _shortcut(name: str, source: str, channels: int, stride: int, first: bool) -> tuple[Node, ...]:
    return conv_norm(f"{name}.shortcut", channels, 1, stride, 0, source=source) if first else ()


def _add_shortcut(name: str, branch: Node, shortcut: str) -> tuple[Node, Node]:
    return Node(f"{name}.add", Add(), (branch.name, shortcut)), Node(name, ReLU())


def basic_block(
    name: str, source: str, channels: int, stride: int, first: bool
) -> tuple[Node, ...]:
    """Return two 3x3 convolutions, and a shortcut around them."""
    shortcut = _shortcut(name, source, channels, stride, first)
    nodes = (
        *shortcut,
        *conv_norm_relu(f"{name}.a", channels, 3, stride, 1, source=source),
        *conv_norm(f"{name}.b", channels, 3, 1, 1),
    )
    return (*nodes, *_add_shortcut(name, nodes[-1], shortcut[-1].name if shortcut else source))


def bottleneck(name: str, source: str, channels: int, stride: int, first: bool) -> tuple[Node, ...]:
    """Return 1x1, 3x3, 1x1 to four times the channels, and a shortcut around them."""
    shortcut = _shortcut(name, source, 4 * channels, stride, first)
    nodes = (
        *shortcut,
        *conv_norm_relu(f"{name}.a", channels, 1, source=source),
        *conv_norm_relu(f"{name}.b", channels, 3, stride, 1),
        *conv_norm(f"{name}.c", 4 * channels, 1),
    )
    return (*nodes, *_add_shortcut(name, nodes[-1], shortcut[-1].name if shortcut else source))


@cache
def resnet(depth: int, side: int = 224, classes: int = IMAGENET_CLASSES) -> Model:
    """Return four stages of bottlenecks: 50, 101 or 152 layers."""
    repeats, parameters, macs = DEEP[depth]
    nodes = [*conv_norm_relu("first", 64, 7, 2, 3), Node("pool", MaxPool(3, 2, 1))]
    for stage, count in enumerate(repeats):
        for index in range(count):
            stride = 2 if stage and not index else 1
            name = f"stage{stage + 1}.{index + 1}"
            nodes += bottleneck(name, nodes[-1].name, 64 << stage, stride, first=not index)
    nodes += [Node("mean", GlobalAvgPool()), Node("flatten", Flatten()), *classifier_head(classes)]
    source = f"He et al. 2016; torchvision's resnet{depth}, 224x224, 1000 classes"
    published = PublishedSize(parameters, macs, source)
    return Model(f"resnet{depth}", {"image": (3, side, side)}, tuple(nodes), published)


@cache
def resnet20(side: int = 32, classes: int = STUDY_CLASSES) -> Model:
    """Return three stages of three basic blocks of 16, 32 and 64 channels."""
    nodes = [*conv_norm_relu("first", 16, 3, 1, 1)]
    for stage, channels in enumerate((16, 32, 64)):
        for index in range(3):
            stride = 2 if stage and not index else 1
            name = f"stage{stage + 1}.{index + 1}"
            nodes += basic_block(
                name, nodes[-1].name, channels, stride, first=bool(stage) and not index
            )
    nodes += [Node("mean", GlobalAvgPool()), Node("flatten", Flatten()), *classifier_head(classes)]
    source = "He et al. 2016, section 4.2: 0.27 M parameters; the rest by hand, with option B"
    published = PublishedSize(272_474, 40_813_184, source)
    return Model("resnet20", {"image": (3, side, side)}, tuple(nodes), published)
