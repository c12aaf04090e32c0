"""What parameters hold before the first step: values that neither fade nor grow on their way.

A weight's variance is one by the number of values it sums up, twice that before a ReLU, which
loses half of what reaches it (Glorot and Bengio 2010; He et al. 2015).
"""

from math import prod, sqrt

from workloads.layers import LSTM, Conv2d, Embedding, Layer, LeakyReLU, Loss, ReLU, ReLU6
from workloads.layers.layer import Shape
from workloads.layers.windows import pair
from workloads.lowering.body import Init

ZERO = Init("zero")
UNDECIDED = 0.3  # what the loss sees is small at first: a model begins without an opinion


def initial(layer: Layer, name: str, shape: Shape, reader: Layer | None) -> Init:
    """The first values of a parameter of a layer, by the layer that reads what it makes."""
    if name == "scale":
        return Init("constant", 1.0)
    if not name.endswith("weight"):
        return ZERO
    if isinstance(layer, LSTM):
        return Init("uniform", 1 / sqrt(layer.features))
    if isinstance(layer, Embedding):
        return Init("normal", 1.0)
    summed: float = prod(shape[1:])
    if isinstance(layer, Conv2d) and layer.transposed:
        # Every pixel that leaves is reached by one window in so many strides.
        summed = shape[0] // layer.groups * prod(shape[2:]) / prod(pair(layer.stride))
    if isinstance(reader, Loss):
        return Init("uniform", UNDECIDED * sqrt(3 / summed))
    halved = isinstance(reader, ReLU | ReLU6 | LeakyReLU)
    return Init("uniform", sqrt((6 if halved else 3) / summed))
