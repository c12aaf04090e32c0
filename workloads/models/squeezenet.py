"""SqueezeNet as EMDL'21 coded it, with 10 classes.

Quirks that its published times contain: the stride 2 of conv1 was carried into conv2; no activation
anywhere; and no softmax, so that the logarithm is taken of raw numbers and the loss was not a
number.
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
)


def fire(name: str, squeeze: int, expand: int) -> tuple[Node, ...]:
    """Squeeze to few channels, expand by two kinds of windows, join."""
    return (
        Node(f"{name}.squeeze", Conv2d(squeeze, 1)),
        Node(f"{name}.expand1", Conv2d(expand, 1), (f"{name}.squeeze",)),
        Node(f"{name}.expand3", Conv2d(expand, 3, padding="same"), (f"{name}.squeeze",)),
        Node(f"{name}.join", Concat(), (f"{name}.expand1", f"{name}.expand3")),
    )


@cache
def squeezenet() -> Model:
    """Eight fire modules between two convolutions."""
    return Model(
        "emdl-squeezenet",
        {"image": (3, 224, 224)},
        (
            Node("conv1", Conv2d(96, 7, stride=2, padding="same")),
            Node("pool1", MaxPool(3, 2, "same")),
            *fire("fire1", 16, 64),
            *fire("fire2", 16, 64),
            *fire("fire3", 32, 128),
            Node("pool3", MaxPool(3, 2, "same")),
            *fire("fire4", 32, 128),
            *fire("fire5", 48, 192),
            *fire("fire6", 48, 192),
            *fire("fire7", 64, 256),
            Node("pool7", MaxPool(3, 2, "same")),
            *fire("fire8", 64, 256),
            Node("conv2", Conv2d(10, 1, stride=2)),
            # Coded as a 14x14 window; over the 7x7 pixels that are left the framework cuts it.
            Node("pool8", GlobalAvgPool()),
            Node("flatten", Flatten()),
            Node("loss", CrossEntropy()),
        ),
        Stated(740_554, 787_411_968, "EMDL'21 as coded: 0.74 M parameters, 787.41 MMAC"),
    )
