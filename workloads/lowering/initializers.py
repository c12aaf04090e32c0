"""Initial values of parameters, scaled so that activations neither vanish nor explode.

The variance of a weight is one over the number of values it sums, and twice that before a ReLU,
which loses half of its input (Glorot and Bengio 2010; He et al. 2015).
"""

from math import prod, sqrt

from workloads.layers import LSTM, Conv2d, Embedding, Layer, LeakyReLU, Linear, Loss, ReLU, ReLU6
from workloads.layers.layer import Shape
from workloads.layers.window_shapes import as_pair
from workloads.lowering.plan_body import Initializer

ZERO = Initializer("zero")
LOSS_INPUT_SCALE = 0.3  # small outputs before the loss: an untrained model prefers no class


def initializer_for(layer: Layer, name: str, shape: Shape, reader: Layer | None) -> Initializer:
    """Choose the initial values of a layer's parameter, given the layer that reads its output."""
    if name == "scale":
        return Initializer("constant", 1.0)
    if not name.endswith("weight") or (isinstance(layer, Linear) and layer.zero_start):
        return ZERO
    if isinstance(layer, LSTM):
        return Initializer("uniform", 1 / sqrt(layer.features))
    if isinstance(layer, Embedding):
        return Initializer("normal", layer.deviation)
    fan_in: float = prod(shape[1:])
    if isinstance(layer, Conv2d) and layer.transposed:
        # A stride of s lets only one in s x s windows reach an output pixel.
        fan_in = shape[0] // layer.groups * prod(shape[2:]) / prod(as_pair(layer.stride))
    if isinstance(reader, Loss):
        return Initializer("uniform", LOSS_INPUT_SCALE * sqrt(3 / fan_in))
    before_relu = isinstance(reader, ReLU | ReLU6 | LeakyReLU)
    return Initializer("uniform", sqrt((6 if before_relu else 3) / fan_in))
