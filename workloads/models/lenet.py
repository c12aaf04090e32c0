"""LeNet as EMDL'21 coded it, for MNIST.

Quirks that its published times contain: no activation between the convolutions, and conv2 was
never handed to the optimizer, so it is frozen and only passes gradients on to conv1.
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
def lenet() -> Model:
    """Two convolutions, two full connections, 10 classes."""
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
    )
