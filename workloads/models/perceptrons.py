"""The four perceptrons of the Cambridge study (arXiv 2202.10100), of different depth and width.

ReLU between the layers, softmax after the last; plain SGD.
"""

from functools import cache
from itertools import pairwise

from workloads.graph import Model, Node, PublishedSize
from workloads.layers import Linear, ReLU, SoftmaxCrossEntropy

WIDTHS = {
    "mlp-1": (16, 16),
    "mlp-2": (16, 16, 16, 16),
    "mlp-3": (256, 256),
    "mlp-4": (784, 256, 128, 16),
}


@cache
def perceptron(name: str) -> Model:
    widths = WIDTHS[name]
    nodes: list[Node] = []
    for index, features in enumerate(widths[1:], start=1):
        nodes += [Node(f"fc{index}", Linear(features)), Node(f"relu{index}", ReLU())]
    nodes[-1] = Node("loss", SoftmaxCrossEntropy())
    macs = sum(n_in * n_out for n_in, n_out in pairwise(widths))
    return Model(
        name,
        {"row": widths[:1]},
        tuple(nodes),
        PublishedSize(
            macs + sum(widths[1:]), macs, f"arXiv 2202.10100: {'-'.join(map(str, widths))}"
        ),
    )
