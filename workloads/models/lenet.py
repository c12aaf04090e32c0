"""LeNet for MNIST: LeNet-5 of the textbook, and what EMDL'21 coded under that name."""

from functools import cache

from workloads.data import dark_images
from workloads.graph import Model, Node, Stated
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
from workloads.models.blocks import FEW_CLASSES, classified


@cache
def lenet(side: int = 28, classes: int = FEW_CLASSES) -> Model:
    """LeNet-5 (LeCun et al. 1998) as it is taught: every map of conv2 sees all of conv1."""
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
            *classified(classes),
        ),
        Stated(61_706, 416_520, "LeCun et al. 1998: about 60,000 parameters; 61,706 as taught"),
    )


@cache
def emdl_lenet() -> Model:
    """As EMDL'21 coded it; its published times contain the quirks.

    No activation stands between the convolutions, and conv2 was never handed to the optimizer, so
    it is frozen and only passes gradients on to conv1.
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
        Stated(349_980, 2_212_000, "EMDL'21 as coded: 0.35 M parameters, 2.21 MMAC"),
        data={"image": dark_images(FEW_CLASSES)},
    )
