"""The language of model definitions: layers with shapes, parameters and prices.

A new layer is a frozen dataclass in one of these files that answers what workloads/layers/layer.py
asks. Prices count what the arithmetic needs, not how an engine goes about it: no packing, no
workspace, no fusing.
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
from workloads.layers.layer import Layer, Place, Shape
from workloads.layers.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Loss,
    MeanSquaredError,
    SoftmaxCrossEntropy,
    TemporalDifference,
)
from workloads.layers.norms import BatchNorm, LayerNorm
from workloads.layers.plumbing import (
    Add,
    AvgPool,
    Concat,
    Flatten,
    GlobalAvgPool,
    MaxPool,
    Reshape,
    Upsample,
)
from workloads.layers.products import Conv2d, Linear
from workloads.layers.sequences import (
    LSTM,
    Attention,
    Embedding,
    LastMoment,
    Positions,
    RepeatMoment,
)

__all__ = [
    "GELU",
    "LSTM",
    "Add",
    "Attention",
    "AvgPool",
    "BatchNorm",
    "BinaryCrossEntropy",
    "Concat",
    "Conv2d",
    "CrossEntropy",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "LastMoment",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "Loss",
    "MaxPool",
    "MeanSquaredError",
    "Place",
    "Positions",
    "ReLU",
    "ReLU6",
    "RepeatMoment",
    "Reshape",
    "Shape",
    "Sigmoid",
    "Softmax",
    "SoftmaxCrossEntropy",
    "Tanh",
    "TemporalDifference",
    "Upsample",
]
