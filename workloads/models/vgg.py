"""VGG (Simonyan & Zisserman 2015): 3x3 convolutions in five stages, three full connections."""

from functools import cache

from workloads.graph import Model, Node, Stated
from workloads.layers import Dropout, Flatten, Linear, MaxPool, ReLU
from workloads.models.blocks import CLASSES, classified, conv_relu

# Convolutions a stage (configurations D and E of the paper's table 1), parameters, multiply-adds.
DEPTHS = {
    16: ((2, 2, 3, 3, 3), 138_357_544, 15_470_264_320),
    19: ((2, 2, 4, 4, 4), 143_667_240, 19_632_062_464),
}
CHANNELS = (64, 128, 256, 512, 512)


@cache
def vgg(depth: int, side: int = 224, classes: int = CLASSES) -> Model:
    """VGG-16 or VGG-19."""
    repeats, parameters, macs = DEPTHS[depth]
    nodes: list[Node] = []
    for stage, (channels, count) in enumerate(zip(CHANNELS, repeats, strict=True), start=1):
        for at in range(1, count + 1):
            nodes += conv_relu(f"conv{stage}.{at}", channels, 3)
        nodes.append(Node(f"pool{stage}", MaxPool(2, 2)))
    nodes.append(Node("flatten", Flatten()))
    for at in (6, 7):
        nodes += [Node(f"fc{at}", Linear(4096)), Node(f"relu{at}", ReLU())]
        nodes += [Node(f"dropout{at}", Dropout(0.5))]
    nodes += classified(classes)
    source = f"Simonyan & Zisserman 2015; torchvision's vgg{depth}, 224x224, 1000 classes"
    stated = Stated(parameters, macs, source)
    return Model(f"vgg{depth}", {"image": (3, side, side)}, tuple(nodes), stated)
