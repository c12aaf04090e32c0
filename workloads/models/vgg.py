"""VGG (Simonyan & Zisserman 2015): 3x3 convolutions in five stages, then fully connected layers."""

from functools import cache

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import Dropout, Flatten, Linear, MaxPool, ReLU
from workloads.models.blocks import IMAGENET_CLASSES, classifier_head, conv_relu

# Convolutions per stage (configurations D and E of the paper's table 1), parameters, multiply-adds.
DEPTHS = {
    16: ((2, 2, 3, 3, 3), 138_357_544, 15_470_264_320),
    19: ((2, 2, 4, 4, 4), 143_667_240, 19_632_062_464),
}
CHANNELS = (64, 128, 256, 512, 512)


@cache
def vgg(depth: int, side: int = 224, classes: int = IMAGENET_CLASSES) -> Model:
    """Return VGG-16 or VGG-19."""
    repeats, parameters, macs = DEPTHS[depth]
    nodes: list[Node] = []
    for stage, (channels, count) in enumerate(zip(CHANNELS, repeats, strict=True), start=1):
        for index in range(1, count + 1):
            nodes += conv_relu(f"conv{stage}.{index}", channels, 3)
        nodes.append(Node(f"pool{stage}", MaxPool(2, 2)))
    nodes.append(Node("flatten", Flatten()))
    for index in (6, 7):
        nodes += [Node(f"fc{index}", Linear(4096)), Node(f"relu{index}", ReLU())]
        nodes += [Node(f"dropout{index}", Dropout(0.5))]
    nodes += classifier_head(classes)
    source = f"Simonyan & Zisserman 2015; torchvision's vgg{depth}, 224x224, 1000 classes"
    published = PublishedSize(parameters, macs, source)
    return Model(f"vgg{depth}", {"image": (3, side, side)}, tuple(nodes), published)
