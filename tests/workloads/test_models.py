"""Models of the studies: parameters and multiply-adds as the literature has them."""

import pytest

from workloads.catalogue import CATALOGUE
from workloads.graph import Model, Node, Stated
from workloads.layers import (
    Add,
    BatchNorm,
    BinaryCrossEntropy,
    Conv2d,
    Dropout,
    Flatten,
    GlobalAvgPool,
    Linear,
    MaxPool,
    ReLU,
    SoftmaxCrossEntropy,
    Tanh,
)
from workloads.models.alexnet import alexnet
from workloads.models.emdl21 import MODELS
from workloads.models.googlenet import googlenet, googlenet_textbook
from workloads.models.lenet import lenet
from workloads.models.mobilenetv2 import mobilenetv2
from workloads.models.perceptrons import WIDTHS, perceptron
from workloads.models.squeezenet import squeezenet

UNSTATED = Stated(0, 0, "a test")


@pytest.mark.parametrize(
    ("model", "parameters", "mmac"),
    [
        # Computed from the study's own layer definitions (repository at 752659f), not by us.
        (lenet(), 349_980, 2.21),
        (alexnet(), 30_006_666, 989.11),
        (squeezenet(), 740_554, 787.41),
        (googlenet(), 5_979_642, 490.04),
        (googlenet_textbook(), 5_979_642, 1568.81),
        # torchvision's mobilenet_v2 has the same count; Sandler et al. 2018 say 3.4 M and 300 M.
        (mobilenetv2(), 3_504_872, 300.8),
        # arXiv 2202.10100, reckoned by hand.
        (perceptron("mlp-1"), 272, 0.000256),
        (perceptron("mlp-2"), 816, 0.000768),
        (perceptron("mlp-3"), 65_792, 0.065536),
        (perceptron("mlp-4"), 235_920, 0.23552),
    ],
    ids=lambda value: value.name if isinstance(value, Model) else "",
)
def test_a_model_is_as_large_as_its_source_says(model: Model, parameters: int, mmac: float) -> None:
    assert parameters == model.parameters == model.stated.parameters
    assert mmac == pytest.approx(model.macs / 1e6, rel=2e-3 if model.macs > 1e6 else 1e-9)
    assert model.stated.macs == model.macs
    assert model.stated.source


@pytest.mark.parametrize("name", ["emdl-squeezenet", "emdl-googlenet"])
def test_a_carried_stride_leaves_no_more_than_its_study_had(name: str) -> None:
    model = {"emdl-squeezenet": squeezenet(), "emdl-googlenet": googlenet()}[name]
    pixels = {"emdl-squeezenet": ("conv2", (10, 7, 7)), "emdl-googlenet": ("conv2", (192, 28, 28))}
    node, shape = pixels[name]
    assert shape == model.shapes[node]
    assert (10,) == model.shapes["flatten"]


def test_only_the_layers_that_the_study_registered_are_learned() -> None:
    learned = {node.name for node in lenet().nodes if lenet().learned(node)}
    assert {"conv1", "fc1", "fc2"} == learned


@pytest.mark.parametrize("name", WIDTHS)
def test_a_perceptron_is_as_wide_as_the_catalogue_says(name: str) -> None:
    assert f" {'-'.join(map(str, WIDTHS[name]))} perceptron" in CATALOGUE[name].text


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_emdl21_is_in_the_catalogue_by_its_name(name: str) -> None:
    assert MODELS[name]().name == f"emdl-{name}"
    assert f"emdl-{name}" in CATALOGUE


def a_model(*nodes: Node, shape: tuple[int, ...] = (3, 224, 224)) -> Model:
    loss = Node("loss", SoftmaxCrossEntropy())
    return Model("tried", {"image": shape}, (*nodes, loss), UNSTATED)


