"""Layers of which models are defined, with their shapes, parameters and costs.

A new layer is a frozen dataclass in one of these files with a unique tag, a subclass of Layer
(workloads/layers/layer.py). Costs count what the arithmetic needs, not how an engine does it: no
packing, no workspace, no fusion.
"""

from workloads.layers.activations import (
    GELU,
    Dropout,
    LeakyReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    Softmax,
    Tanh,
)
from workloads.layers.layer import Layer, LayerShapes, Shape
from workloads.layers.linear import Conv2d, Linear, TiedLinear
from workloads.layers.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Loss,
    MeanSquaredError,
    SoftmaxCrossEntropy,
    TemporalDifference,
)
from workloads.layers.norms import BatchNorm, LayerNorm
from workloads.layers.pooling import AvgPool, GlobalAvgPool, MaxPool
from workloads.layers.sequence_layers import (
    LSTM,
    AttentionHeads,
    Embedding,
    LastTimeStep,
    PositionEmbedding,
    RepeatVector,
)
from workloads.layers.shape_ops import Add, Concat, Flatten, Reshape, Upsample
