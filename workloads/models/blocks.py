"""Building blocks that several models share."""

from workloads.graph import Node
from workloads.layers import BatchNorm, Conv2d, Linear, ReLU, SoftmaxCrossEntropy
from workloads.layers.window_shapes import Padding, Size

IMAGENET_CLASSES = 1000  # published sizes of models count these
STUDY_CLASSES = 10  # of MNIST and CIFAR-10, which the studies trained on


def conv_norm(
    name: str,
    channels: int,
    kernel: Size,
    stride: int = 1,
    padding: Padding = "same",
    *,
    source: str = "",
) -> tuple[Node, Node]:
    """Return a convolution without bias, and its batch normalization."""
    conv = Conv2d(channels, kernel, stride, padding, bias=False)
    inputs = (source,) if source else ()
    return Node(f"{name}.conv", conv, inputs), Node(f"{name}.norm", BatchNorm())


def conv_norm_relu(
    name: str,
    channels: int,
    kernel: Size,
    stride: int = 1,
    padding: Padding = "same",
    *,
    source: str = "",
) -> tuple[Node, ...]:
    """Return a convolution, its batch normalization and a ReLU, which is called `name`."""
    nodes = conv_norm(name, channels, kernel, stride, padding, source=source)
    return (*nodes, Node(name, ReLU()))


def bare_conv(
    name: str, channels: int, kernel: Size, stride: int = 1, *, source: str = ""
) -> tuple[Node, ...]:
    """Return a convolution with bias, and no activation."""
    conv = Conv2d(channels, kernel, stride, "same")
    return (Node(name, conv, (source,) if source else ()),)


def conv_relu(
    name: str,
    channels: int,
    kernel: Size,
    stride: int = 1,
    padding: Padding = "same",
    *,
    source: str = "",
) -> tuple[Node, Node]:
    """Return a convolution with bias and a ReLU, which is called `name`."""
    conv = Conv2d(channels, kernel, stride, padding)
    return Node(f"{name}.conv", conv, (source,) if source else ()), Node(name, ReLU())


def classifier_head(classes: int) -> tuple[Node, Node]:
    """Return the end of a classifier: a fully connected layer and its loss."""
    return Node("fc", Linear(classes)), Node("loss", SoftmaxCrossEntropy())
