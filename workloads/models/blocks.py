"""What many models are built of."""

from workloads.graph import Node
from workloads.layers import BatchNorm, Conv2d, Linear, ReLU, SoftmaxCrossEntropy
from workloads.layers.windows import Padding, Size

CLASSES = 1000  # of ImageNet: what a model has in the literature
FEW_CLASSES = 10  # of MNIST and CIFAR-10: what the studies trained


def conv_norm(
    name: str,
    channels: int,
    kernel: Size,
    stride: int = 1,
    padding: Padding = "same",
    *,
    groups: int = 1,
    feed: str = "",
) -> tuple[Node, Node]:
    """A convolution without bias, and its normalisation."""
    conv = Conv2d(channels, kernel, stride, padding, groups, bias=False)
    feeds = (feed,) if feed else ()
    return Node(f"{name}.conv", conv, feeds), Node(f"{name}.norm", BatchNorm())


def conv_norm_relu(
    name: str,
    channels: int,
    kernel: Size,
    stride: int = 1,
    padding: Padding = "same",
    *,
    feed: str = "",
) -> tuple[Node, ...]:
    """The same with a ReLU behind it, which bears the name."""
    nodes = conv_norm(name, channels, kernel, stride, padding, feed=feed)
    return (*nodes, Node(name, ReLU()))


def conv_relu(
    name: str,
    channels: int,
    kernel: Size,
    stride: int = 1,
    padding: Padding = "same",
    *,
    feed: str = "",
) -> tuple[Node, Node]:
    """A convolution with bias and a ReLU behind it, which bears the name."""
    conv = Conv2d(channels, kernel, stride, padding)
    return Node(f"{name}.conv", conv, (feed,) if feed else ()), Node(name, ReLU())


def classified(classes: int) -> tuple[Node, Node]:
    """The end of a classifier: one full connection and its loss."""
    return Node("fc", Linear(classes)), Node("loss", SoftmaxCrossEntropy())
