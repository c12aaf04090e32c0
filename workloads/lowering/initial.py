"""What parameters hold before the first step: values that neither fade nor grow on their way.

A weight's variance is one by the number of values it sums up, twice that before a ReLU, which
loses half of what reaches it (Glorot and Bengio 2010; He et al. 2015).
"""

from math import prod, sqrt

from workloads.layers import LSTM, Conv2d, Embedding, Layer
from workloads.layers.layer import Shape
from workloads.layers.windows import pair
from workloads.lowering.body import Init

ZERO = Init("zero")


def initial(layer: Layer, name: str, shape: Shape, before_relu: bool) -> Init:
    """The first values of a parameter."""
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
    return Init("uniform", sqrt((6 if before_relu else 3) / max(summed, 1)))
