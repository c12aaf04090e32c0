"""How the models are trained: a model, its optimizer, and the data that goes with them.

Optimizers are those of the study where it names one, else of the model's authors with a rate for
small batches; workloads/shelf.py says which. Classifiers of images have ten classes, as the
studies' data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from workloads.data import labels, personal_images
from workloads.graph import TARGET, Model
from workloads.models import dcgan
from workloads.models.alexnet import alexnet
from workloads.models.blocks import FEW_CLASSES
from workloads.models.densenet import densenet
from workloads.models.dqn import acting, dqn
from workloads.models.emdl21 import MODELS, OPTIMIZER, OPTIMIZERS, cpu_job
from workloads.models.googlenet import googlenet, inceptionv1
from workloads.models.lenet import lenet
from workloads.models.mobilenetv2 import mobilenetv2
from workloads.models.perceptrons import WIDTHS, perceptron
from workloads.models.resnet import resnet, resnet20
from workloads.models.squeezenet import squeezenet
from workloads.models.texts import bert, char_cnn, char_lstm, seq2seq
from workloads.models.vgg import vgg
from workloads.models.xception import xception
from workloads.shelf import BEFORE, DAYS, PER_DAY
from workloads.training import SGD, Adam, Evaluation, Inference, Optimizer, Pass, Training, training
from workloads.work import Step
from workloads.workload import Given

JUDGED = 64  # images that judge each day

# Momentum and decay are of the papers. Their rates (0.1 with batch norm, 0.01 without) are for
# batches of 128 and more and diverge with a few samples; these were seen to learn generated data
# with batches of 4.
_NORMED = SGD(learning_rate=0.01, momentum=0.9, weight_decay=1e-4)
_DEEP = SGD(learning_rate=0.001, momentum=0.9, weight_decay=1e-4)
_PLAIN = SGD(learning_rate=0.003, momentum=0.9, weight_decay=5e-4)


@dataclass(frozen=True)
class Recipe:
    """A model by its parameters, and how it learns."""

    model: Callable[[Given], Model]
    optimizer: Optimizer


def _fixed(model: Callable[[], Model]) -> Callable[[Given], Model]:
    """A model of which nothing is chosen."""
    return lambda _: model()


def _sized(model: Callable[[int, int], Model]) -> Callable[[Given], Model]:
    """A classifier of images whose size is chosen."""
    return lambda given: model(given["image_size"], FEW_CLASSES)


RECIPES: dict[str, Recipe] = {
    **{name: Recipe(_fixed(partial(perceptron, name)), SGD()) for name in WIDTHS},
    **{
        f"emdl-{name}": Recipe(_fixed(model), OPTIMIZERS.get(name, OPTIMIZER))
        for name, model in MODELS.items()
    },
    "lenet": Recipe(_fixed(lenet), _PLAIN),
    "alexnet": Recipe(_sized(alexnet), _PLAIN),
    "squeezenet": Recipe(_sized(squeezenet), _PLAIN),
    "googlenet": Recipe(_sized(googlenet), _PLAIN),
    "mobilenetv2": Recipe(_sized(mobilenetv2), _NORMED),
    "inceptionv1": Recipe(_sized(inceptionv1), _NORMED),
    "xception": Recipe(_sized(xception), _NORMED),
    "vgg16": Recipe(_sized(partial(vgg, 16)), _PLAIN),
    "vgg19": Recipe(_sized(partial(vgg, 19)), _PLAIN),
    "resnet20": Recipe(_fixed(resnet20), _NORMED),
    "resnet50": Recipe(_sized(partial(resnet, 50)), _DEEP),
    "resnet101": Recipe(_sized(partial(resnet, 101)), _DEEP),
    "resnet152": Recipe(_sized(partial(resnet, 152)), _DEEP),
    "densenet40": Recipe(_fixed(partial(densenet, 40)), _NORMED),
    "densenet100": Recipe(_fixed(partial(densenet, 100)), _NORMED),
    "char-lstm": Recipe(lambda given: char_lstm(given["text_length"]), Adam(0.002)),
    "char-cnn": Recipe(lambda given: char_cnn(given["text_length"]), Adam(0.001)),
    "bert": Recipe(lambda given: bert(given["text_length"]), Adam(3e-5)),
    "seq2seq": Recipe(lambda given: seq2seq(given["text_length"]), Adam(0.001)),
    "dqn": Recipe(_fixed(dqn), Adam(1e-4)),
}


def trained(name: str, given: Given) -> Step:
    """One training step of a workload."""
    if name == "emdl-cpuconf":
        return cpu_job()
    if name == "dcgan":
        return dcgan.training_step(given["batch_size"])
    if name == "daily-increment":
        return daily(given["batch_size"])
    recipe = RECIPES[name]
    return training(recipe.model(given), given["batch_size"], recipe.optimizer)


def inferred(name: str, given: Given) -> Step:
    """One forward pass of the same model, as it is used when it is trained."""
    used = {"dcgan": dcgan.making, "dqn": acting}
    model = used[name]() if name in used else RECIPES[name].model(given)
    return Inference(model, given["batch_size"])


def daily(batch: int) -> Training:
    """The TX2 study's user: a trained DenseNet40 learns 64 new images a day, for 17 days.

    Images of everybody come first, then those of one person, who gets more and more peculiar. The
    model is judged by that person's images, at the end of every day.
    """
    column = personal_images(FEW_CLASSES, BEFORE)
    data = {"image": column, TARGET: labels(FEW_CLASSES)}
    plain = densenet(40)
    model = Model("daily-increment", plain.inputs, plain.nodes, plain.stated, data)
    held_out = {"image": personal_images(FEW_CLASSES, 0)}
    return Training(
        (Pass(model, RECIPES["densenet40"].optimizer),),
        batch,
        batches=(BEFORE + DAYS * PER_DAY) // batch,
        evaluation=Evaluation(PER_DAY // batch, JUDGED, held_out),
    )
