"""SqueezeNet 1.0 (Iandola et al. 2016), used by two of the studies, and EMDL'21's version of it."""

from functools import cache

from workloads.data_columns import images_from_0_to_1
from workloads.graph import Model, Node, PublishedSize
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
from workloads.models.blocks import IMAGENET_CLASSES, STUDY_CLASSES, bare_conv, conv_relu


def fire(name: str, squeeze: int, expand: int) -> tuple[Node, ...]:
    """Return a fire module: squeeze to few channels, expand by 1x1 and 3x3, concatenate."""
    return (
        *conv_relu(f"{name}.squeeze", squeeze, 1),
        *conv_relu(f"{name}.expand1", expand, 1, source=f"{name}.squeeze"),
        *conv_relu(f"{name}.expand3", expand, 3, source=f"{name}.squeeze"),
        Node(name, Concat(), (f"{name}.expand1", f"{name}.expand3")),
    )


@cache
def squeezenet(side: int = 224, classes: int = IMAGENET_CLASSES) -> Model:
    """Return eight fire modules between two convolutions.

    The second pool keeps a last column of windows that extend over the edge, as the authors' does.
    The authors' ReLU after the last convolution is left out: it ends all learning as soon as all of
    its outputs are negative, and costs next to nothing.
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
        PublishedSize(1_248_424, 818_924_576, source),
    )


def _bare_fire(name: str, squeeze: int, expand: int) -> tuple[Node, ...]:
    return (
        Node(f"{name}.squeeze", Conv2d(squeeze, 1)),
        Node(f"{name}.expand1", Conv2d(expand, 1), (f"{name}.squeeze",)),
        Node(f"{name}.expand3", Conv2d(expand, 3, padding="same"), (f"{name}.squeeze",)),
        Node(name, Concat(), (f"{name}.expand1", f"{name}.expand3")),
    )


@cache
def emdl_squeezenet(textbook: bool = False) -> Model:
    """Return EMDL'21's version, with 10 classes; its published times include its errors.

    The stride 2 of conv1 was carried into conv2; there is no activation anywhere, and no softmax:
    the loss takes the logarithm of raw values and is not a number. The textbook network of the same
    shapes has both.
    """
    make = fire if textbook else _bare_fire
    return Model(
        "emdl-squeezenet-textbook" if textbook else "emdl-squeezenet",
        {"image": (3, 224, 224)},
        (
            *(conv_relu if textbook else bare_conv)("conv1", 96, 7, 2),
            Node("pool1", MaxPool(3, 2, "same")),
            *make("fire1", 16, 64),
            *make("fire2", 16, 64),
            *make("fire3", 32, 128),
            Node("pool3", MaxPool(3, 2, "same")),
            *make("fire4", 32, 128),
            *make("fire5", 48, 192),
            *make("fire6", 48, 192),
            *make("fire7", 64, 256),
            Node("pool7", MaxPool(3, 2, "same")),
            *make("fire8", 64, 256),
            Node("conv2", Conv2d(10, 1, stride=2)),
            # Coded as a 14x14 window; the framework crops it to the 7x7 pixels that are left.
            Node("pool8", GlobalAvgPool()),
            Node("flatten", Flatten()),
            Node("loss", SoftmaxCrossEntropy() if textbook else CrossEntropy()),
        ),
        PublishedSize(
            740_554, 787_411_968, "EMDL'21: 0.74 M parameters, 787.41 MMAC", as_coded=True
        ),
        data={"image": images_from_0_to_1(STUDY_CLASSES)},
    )
