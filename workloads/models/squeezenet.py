"""SqueezeNet 1.0 (Iandola et al. 2016), which two of the studies had, and EMDL'21's form of it."""

from functools import cache

from workloads.data import dark_images
from workloads.graph import Model, Node, Stated
from workloads.layers import (
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    Flatten,
    GlobalAvgPool,
    MaxPool,
    SoftmaxCrossEntropy,
)
from workloads.models.blocks import CLASSES, FEW_CLASSES, conv_relu


def fire(name: str, squeeze: int, expand: int) -> tuple[Node, ...]:
    """Squeeze to few channels, expand by two kinds of windows, join."""
    return (
        *conv_relu(f"{name}.squeeze", squeeze, 1),
        *conv_relu(f"{name}.expand1", expand, 1, feed=f"{name}.squeeze"),
        *conv_relu(f"{name}.expand3", expand, 3, feed=f"{name}.squeeze"),
        Node(name, Concat(), (f"{name}.expand1", f"{name}.expand3")),
    )


@cache
def squeezenet(side: int = 224, classes: int = CLASSES) -> Model:
    """Eight fire modules between two convolutions.

    The second pool keeps a last column of windows that hang over the edge, as the authors' does.
    Behind the last convolution they put a ReLU; it is left out, since it stops learning for good
    whenever all of its outputs fall below zero, and costs next to nothing.
    """
    source = "Iandola et al. 2016; torchvision's squeezenet1_0, 224x224, 1000 classes"
    return Model(
        "squeezenet",
        {"image": (3, side, side)},
        (
            *conv_relu("conv1", 96, 7, 2, "valid"),
            Node("pool1", MaxPool(3, 2)),
            *fire("fire2", 16, 64),
            *fire("fire3", 16, 64),
            *fire("fire4", 32, 128),
            Node("pool4", MaxPool(3, 2, "same")),
            *fire("fire5", 32, 128),
            *fire("fire6", 48, 192),
            *fire("fire7", 48, 192),
            *fire("fire8", 64, 256),
            Node("pool8", MaxPool(3, 2)),
            *fire("fire9", 64, 256),
            Node("dropout9", Dropout(0.5)),
            Node("conv10", Conv2d(classes, 1)),
            Node("mean", GlobalAvgPool()),
            Node("flatten", Flatten()),
            Node("loss", SoftmaxCrossEntropy()),
        ),
        Stated(1_248_424, 818_924_576, source),
    )


def _bare_fire(name: str, squeeze: int, expand: int) -> tuple[Node, ...]:
    return (
        Node(f"{name}.squeeze", Conv2d(squeeze, 1)),
        Node(f"{name}.expand1", Conv2d(expand, 1), (f"{name}.squeeze",)),
        Node(f"{name}.expand3", Conv2d(expand, 3, padding="same"), (f"{name}.squeeze",)),
        Node(f"{name}.join", Concat(), (f"{name}.expand1", f"{name}.expand3")),
    )


@cache
def emdl_squeezenet() -> Model:
    """As EMDL'21 coded it, with 10 classes; its published times contain the quirks.

    The stride 2 of conv1 was carried into conv2; there is no activation anywhere, and no softmax,
    so that the logarithm is taken of raw numbers and the loss was not a number.
    """
    return Model(
        "emdl-squeezenet",
        {"image": (3, 224, 224)},
        (
            Node("conv1", Conv2d(96, 7, stride=2, padding="same")),
            Node("pool1", MaxPool(3, 2, "same")),
            *_bare_fire("fire1", 16, 64),
            *_bare_fire("fire2", 16, 64),
            *_bare_fire("fire3", 32, 128),
            Node("pool3", MaxPool(3, 2, "same")),
            *_bare_fire("fire4", 32, 128),
            *_bare_fire("fire5", 48, 192),
            *_bare_fire("fire6", 48, 192),
            *_bare_fire("fire7", 64, 256),
            Node("pool7", MaxPool(3, 2, "same")),
            *_bare_fire("fire8", 64, 256),
            Node("conv2", Conv2d(10, 1, stride=2)),
            # Coded as a 14x14 window; over the 7x7 pixels that are left the framework cuts it.
            Node("pool8", GlobalAvgPool()),
            Node("flatten", Flatten()),
            Node("loss", CrossEntropy()),
        ),
        Stated(740_554, 787_411_968, "EMDL'21 as coded: 0.74 M parameters, 787.41 MMAC"),
        data={"image": dark_images(FEW_CLASSES)},
    )
