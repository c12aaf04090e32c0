"""GoogLeNet (Szegedy et al. 2015), Inception V1 as frameworks ship it, and EMDL'21's version.

None has the auxiliary heads or the local normalization of the paper.
"""

from collections.abc import Callable
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
    Softmax,
    SoftmaxCrossEntropy,
)
from workloads.models.blocks import (
    IMAGENET_CLASSES,
    STUDY_CLASSES,
    bare_conv,
    classifier_head,
    conv_norm_relu,
    conv_relu,
)

# Channels of 1x1; reduction and 3x3; reduction and 5x5; 1x1 after the pool: the paper's table 1.
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def _inception(
    conv: Callable[..., tuple[Node, ...]],
    name: str,
    source: str,
    channels: tuple[int, ...],
    five: int = 5,
) -> tuple[Node, ...]:
    """Return an inception module of four branches; `five` is the size of its largest window."""
    branches = tuple(f"{name}.{branch}" for branch in ("one", "three", "five", "pooled"))
    return (
        *conv(branches[0], channels[0], 1, source=source),
        *conv(f"{name}.three_reduce", channels[1], 1, source=source),
        *conv(branches[1], channels[2], 3),
        *conv(f"{name}.five_reduce", channels[3], 1, source=source),
        *conv(branches[2], channels[4], five),
        Node(f"{name}.pool", MaxPool(3, 1, "same"), (source,)),
        *conv(branches[3], channels[5], 1),
        Node(name, Concat(), branches),
    )


def _textbook(
    name: str,
    conv: Callable[..., tuple[Node, ...]],
    five: int,
    size: tuple[int, int],
    published: PublishedSize,
) -> Model:
    side, classes = size
    nodes = [
        *conv("conv1", 64, 7, 2),
        Node("pool1", MaxPool(3, 2, "same")),
        *conv("conv2_reduce", 64, 1),
        *conv("conv2", 192, 3),
        Node("pool2", MaxPool(3, 2, "same")),
    ]
    for module, channels in INCEPTIONS.items():
        if module in {"4a", "5a"}:
            nodes.append(Node(f"pool{module[0]}", MaxPool(3, 2, "same")))
        nodes += _inception(conv, module, nodes[-1].name, channels, five)
    nodes += [
        Node("mean", GlobalAvgPool()),
        Node("flatten", Flatten()),
        Node("dropout", Dropout(0.4)),
        *classifier_head(classes),
    ]
    return Model(name, {"image": (3, side, side)}, tuple(nodes), published)


@cache
def googlenet(side: int = 224, classes: int = IMAGENET_CLASSES) -> Model:
    """Return nine inception modules, as in the paper."""
    source = "Szegedy et al. 2015, table 1: 1.5 G multiply-adds; Caffe's has 6,998,552 parameters"
    published = PublishedSize(6_998_552, 1_582_671_872, source)
    return _textbook("googlenet", conv_relu, 5, (side, classes), published)


@cache
def inceptionv1(side: int = 224, classes: int = IMAGENET_CLASSES) -> Model:
    """Return the version of TensorFlow and torchvision: with batch norm, and 3x3 for 5x5."""
    source = "torchvision's googlenet without auxiliary heads: 6,624,904 parameters, 1.5 GMAC"
    published = PublishedSize(6_624_904, 1_498_376_192, source)
    return _textbook("inceptionv1", conv_norm_relu, 3, (side, classes), published)


@cache
def emdl_googlenet(textbook: bool = False) -> Model:
    """Return EMDL'21's version, with 10 classes; its published times include its errors.

    The stride 2 of conv1 was carried into conv2 (and conv3, where it changes nothing), which leaves
    31 % of the 1568.81 M multiply-adds that its authors intended; there is no activation anywhere;
    and the softmax runs along an axis of length one, so that the output is always 1 and the model
    learns nothing. The textbook network of the same shapes has activations, and a softmax over the
    classes.
    """
    conv = conv_relu if textbook else bare_conv
    nodes = [
        *conv("conv1", 64, 7, 2),
        Node("pool1", MaxPool(3, 2, "same")),
        *conv("conv2", 192, 3, 2),
        Node("pool2", MaxPool(3, 2, "same")),
    ]
    pools = {3: "pool3", 8: "pool4"}  # before these modules
    for number, channels in enumerate(INCEPTIONS.values(), 1):
        if number in pools:
            nodes.append(Node(pools[number], MaxPool(3, 2, "same")))
        nodes += _inception(conv, f"incep{number}", nodes[-1].name, channels)
    nodes += [
        # Coded as a 7x7 window; the framework crops it to the 4x4 pixels that are left.
        Node("pool5", GlobalAvgPool()),
        Node("conv3", Conv2d(10, 1, stride=2)),
        *(() if textbook else (Node("softmax", Softmax(axis=-1)),)),
        Node("flatten", Flatten()),
        Node("loss", SoftmaxCrossEntropy() if textbook else CrossEntropy()),
    ]
    return Model(
        "emdl-googlenet-textbook" if textbook else "emdl-googlenet",
        {"image": (3, 224, 224)},
        tuple(nodes),
        PublishedSize(
            5_979_642, 490_041_088, "EMDL'21: 5.98 M parameters, 490.04 MMAC", as_coded=True
        ),
        data={"image": images_from_0_to_1(STUDY_CLASSES)},
    )
