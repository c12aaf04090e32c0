"""The models of the studies have the parameters and multiply-adds of the literature."""

from dataclasses import replace

import pytest

from workloads.catalogue import CATALOGUE
from workloads.graph import Model, PublishedSize
from workloads.models.alexnet import alexnet, emdl_alexnet
from workloads.models.dcgan import discriminator, generator, generator_and_discriminator
from workloads.models.densenet import densenet
from workloads.models.dqn import dqn, dqn_policy
from workloads.models.emdl21 import MODELS
from workloads.models.googlenet import (
    emdl_googlenet,
    googlenet,
    inceptionv1,
)
from workloads.models.lenet import emdl_lenet, lenet
from workloads.models.mobilenetv2 import emdl_mobilenetv2, mobilenetv2
from workloads.models.perceptrons import WIDTHS, perceptron
from workloads.models.resnet import resnet, resnet20
from workloads.models.squeezenet import emdl_squeezenet, squeezenet
from workloads.models.text_models import bert, char_cnn, char_lstm, seq2seq
from workloads.models.vgg import vgg
from workloads.models.xception import xception


def intended_googlenet() -> Model:
    """EMDL'21's GoogLeNet without the stride that was carried over by mistake."""
    model = emdl_googlenet()
    nodes = tuple(
        replace(node, layer=replace(node.layer, stride=1))
        if node.name in ("conv2", "conv3")
        else node
        for node in model.nodes
    )
    published = PublishedSize(5_979_642, 1_568_813_056, "EMDL'21 as intended")
    return replace(model, name="emdl-googlenet-intended", nodes=nodes, published=published)


# Figures from the papers, from torchvision's table of models (parameters exact, multiply-adds to
# 10 M), from Keras and Caffe; "by hand" where the only source is a sum on paper. A figure that is
# published rounded is compared with as many digits as it has.
LITERATURE = [
    # Computed from EMDL'21's own layer definitions (repository at 752659f).
    (emdl_lenet(), 349_980, 2.21e6, 0.005e6),
    (emdl_alexnet(), 30_006_666, 989.11e6, 0.005e6),
    (emdl_squeezenet(), 740_554, 787.41e6, 0.005e6),
    (emdl_googlenet(), 5_979_642, 490.04e6, 0.005e6),
    (intended_googlenet(), 5_979_642, 1568.81e6, 0.005e6),
    (emdl_mobilenetv2(), 3_504_872, 300e6, 5e6),
    # arXiv 2202.10100, by hand.
    (perceptron("mlp-1"), 272, 256, 0),
    (perceptron("mlp-2"), 816, 768, 0),
    (perceptron("mlp-3"), 65_792, 65_536, 0),
    (perceptron("mlp-4"), 235_920, 235_520, 0),
    # LeNet-5 by hand: 117,600 + 240,000 + 48,000 + 10,080 + 840.
    (lenet(), 61_706, 416_520, 0),
    (alexnet(), 61_100_840, 0.71e9, 0.005e9),
    (squeezenet(), 1_248_424, 0.82e9, 0.005e9),
    (mobilenetv2(), 3_504_872, 0.30e9, 0.005e9),
    (resnet(50), 25_557_032, 4.09e9, 0.005e9),
    (resnet(101), 44_549_160, 7.80e9, 0.005e9),
    (resnet(152), 60_192_808, 11.51e9, 0.005e9),
    (vgg(16), 138_357_544, 15.47e9, 0.005e9),
    (vgg(19), 143_667_240, 19.63e9, 0.005e9),
    (inceptionv1(), 6_624_904, 1.50e9, 0.005e9),
    # Caffe's model; the paper's table 1 adds up to 1,584 M "ops", with rounded rows.
    (googlenet(), 6_998_552, 1.58e9, 0.01e9),
    # Keras counts 22,910,480, of which 54,528 are running statistics.
    (xception(), 22_910_480 - 54_528, 8.4e9, 0.05e9),
    # With the shortcuts of option A it has 269,722 and 40.55 M; ours has two 1x1 convolutions more.
    (resnet20(), 269_722 + 2_752, 40_550_400 + 2 * 131_072 + 640, 0),
    # The authors' count for depth 40 is 1,019,722 and they print 7.0 M for depth 100.
    (densenet(40), 1_019_722, 0.265e9, 0.0005e9),
    (densenet(100), 7_000_000, 1.77e9, 0.005e9),
    # By hand: an embedding of 65 x 128, two LSTMs of 4 x 128 x 257, a linear layer of 129 x 65.
    (char_lstm(), 8_320 + 2 * 131_584 + 8_385, 50 * (2 * 131_072 + 8_320), 0),
    # The TX2 study's figures, to the digits that it prints.
    (char_cnn(), 1_000_000, 23e6, 0.5e6),
    (seq2seq(), 348_000_000, 28e9, 0.5e9),
    # Hugging Face counts 109,482,240 with the pooler; we add a layer of two outputs. MobileBERT's
    # authors count 22.5 GFLOP for 128 tokens.
    (bert(), 109_482_240 + 2 * 769, 48_318_973_440, 0),
    # PyTorch's tutorial has these two; multiply-adds by hand, layer by layer.
    (discriminator(), 2_765_568, 3_145_728 + 3 * 33_554_432 + 8_192, 0),
    (generator(), 3_576_704, 819_200 + 3 * 33_554_432 + 3_145_728, 0),
    (generator_and_discriminator(0.0), 2_765_568 + 3_576_704, 208_445_440, 0),
    # By hand: 8,224 + 32,832 + 36,928 + 1,606,144 + 9,234.
    (dqn_policy(), 1_693_362, 3_276_800 + 2_654_208 + 1_806_336 + 1_605_632 + 9_216, 0),
    (dqn(), 2 * 1_693_362, 2 * 9_352_192, 0),
]
# Parameters that are published in round numbers.
ROUNDED = {"densenet100": 50_000, "char-cnn": 500_000, "seq2seq": 500_000}


