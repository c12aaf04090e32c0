"""DCGAN (Radford et al. 2016) on images of 64x64: a generator and a discriminator.

A step follows the authors: the discriminator sees real images, then generated ones, and is updated
with both gradients; then the generator is updated with what the new discriminator says of its
images.
"""

from functools import cache

from workloads.data_columns import constant, images, noise
from workloads.graph import TARGET, Model, Node, PublishedSize
from workloads.layers import (
    BatchNorm,
    BinaryCrossEntropy,
    Conv2d,
    Flatten,
    LeakyReLU,
    MeanSquaredError,
    ReLU,
    Tanh,
)
from workloads.models.blocks import STUDY_CLASSES
from workloads.training import Adam, TrainingPass, TrainingStep

SIDE, NOISE = 64, (100, 1, 1)
WIDTHS = (64, 128, 256, 512)
OPTIMIZER = Adam(learning_rate=2e-4, beta_1=0.5)  # of the paper
SOURCE = "Radford et al. 2016, widths of their code"


def generator_nodes() -> tuple[Node, ...]:
    """Return the layers from noise to an image: transposed convolutions."""
    nodes: list[Node] = []
    for index, channels in enumerate(reversed(WIDTHS)):
        stride, padding = (2, 1) if index else (1, 0)
        conv = Conv2d(channels, 4, stride, padding, bias=False, transposed=True)
        nodes += [Node(f"generator.conv{index}", conv)]
        nodes += [Node(f"generator.norm{index}", BatchNorm())]
        nodes += [Node(f"generator.relu{index}", ReLU())]
    last = Conv2d(3, 4, 2, 1, bias=False, transposed=True)
    return (*nodes, Node("generator.conv4", last), Node("generator.tanh", Tanh()))


def discriminator_nodes() -> tuple[Node, ...]:
    """Return the layers from an image to one number: the higher, the more real."""
    nodes: list[Node] = []
    for index, channels in enumerate(WIDTHS):
        nodes.append(Node(f"discriminator.conv{index}", Conv2d(channels, 4, 2, 1, bias=False)))
        if index:
            nodes.append(Node(f"discriminator.norm{index}", BatchNorm()))
        nodes.append(Node(f"discriminator.leaky{index}", LeakyReLU(0.2)))
    nodes.append(Node("discriminator.conv4", Conv2d(1, 4, bias=False)))
    return (*nodes, Node("discriminator.flatten", Flatten()))


@cache
def discriminator() -> Model:
    """Return the discriminator on real images."""
    return Model(
        "dcgan discriminator",
        {"image": (3, SIDE, SIDE)},
        (*discriminator_nodes(), Node("loss", BinaryCrossEntropy())),
        PublishedSize(2_765_568, 103_817_216, f"{SOURCE}: 2,765,568 parameters"),
        data={"image": images(STUDY_CLASSES), TARGET: constant(1.0)},
    )


@cache
def generator_and_discriminator(target: float) -> Model:
    """Return the discriminator on generated images, with the given target."""
    return Model(
        "dcgan",
        {"noise": NOISE},
        (*generator_nodes(), *discriminator_nodes(), Node("loss", BinaryCrossEntropy())),
        PublishedSize(6_342_272, 208_445_440, f"{SOURCE}: 3,576,704 and 2,765,568 parameters"),
        data={"noise": noise(), TARGET: constant(target)},
    )


@cache
def generator() -> Model:
    """Return the generator alone, as it is used after training; its loss is not computed."""
    return Model(
        "dcgan generator",
        {"noise": NOISE},
        (*generator_nodes(), Node("loss", MeanSquaredError())),
        PublishedSize(3_576_704, 104_628_224, f"{SOURCE}: 3,576,704 parameters"),
        data={"noise": noise()},
    )


def dcgan_step(batch: int) -> TrainingStep:
    """Return a step: the discriminator on real and on fake images, then the generator."""
    discriminating = frozenset(node.name for node in discriminator_nodes())
    generating = frozenset(node.name for node in generator_nodes())
    return TrainingStep(
        (
            TrainingPass(discriminator(), None, "real", discriminating),
            TrainingPass(generator_and_discriminator(0.0), OPTIMIZER, "fake", discriminating),
            TrainingPass(generator_and_discriminator(1.0), OPTIMIZER, "fool", generating),
        ),
        batch,
    )
