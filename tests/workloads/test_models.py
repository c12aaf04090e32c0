"""Models of the studies: parameters and multiply-adds as the literature has them."""

import pytest

from workloads.catalogue import CATALOGUE
from workloads.graph import Model
from workloads.models.alexnet import alexnet, emdl_alexnet
from workloads.models.dcgan import faking, judging, making
from workloads.models.densenet import densenet
from workloads.models.dqn import acting, dqn
from workloads.models.emdl21 import MODELS
from workloads.models.googlenet import (
    emdl_googlenet,
    emdl_googlenet_intended,
    googlenet,
    inceptionv1,
)
from workloads.models.lenet import emdl_lenet, lenet
from workloads.models.mobilenetv2 import emdl_mobilenetv2, mobilenetv2
from workloads.models.perceptrons import WIDTHS, perceptron
from workloads.models.resnet import resnet, resnet20
from workloads.models.squeezenet import emdl_squeezenet, squeezenet
from workloads.models.texts import bert, char_cnn, char_lstm, seq2seq
from workloads.models.vgg import vgg
from workloads.models.xception import xception

# Figures of others, not ours: of the papers, of torchvision's table of models (parameters exact,
# multiply-adds to 10 M), of Keras and Caffe; "by hand" where a sum on paper is all there is.
# A figure that is published in round numbers is held to as many digits as it has.
LITERATURE = [
    # Computed from EMDL'21's own layer definitions (repository at 752659f).
    (emdl_lenet(), 349_980, 2.21e6, 0.005e6),
    (emdl_alexnet(), 30_006_666, 989.11e6, 0.005e6),
    (emdl_squeezenet(), 740_554, 787.41e6, 0.005e6),
    (emdl_googlenet(), 5_979_642, 490.04e6, 0.005e6),
    (emdl_googlenet_intended(), 5_979_642, 1568.81e6, 0.005e6),
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
    # With the shortcuts of option A it has 269,722 and 40.55 M; here are two 1x1 convolutions more.
    (resnet20(), 269_722 + 2_752, 40_550_400 + 2 * 131_072 + 640, 0),
    # The authors' count for depth 40 is 1,019,722 and they print 7.0 M for depth 100.
    (densenet(40), 1_019_722, 0.265e9, 0.0005e9),
    (densenet(100), 7_000_000, 1.77e9, 0.005e9),
    # By hand: a table of 65 x 128, two LSTMs of 4 x 128 x 257, a connection of 129 x 65.
    (char_lstm(), 8_320 + 2 * 131_584 + 8_385, 50 * (2 * 131_072 + 8_320), 0),
    # The TX2 study's own figures, to the digits that it prints.
    (char_cnn(), 1_000_000, 23e6, 0.5e6),
    (seq2seq(), 348_000_000, 28e9, 0.5e9),
    # Hugging Face counts 109,482,240 with the pooler; two answers more. MobileBERT's authors count
    # 22.5 GFLOP for 128 symbols.
    (bert(), 109_482_240 + 2 * 769, 48_318_973_440, 0),
    # PyTorch's tutorial has these two; multiply-adds by hand, layer by layer.
    (judging(), 2_765_568, 3_145_728 + 3 * 33_554_432 + 8_192, 0),
    (making(), 3_576_704, 819_200 + 3 * 33_554_432 + 3_145_728, 0),
    (faking(0.0), 2_765_568 + 3_576_704, 208_445_440, 0),
    # By hand: 8,224 + 32,832 + 36,928 + 1,606,144 + 9,234.
    (acting(), 1_693_362, 3_276_800 + 2_654_208 + 1_806_336 + 1_605_632 + 9_216, 0),
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
    assert abs(parameters - model.parameters) <= ROUNDED.get(model.name, 0)
    assert abs(macs - model.macs) <= tolerance


@pytest.mark.parametrize("model", [model for model, *_ in LITERATURE], ids=lambda model: model.name)
def test_a_model_is_as_large_as_it_states(model: Model) -> None:
    assert (model.stated.parameters, model.stated.macs) == (model.parameters, model.macs)
    assert model.stated.source


def test_bert_costs_what_others_count() -> None:
    assert 22.5e9 == pytest.approx(2 * bert(128).macs, rel=0.01)


@pytest.mark.parametrize("name", ["emdl-squeezenet", "emdl-googlenet"])
def test_a_carried_stride_leaves_no_more_than_its_study_had(name: str) -> None:
    model = {"emdl-squeezenet": emdl_squeezenet(), "emdl-googlenet": emdl_googlenet()}[name]
    pixels = {"emdl-squeezenet": ("conv2", (10, 7, 7)), "emdl-googlenet": ("conv2", (192, 28, 28))}
    node, shape = pixels[name]
    assert shape == model.shapes[node]
    assert (10,) == model.shapes["flatten"]


def test_only_the_layers_that_the_study_registered_are_learned() -> None:
    learned = {node.name for node in emdl_lenet().nodes if emdl_lenet().learned(node)}
    assert {"conv1", "fc1", "fc2"} == learned


@pytest.mark.parametrize("name", WIDTHS)
def test_a_perceptron_is_as_wide_as_the_catalogue_says(name: str) -> None:
    assert f" {'-'.join(map(str, WIDTHS[name]))} perceptron" in CATALOGUE[name].text


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_emdl21_is_in_the_catalogue_by_its_name(name: str) -> None:
    assert MODELS[name]().name == f"emdl-{name}"
    assert f"emdl-{name}" in CATALOGUE
