"""Residual networks (He et al. 2016): ResNet-20 for 32x32 images, the deep ones for 224x224.

The stride of a bottleneck is that of its 3x3 window, as torchvision has it. Where a shortcut has to
change its shape it is a 1x1 convolution (option B of the paper), also in ResNet-20.
"""

from functools import cache

from workloads.graph import Model, Node, Stated
from workloads.layers import Add, Flatten, GlobalAvgPool, MaxPool, ReLU
from workloads.models.blocks import CLASSES, FEW_CLASSES, classified, conv_norm, conv_norm_relu

# Blocks a stage, parameters and multiply-adds of the deep ones, as torchvision counts them.
DEEP = {
    50: ((3, 4, 6, 3), 25_557_032, 4_089_184_256),
    101: ((3, 4, 23, 3), 44_549_160, 7_801_405_440),
    152: ((3, 8, 36, 3), 60_192_808, 11_513_626_624),
}


def _shortcut(name: str, feed: str, channels: int, stride: int, first: bool) -> tuple[Node, ...]:
    return conv_norm(f"{name}.past", channels, 1, stride, 0, feed=feed) if first else ()


def _joined(name: str, branch: Node, past: str) -> tuple[Node, Node]:
    return Node(f"{name}.add", Add(), (branch.name, past)), Node(name, ReLU())


def basic(name: str, feed: str, channels: int, stride: int, first: bool) -> tuple[Node, ...]:
    """Two 3x3 convolutions, and a shortcut past them."""
    past = _shortcut(name, feed, channels, stride, first)
    nodes = (
        *past,
        *conv_norm_relu(f"{name}.a", channels, 3, stride, 1, feed=feed),
        *conv_norm(f"{name}.b", channels, 3, 1, 1),
    )
    return (*nodes, *_joined(name, nodes[-1], past[-1].name if past else feed))


def bottleneck(name: str, feed: str, channels: int, stride: int, first: bool) -> tuple[Node, ...]:
    """1x1, 3x3, 1x1 to four times the channels, and a shortcut past them."""
    past = _shortcut(name, feed, 4 * channels, stride, first)
    nodes = (
        *past,
        *conv_norm_relu(f"{name}.a", channels, 1, feed=feed),
        *conv_norm_relu(f"{name}.b", channels, 3, stride, 1),
        *conv_norm(f"{name}.c", 4 * channels, 1),
    )
    return (*nodes, *_joined(name, nodes[-1], past[-1].name if past else feed))


@cache
def resnet(depth: int, side: int = 224, classes: int = CLASSES) -> Model:
    """Four stages of bottlenecks: 50, 101 or 152 layers."""
    repeats, parameters, macs = DEEP[depth]
    nodes = [*conv_norm_relu("first", 64, 7, 2, 3), Node("pool", MaxPool(3, 2, 1))]
    for stage, count in enumerate(repeats):
        for at in range(count):
            stride = 2 if stage and not at else 1
            name = f"stage{stage + 1}.{at + 1}"
            nodes += bottleneck(name, nodes[-1].name, 64 << stage, stride, first=not at)
    nodes += [Node("mean", GlobalAvgPool()), Node("flatten", Flatten()), *classified(classes)]
    source = f"He et al. 2016; torchvision's resnet{depth}, 224x224, 1000 classes"
    stated = Stated(parameters, macs, source)
    return Model(f"resnet{depth}", {"image": (3, side, side)}, tuple(nodes), stated)


@cache
def resnet20(side: int = 32, classes: int = FEW_CLASSES) -> Model:
    """Three stages of three basic blocks of 16, 32 and 64 channels."""
    nodes = [*conv_norm_relu("first", 16, 3, 1, 1)]
    for stage, channels in enumerate((16, 32, 64)):
        for at in range(3):
            stride = 2 if stage and not at else 1
            name = f"stage{stage + 1}.{at + 1}"
            nodes += basic(name, nodes[-1].name, channels, stride, first=bool(stage) and not at)
    nodes += [Node("mean", GlobalAvgPool()), Node("flatten", Flatten()), *classified(classes)]
    source = "He et al. 2016, section 4.2: 0.27 M parameters; the rest by hand, with option B"
    stated = Stated(272_474, 40_813_184, source)
    return Model("resnet20", {"image": (3, side, side)}, tuple(nodes), stated)
