"""The four perceptrons of the Cambridge study (arXiv 2202.10100): a probe of depth and width.

ReLU between the layers, softmax behind the last; plain SGD.
"""

from functools import cache
from itertools import pairwise

from workloads.graph import Model, Node, Stated
from workloads.layers import Linear, ReLU, SoftmaxCrossEntropy
from workloads.training import SGD, Training, training

WIDTHS = {
    "mlp-1": (16, 16),
    "mlp-2": (16, 16, 16, 16),
    "mlp-3": (256, 256),
    "mlp-4": (784, 256, 128, 16),
}


@cache
def perceptron(name: str) -> Model:
    """A perceptron by name."""
    widths = WIDTHS[name]
    nodes: list[Node] = []
    for index, features in enumerate(widths[1:], start=1):
        nodes += [Node(f"fc{index}", Linear(features)), Node(f"relu{index}", ReLU())]
    nodes[-1] = Node("loss", SoftmaxCrossEntropy())
    macs = sum(into * out for into, out in pairwise(widths))
    return Model(
        name,
        {"row": widths[:1]},
        tuple(nodes),
        Stated(macs + sum(widths[1:]), macs, f"arXiv 2202.10100: {'-'.join(map(str, widths))}"),
    )


def step(name: str, batch: int) -> Training:
    """One step of a perceptron."""
    return training(perceptron(name), batch, SGD())