@pytest.mark.parametrize(
    ("model", "parameters", "macs", "tolerance"),
    LITERATURE,
    ids=lambda value: value.name if isinstance(value, Model) else "",
)
def test_a_model_is_as_large_as_the_literature_says(
    model: Model, parameters: int, macs: float, tolerance: float
) -> None:
    assert abs(model.parameters - parameters) <= ROUNDED.get(model.name, 0)
    assert abs(model.macs - macs) <= tolerance


@pytest.mark.parametrize("model", [model for model, *_ in LITERATURE], ids=lambda model: model.name)
def test_a_model_is_as_large_as_published(model: Model) -> None:
    assert (model.parameters, model.macs) == (model.published.parameters, model.published.macs)
    assert model.published.source


def test_the_cost_of_bert_matches_published_counts() -> None:
    assert 2 * bert(128).macs == pytest.approx(22.5e9, rel=0.01)


@pytest.mark.parametrize("name", ["emdl-squeezenet", "emdl-googlenet"])
def test_a_carried_stride_has_the_shapes_of_its_study(name: str) -> None:
    model = {"emdl-squeezenet": emdl_squeezenet(), "emdl-googlenet": emdl_googlenet()}[name]
    pixels = {"emdl-squeezenet": ("conv2", (10, 7, 7)), "emdl-googlenet": ("conv2", (192, 28, 28))}
    node, shape = pixels[name]
    assert model.shapes[node] == shape
    assert model.shapes["flatten"] == (10,)


def test_only_the_layers_that_the_study_registered_are_trained() -> None:
    trained = {node.name for node in emdl_lenet().nodes if emdl_lenet().trainable_count(node)}
    assert trained == {"conv1", "fc1", "fc2"}


@pytest.mark.parametrize("name", WIDTHS)
def test_a_perceptron_is_as_wide_as_the_catalogue_says(name: str) -> None:
    assert f" {'-'.join(map(str, WIDTHS[name]))} perceptron" in CATALOGUE[name].text


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_emdl21_is_in_the_catalogue_by_its_name(name: str) -> None:
    assert MODELS[name]().name == f"emdl-{name}"
    assert f"emdl-{name}" in CATALOGUE