def test_the_language_says_alexnet_as_torchvision_does() -> None:
    """61,100,840 parameters and 714.2 MMAC (Krizhevsky 2014, one tower)."""
    plan = [(64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1)]
    nodes: list[Node] = []
    for at, (channels, kernel, stride, padding) in enumerate(plan):
        nodes += [Node(f"c{at}", Conv2d(channels, kernel, stride, padding)), Node(f"r{at}", ReLU())]
        if at in {0, 1, 4}:
            nodes.append(Node(f"p{at}", MaxPool(3, 2)))
    nodes.append(Node("flat", Flatten()))
    for features in (4096, 4096, 1000):
        nodes += [Node(f"d{len(nodes)}", Dropout()), Node(f"f{len(nodes)}", Linear(features))]
    model = a_model(*nodes)
    assert 61_100_840 == model.parameters
    assert 714_188_480 == model.macs


def test_the_language_says_vgg16_as_its_paper_does() -> None:
    """138,357,544 parameters and 15.47 GMAC (Simonyan & Zisserman 2015, configuration D)."""
    nodes: list[Node] = []
    for stage, (channels, repeats) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]):
        for at in range(repeats):
            nodes.append(Node(f"c{stage}{at}", Conv2d(channels, 3, padding=1)))
        nodes.append(Node(f"p{stage}", MaxPool(2, 2)))
    nodes.append(Node("flat", Flatten()))
    nodes += [Node(f"f{features}", Linear(features)) for features in (4096, 4097, 1000)]
    nodes[-2] = Node("f4096b", Linear(4096))
    model = a_model(*nodes)
    assert 138_357_544 == model.parameters
    assert 15_470_264_320 == model.macs


def test_the_language_says_resnet50_as_torchvision_does() -> None:
    """25,557,032 parameters and 4.09 GMAC (He et al. 2016, stride in the 3x3)."""

    def conv(name: str, channels: int, kernel: int, stride: int, feed: str = "") -> list[Node]:
        layer = Conv2d(channels, kernel, stride, kernel // 2, bias=False)
        feeds = (feed,) if feed else ()
        return [Node(name, layer, feeds), Node(f"{name}n", BatchNorm())]

    nodes = [*conv("first", 64, 7, 2), Node("pool", MaxPool(3, 2, 1))]
    for stage, (width, repeats) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for at in range(repeats):
            name, feed = f"b{stage}{at}", nodes[-1].name
            stride = 2 if at == 0 and stage else 1
            past = feed
            if at == 0:
                nodes += conv(f"{name}s", 4 * width, 1, stride, feed)
                past = nodes[-1].name
            nodes += conv(f"{name}a", width, 1, 1, feed)
            nodes += [*conv(f"{name}b", width, 3, stride), *conv(f"{name}c", 4 * width, 1, 1)]
            nodes.append(Node(name, Add(), (nodes[-1].name, past)))
    nodes += [Node("mean", GlobalAvgPool()), Node("flat", Flatten()), Node("fc", Linear(1000))]
    model = a_model(*nodes)
    assert 25_557_032 == model.parameters
    assert 4_089_184_256 == model.macs


def test_the_language_says_the_dcgan_generator_as_its_authors_do() -> None:
    """3,576,704 parameters and an image of 64x64 (Radford et al. 2016): transposed convolutions."""
    nodes = [Node("t0", Conv2d(512, 4, 1, 0, bias=False, transposed=True)), Node("n0", BatchNorm())]
    for at, channels in enumerate([256, 128, 64], start=1):
        nodes.append(Node(f"t{at}", Conv2d(channels, 4, 2, 1, bias=False, transposed=True)))
        nodes.append(Node(f"n{at}", BatchNorm()))
    nodes += [Node("t4", Conv2d(3, 4, 2, 1, bias=False, transposed=True)), Node("tanh", Tanh())]
    nodes.append(Node("loss", BinaryCrossEntropy()))
    model = Model("generator", {"noise": (100, 1, 1)}, tuple(nodes), UNSTATED)
    assert (3, 64, 64) == model.shapes["tanh"]
    assert 3_576_704 == model.parameters
    assert 819_200 == model.nodes[0].layer.macs(model.place(model.nodes[0], 1))
