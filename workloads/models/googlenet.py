"""GoogLeNet as EMDL'21 coded it, with 10 classes, without auxiliary heads and batch norm.

Quirks that its published times contain: the stride 2 of conv1 was carried into conv2 (and conv3,
where it changes nothing), which leaves 31 % of the textbook's multiply-adds; no activation
anywhere; and the softmax runs along an axis of length one, so that the model always says 1 and
learns nothing.
"""

from functools import cache

from workloads.graph import Model, Node, Stated
from workloads.layers import (
    Concat,
    Conv2d,
    CrossEntropy,
    Flatten,
    GlobalAvgPool,
    MaxPool,
    Softmax,
)


def inception(name: str, feed: str, *channels: int) -> tuple[Node, ...]:
    """Four branches side by side: 1x1, 3x3 and 5x5 behind a reduction, 1x1 behind a pool."""
    one, three_reduced, three, five_reduced, five, pooled = channels
    branches = tuple(f"{name}.{branch}" for branch in ("one", "three", "five", "pooled"))
    return (
        Node(branches[0], Conv2d(one, 1), (feed,)),
        Node(f"{name}.three_reduce", Conv2d(three_reduced, 1), (feed,)),
        Node(branches[1], Conv2d(three, 3, padding="same")),
        Node(f"{name}.five_reduce", Conv2d(five_reduced, 1), (feed,)),
        Node(branches[2], Conv2d(five, 5, padding="same")),
        Node(f"{name}.pool", MaxPool(3, 1, "same"), (feed,)),
        Node(branches[3], Conv2d(pooled, 1)),
        Node(name, Concat(), branches),
    )


def _googlenet(name: str, carried_stride: int, stated: Stated) -> Model:
    return Model(
        name,
        {"image": (3, 224, 224)},
        (
            Node("conv1", Conv2d(64, 7, stride=2, padding="same")),
            Node("pool1", MaxPool(3, 2, "same")),
            Node("conv2", Conv2d(192, 3, stride=carried_stride, padding="same")),
            Node("pool2", MaxPool(3, 2, "same")),
            *inception("incep1", "pool2", 64, 96, 128, 16, 32, 32),
            *inception("incep2", "incep1", 128, 128, 192, 32, 96, 64),
            Node("pool3", MaxPool(3, 2, "same")),
            *inception("incep3", "pool3", 192, 96, 208, 16, 48, 64),
            *inception("incep4", "incep3", 160, 112, 224, 24, 64, 64),
            *inception("incep5", "incep4", 128, 128, 256, 24, 64, 64),
            *inception("incep6", "incep5", 112, 144, 288, 32, 64, 64),
            *inception("incep7", "incep6", 256, 160, 320, 32, 128, 128),
            Node("pool4", MaxPool(3, 2, "same")),
            *inception("incep8", "pool4", 256, 160, 320, 32, 128, 128),
            *inception("incep9", "incep8", 384, 192, 384, 48, 128, 128),
            # Coded as a 7x7 window; over the 4x4 pixels that are left the framework cuts it.
            Node("pool5", GlobalAvgPool()),
            Node("conv3", Conv2d(10, 1, stride=carried_stride)),
            Node("softmax", Softmax(axis=-1)),
            Node("flatten", Flatten()),
            Node("loss", CrossEntropy()),
        ),
        stated,
    )


@cache
def googlenet() -> Model:
    """Nine inceptions, as coded."""
    source = "EMDL'21 as coded: 5.98 M parameters, 490.04 MMAC"
    return _googlenet("emdl-googlenet", 2, Stated(5_979_642, 490_041_088, source))


@cache
def googlenet_textbook() -> Model:
    """The same without the carried stride: what the layers cost in the literature."""
    source = "Szegedy et al. 2015: about 1.5 G multiply-adds; 1568.81 MMAC with 10 classes"
    return _googlenet("googlenet", 1, Stated(5_979_642, 1_568_813_056, source))
