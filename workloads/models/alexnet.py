"""AlexNet as EMDL'21 coded it: one hidden full connection and 10 classes, about half the original.

Quirks that its published times contain: no activation behind conv5, and one ReLU twice around a
dropout.
"""

from functools import cache

from workloads.graph import Model, Node, Stated
from workloads.layers import (
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool,
    ReLU,
    SoftmaxCrossEntropy,
)


@cache
def alexnet() -> Model:
    """Five convolutions without groups, two full connections, 10 classes."""
    return Model(
        "emdl-alexnet",
        {"image": (3, 224, 224)},
        (
            Node("conv1", Conv2d(96, 11, stride=4)),
            Node("relu1", ReLU()),
            Node("pool1", MaxPool(3, 2)),
            Node("conv2", Conv2d(256, 5, padding="same")),
            Node("relu2", ReLU()),
            Node("pool2", MaxPool(3, 2)),
            Node("conv3", Conv2d(384, 3, padding="same")),
            Node("relu3", ReLU()),
            Node("conv4", Conv2d(384, 3, padding="same")),
            Node("relu4", ReLU()),
            Node("conv5", Conv2d(256, 3, padding="same")),
            Node("pool5", MaxPool(3, 2)),
            Node("flatten", Flatten()),
            Node("fc1", Linear(4096)),
            Node("relu6", ReLU()),
            Node("dropout1", Dropout(0.5)),
            Node("relu7", ReLU()),
            Node("dropout2", Dropout(0.5)),
            Node("fc2", Linear(10)),
            Node("loss", SoftmaxCrossEntropy()),
        ),
        Stated(30_006_666, 989_113_472, "EMDL'21 as coded: 30.0 M parameters, 989.11 MMAC"),
    )
