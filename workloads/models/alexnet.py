"""AlexNet as one tower without groups and local normalization (Krizhevsky 2014), and EMDL'21's."""

from functools import cache

from workloads.data_columns import images_from_0_to_1
from workloads.graph import Model, Node, PublishedSize
from workloads.layers import Conv2d, Dropout, Flatten, Linear, MaxPool, ReLU, SoftmaxCrossEntropy
from workloads.models.blocks import IMAGENET_CLASSES, STUDY_CLASSES, classifier_head, conv_relu

SIDE_MIN = 63  # pixels that its strides need


@cache
def alexnet(side: int = 224, classes: int = IMAGENET_CLASSES) -> Model:
    """Return five convolutions and three fully connected layers.

    Images below 63 pixels would vanish in its pools: there the first stride is 1 instead of 4.
    """
    source = "Krizhevsky 2014; torchvision's alexnet, 224x224, 1000 classes"
    return Model(
        "alexnet",
        {"image": (3, side, side)},
        (
            *conv_relu("conv1", 64, 11, 4 if side >= SIDE_MIN else 1, 2),
            Node("pool1", MaxPool(3, 2)),
            *conv_relu("conv2", 192, 5),
            Node("pool2", MaxPool(3, 2)),
            *conv_relu("conv3", 384, 3),
            *conv_relu("conv4", 256, 3),
            *conv_relu("conv5", 256, 3),
            Node("pool5", MaxPool(3, 2)),
            Node("flatten", Flatten()),
            Node("dropout6", Dropout(0.5)),
            Node("fc6", Linear(4096)),
            Node("relu6", ReLU()),
            Node("dropout7", Dropout(0.5)),
            Node("fc7", Linear(4096)),
            Node("relu7", ReLU()),
            *classifier_head(classes),
        ),
        PublishedSize(61_100_840, 714_188_480, source),
    )


@cache
def emdl_alexnet() -> Model:
    """Return EMDL'21's version, about half the original; its published times include its errors.

    One hidden fully connected layer, 10 classes, no activation after conv5, and a ReLU both before
    and after a dropout.
    """
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
        PublishedSize(
            30_006_666, 989_113_472, "EMDL'21: 30.0 M parameters, 989.11 MMAC", as_coded=True
        ),
        data={"image": images_from_0_to_1(STUDY_CLASSES)},
    )
