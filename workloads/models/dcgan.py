"""DCGAN (Radford et al. 2016) on images of 64x64: two models that learn against each other.

A step is that of the authors' recipe: the judge sees real images, then made ones, and learns from
both; then the maker learns from what the judge, as it is by now, says of its images.
"""

from functools import cache

from workloads.data import constant, images, noise
from workloads.graph import TARGET, Model, Node, Stated
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
from workloads.models.blocks import FEW_CLASSES
from workloads.training import Adam, Pass, Training

SIDE, NOISE = 64, (100, 1, 1)
WIDTHS = (64, 128, 256, 512)
OPTIMIZER = Adam(learning_rate=2e-4, beta_1=0.5)  # of the paper
SOURCE = "Radford et al. 2016, widths of their code"


def maker() -> tuple[Node, ...]:
    """From noise to an image, by transposed convolutions."""
    nodes: list[Node] = []
    for at, channels in enumerate(reversed(WIDTHS)):
        stride, padding = (2, 1) if at else (1, 0)
        conv = Conv2d(channels, 4, stride, padding, bias=False, transposed=True)
        nodes += [Node(f"maker.conv{at}", conv), Node(f"maker.norm{at}", BatchNorm())]
        nodes += [Node(f"maker.relu{at}", ReLU())]
    last = Conv2d(3, 4, 2, 1, bias=False, transposed=True)
    return (*nodes, Node("maker.conv4", last), Node("maker.tanh", Tanh()))


def judge() -> tuple[Node, ...]:
    """From an image to one number: the higher, the more real."""
    nodes: list[Node] = []
    for at, channels in enumerate(WIDTHS):
        nodes.append(Node(f"judge.conv{at}", Conv2d(channels, 4, 2, 1, bias=False)))
        if at:
            nodes.append(Node(f"judge.norm{at}", BatchNorm()))
        nodes.append(Node(f"judge.leaky{at}", LeakyReLU(0.2)))
    nodes.append(Node("judge.conv4", Conv2d(1, 4, bias=False)))
    return (*nodes, Node("judge.flatten", Flatten()))


@cache
def judging() -> Model:
    """Real images before the judge."""
    return Model(
        "dcgan judge",
        {"image": (3, SIDE, SIDE)},
        (*judge(), Node("loss", BinaryCrossEntropy())),
        Stated(2_765_568, 103_817_216, f"{SOURCE}: 2,765,568 parameters"),
        data={"image": images(FEW_CLASSES), TARGET: constant(1.0)},
    )


@cache
def faking(truth: float) -> Model:
    """Made images before the judge, who should say this of them."""
    return Model(
        "dcgan",
        {"noise": NOISE},
        (*maker(), *judge(), Node("loss", BinaryCrossEntropy())),
        Stated(6_342_272, 208_445_440, f"{SOURCE}: 3,576,704 and 2,765,568 parameters"),
        data={"noise": noise(), TARGET: constant(truth)},
    )


@cache
def making() -> Model:
    """The maker alone, as it is used in the end; its loss is not asked for."""
    return Model(
        "dcgan maker",
        {"noise": NOISE},
        (*maker(), Node("loss", MeanSquaredError())),
        Stated(3_576_704, 104_628_224, f"{SOURCE}: 3,576,704 parameters"),
        data={"noise": noise()},
    )


def training_step(batch: int) -> Training:
    """Real, made, and the maker's turn."""
    judges = frozenset(node.name for node in judge())
    makers = frozenset(node.name for node in maker())
    return Training(
        (
            Pass(judging(), None, "real", judges),
            Pass(faking(0.0), OPTIMIZER, "made", judges),
            Pass(faking(1.0), OPTIMIZER, "fooled", makers),
        ),
        batch,
    )
