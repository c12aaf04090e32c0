"""LeNet for MNIST: LeNet-5 of the textbook, and what EMDL'21 coded under that name."""

from functools import cache

from workloads.data_columns import images_from_0_to_1
from workloads.graph import Model, Node, PublishedSize
from workloads.layers import (
    AvgPool,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool,
    ReLU,
    SoftmaxCrossEntropy,
    Tanh,
)
from workloads.models.blocks import STUDY_CLASSES, classifier_head


@cache
def lenet(side: int = 28, classes: int = STUDY_CLASSES) -> Model:
    """Return LeNet-5 (LeCun et al. 1998) as it is taught: conv2 reads all channels of conv1."""
    return Model(
        "lenet",
        {"image": (1, side, side)},
        (
            Node("conv1", Conv2d(6, 5, padding="same")),
            Node("tanh1", Tanh()),
            Node("pool1", AvgPool(2, 2)),
            Node("conv2", Conv2d(16, 5)),
            Node("tanh2", Tanh()),
            Node("pool2", AvgPool(2, 2)),
            Node("flatten", Flatten()),
            Node("fc1", Linear(120)),
            Node("tanh3", Tanh()),
            Node("fc2", Linear(84)),
            Node("tanh4", Tanh()),
            *classifier_head(classes),
        ),
        PublishedSize(
            61_706, 416_520, "LeCun et al. 1998: about 60,000 parameters; 61,706 as taught"
        ),
    )


@cache
def emdl_lenet() -> Model:
    """Return EMDL'21's version; its published times include its errors.

    There is no activation between the convolutions, and conv2 was never passed to the optimizer: it
    is frozen, and gradients only flow through it to conv1.
    """
    return Model(
        "emdl-lenet",
        {"image": (1, 28, 28)},
        (
            Node("conv1", Conv2d(20, 5)),
            Node("pool1", MaxPool(2, 2)),
            Node("conv2", Conv2d(50, 5, trainable=False)),
            Node("pool2", MaxPool(2, 2)),
            Node("flatten", Flatten()),
            Node("fc1", Linear(400)),
            Node("relu1", ReLU()),
            Node("dropout1", Dropout(0.5)),
            Node("fc2", Linear(10)),
            Node("loss", SoftmaxCrossEntropy()),
        ),
        PublishedSize(349_980, 2_212_000, "EMDL'21: 0.35 M parameters, 2.21 MMAC", as_coded=True),
        data={"image": images_from_0_to_1(STUDY_CLASSES)},
    )
