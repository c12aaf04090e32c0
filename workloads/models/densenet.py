"""DenseNet of growth 12 for CIFAR (Huang et al. 2017), without bottlenecks and compression.

Every layer reads the outputs of all earlier layers, which are concatenated by copying; that makes
these small models large in memory. The dropout of 0.2, for data without augmentation, is left out.
"""

from functools import cache

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import AvgPool, BatchNorm, Concat, Conv2d, Flatten, GlobalAvgPool, ReLU
from workloads.models.blocks import STUDY_CLASSES, classifier_head

GROWTH = 12
PUBLISHED = {
    40: PublishedSize(1_019_722, 264_812_928, "Huang et al. 2017, table 2: 1.0 M parameters"),
    100: PublishedSize(6_979_642, 1_769_516_448, "Huang et al. 2017, table 2: 7.0 M parameters"),
}


def _norm_relu_conv(name: str, channels: int, kernel: int) -> tuple[Node, ...]:
    return (
        Node(f"{name}.norm", BatchNorm()),
        Node(f"{name}.relu", ReLU()),
        Node(f"{name}.conv", Conv2d(channels, kernel, padding="same", bias=False)),
    )


@cache
def densenet(depth: int, side: int = 32, classes: int = STUDY_CLASSES) -> Model:
    """Return three dense blocks of (depth - 4) / 3 layers: DenseNet40-12 or DenseNet100-12."""
    channels, layers = 16, (depth - 4) // 3
    nodes = [Node("first", Conv2d(channels, 3, padding="same", bias=False))]
    for block in (1, 2, 3):
        if block > 1:
            nodes += _norm_relu_conv(f"transition{block - 1}", channels, 1)
            nodes.append(Node(f"transition{block - 1}", AvgPool(2, 2)))
        for index in range(1, layers + 1):
            name, source = f"block{block}.{index}", nodes[-1].name
            nodes += _norm_relu_conv(name, GROWTH, 3)
            nodes.append(Node(name, Concat(), (source, f"{name}.conv")))
            channels += GROWTH
    nodes += [Node("last.norm", BatchNorm()), Node("last.relu", ReLU())]
    nodes += [Node("mean", GlobalAvgPool()), Node("flatten", Flatten()), *classifier_head(classes)]
    return Model(f"densenet{depth}", {"image": (3, side, side)}, tuple(nodes), PUBLISHED[depth])
