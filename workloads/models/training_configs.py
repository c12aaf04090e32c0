"""How each workload trains its model: the model, its optimizer and its data.

The optimizer is the study's where it names one, else that of the model's authors with a learning
rate for small batches; see the notes in workloads/workload_table.py. Image classifiers have ten
classes, like the studies' data.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from workloads.data_columns import drifting_images, labels
from workloads.graph import TARGET, Model
from workloads.models import dcgan
from workloads.models.alexnet import alexnet
from workloads.models.blocks import STUDY_CLASSES
from workloads.models.decoder import DECODER_SIZES, Adapters, decoder
from workloads.models.densenet import densenet
from workloads.models.dqn import dqn, dqn_policy
from workloads.models.emdl21 import LARGEST_BATCH, MODELS, OPTIMIZER, OPTIMIZERS, cpu_job
from workloads.models.googlenet import googlenet, inceptionv1
from workloads.models.lenet import lenet
from workloads.models.mobilenetv2 import mobilenetv2
from workloads.models.own_models import OWN_MODELS, OwnModel
from workloads.models.perceptrons import WIDTHS, perceptron
from workloads.models.resnet import resnet, resnet20
from workloads.models.squeezenet import squeezenet
from workloads.models.text_models import bert, char_cnn, char_lstm, seq2seq
from workloads.models.vgg import vgg
from workloads.models.xception import xception
from workloads.protocol.faults import FarmError, InvalidRequest
from workloads.step_cost import Step
from workloads.text import safe_text
from workloads.training import (
    SGD,
    Adam,
    AdamW,
    EvaluationSpec,
    InferenceStep,
    TrainingPass,
    TrainingStep,
    accumulated_step,
    training_step,
)
from workloads.workload import BoundParameters
from workloads.workload_table import DAYS, IMAGES_PER_DAY, PRETRAINING_IMAGES

# At the end of every day of daily-increment. The study's gain was 0.67 points: 14 of 2048 images.
EVALUATION_IMAGES, EVALUATION_BATCH = 2048, 128

# Momentum and decay are those of the papers. The papers' learning rates (0.1 with batch norm, 0.01
# without) are for batches of 128 and more, and diverge with a few samples; with these rates the
# models were seen to learn generated data in batches of 4.
_WITH_NORM = SGD(learning_rate=0.01, momentum=0.9, weight_decay=1e-4)
_DEEP = SGD(learning_rate=0.001, momentum=0.9, weight_decay=1e-4)
_WITHOUT_NORM = SGD(learning_rate=0.003, momentum=0.9, weight_decay=5e-4)


@dataclass(frozen=True)
class TrainingConfig:
    """A model as a function of the workload's parameters, and its optimizer."""

    model: Callable[[BoundParameters], Model]
    optimizer: SGD | Adam
    full_rate_batch: int = 1  # with fewer samples the learning rate is lower in proportion

    def optimizer_for(self, batch_size: int) -> SGD | Adam:
        """Return the optimizer for batches of this size."""
        share = min(1.0, batch_size / self.full_rate_batch)
        return replace(self.optimizer, learning_rate=share * self.optimizer.learning_rate)


def _fixed(model: Callable[[], Model]) -> Callable[[BoundParameters], Model]:
    """Return a model without parameters to choose."""
    return lambda _: model()


def _sized(model: Callable[[int, int], Model]) -> Callable[[BoundParameters], Model]:
    """Return an image classifier with an image size to choose."""
    return lambda given: model(given["image_size"], STUDY_CLASSES)


def _decoder(name: str) -> Callable[[BoundParameters], Model]:
    """Return a language model with a length of the text to choose."""
    return lambda given: decoder(name, given["text_length"])


TRAINING_CONFIGS: dict[str, TrainingConfig] = {
    **{name: TrainingConfig(_fixed(partial(perceptron, name)), SGD()) for name in WIDTHS},
    **{
        f"emdl-{name}": TrainingConfig(
            _fixed(model), OPTIMIZERS.get(name, OPTIMIZER), LARGEST_BATCH
        )
        for name, model in MODELS.items()
    },
    "lenet": TrainingConfig(_fixed(lenet), _WITHOUT_NORM),
    "alexnet": TrainingConfig(_sized(alexnet), _WITHOUT_NORM),
    "squeezenet": TrainingConfig(_sized(squeezenet), _WITHOUT_NORM),
    "googlenet": TrainingConfig(_sized(googlenet), _WITHOUT_NORM),
    "mobilenetv2": TrainingConfig(_sized(mobilenetv2), _WITH_NORM),
    "inceptionv1": TrainingConfig(_sized(inceptionv1), _WITH_NORM),
    "xception": TrainingConfig(_sized(xception), _WITH_NORM),
    "vgg16": TrainingConfig(_sized(partial(vgg, 16)), _WITHOUT_NORM),
    "vgg19": TrainingConfig(_sized(partial(vgg, 19)), _WITHOUT_NORM),
    "resnet20": TrainingConfig(_fixed(resnet20), _WITH_NORM),
    "resnet50": TrainingConfig(_sized(partial(resnet, 50)), _DEEP),
    "resnet101": TrainingConfig(_sized(partial(resnet, 101)), _DEEP),
    "resnet152": TrainingConfig(_sized(partial(resnet, 152)), _DEEP),
    "densenet40": TrainingConfig(_fixed(partial(densenet, 40)), _WITH_NORM),
    "densenet100": TrainingConfig(_fixed(partial(densenet, 100)), _WITH_NORM),
    "char-lstm": TrainingConfig(lambda given: char_lstm(given["text_length"]), Adam(0.002)),
    "char-cnn": TrainingConfig(lambda given: char_cnn(given["text_length"]), Adam(0.001)),
    "bert": TrainingConfig(lambda given: bert(given["text_length"]), Adam(3e-5)),
    "seq2seq": TrainingConfig(lambda given: seq2seq(given["text_length"]), Adam(0.001)),
    "dqn": TrainingConfig(_fixed(dqn), Adam(1e-4)),
    **{name: TrainingConfig(_decoder(name), AdamW(0.001)) for name in DECODER_SIZES},
}
LORA_SUFFIX = "-lora"
LORA_OPTIMIZER = AdamW(0.01)  # adapters start at zero and are few


def build_training_step(name: str, given: BoundParameters) -> Step:
    """Return one training step of a workload."""
    if name == "emdl-cpuconf":
        return cpu_job()
    if name == "dcgan":
        return dcgan.dcgan_step(given["batch_size"])
    if name == "daily-increment":
        return daily_increment_step(given["batch_size"])
    if name.removesuffix(LORA_SUFFIX) in DECODER_SIZES:
        return decoder_step(name, given)
    config = training_config(name)
    batch_size = given["batch_size"]
    return training_step(config.model(given), batch_size, config.optimizer_for(batch_size))


def training_config(name: str) -> TrainingConfig:
    """Return how a workload trains its model; one of own_models.py is imported."""
    own = next((own for own in OWN_MODELS if own.name == name), None)
    if own is None:
        return TRAINING_CONFIGS[name]
    with _own_mistakes(own):
        module = importlib.import_module(own.module)
        build, optimizer = module.model, module.OPTIMIZER

    def build_own(given: BoundParameters) -> Model:
        with _own_mistakes(own):
            model: Model = build(given)
            return model

    return TrainingConfig(build_own, optimizer)


@contextmanager
def _own_mistakes(own: OwnModel) -> Iterator[None]:
    """Refuse a model whose file has a mistake, with the file and the line."""
    try:
        yield
    except FarmError:
        raise
    except Exception as error:
        file = f"{own.module.replace('.', '/')}.py"
        line = error.lineno if isinstance(error, SyntaxError) else None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.endswith(file):
                line = trace.tb_lineno
            trace = trace.tb_next
        where = f"{file}, line {line}" if line else file
        raise InvalidRequest(
            f"{where}: {type(error).__name__}: {safe_text(error)}; correct the file"
        ) from error


def build_inference_step(name: str, given: BoundParameters) -> Step:
    """Return one forward pass of a workload's model, as it is used after training."""
    used = {"dcgan": dcgan.generator, "dqn": dqn_policy}
    model = used[name]() if name in used else training_config(name).model(given)
    return InferenceStep(model, given["batch_size"])


def decoder_step(name: str, given: BoundParameters) -> TrainingStep:
    """Return the step of a language model, trained in full or by adapters."""
    batch, micro_batches = given["batch_size"], given["micro_batches"]
    full = name.removesuffix(LORA_SUFFIX)
    if name == full:
        model, optimizer = TRAINING_CONFIGS[name].model(given), TRAINING_CONFIGS[name].optimizer
    else:
        adapters = Adapters(given["lora_rank"], mlp=bool(given["lora_mlp"]))
        model, optimizer = decoder(full, given["text_length"], adapters), LORA_OPTIMIZER
    return accumulated_step(model, batch, optimizer, micro_batches)


def daily_increment_step(batch: int) -> TrainingStep:
    """Return the TX2 study's personalization: DenseNet40 learns 64 new images per day, for 17 days.

    Images of the general public come first, then those of one person, which drift more and more.
    The model is evaluated on that person's images at the end of every day.
    """
    data = {
        "image": drifting_images(STUDY_CLASSES, PRETRAINING_IMAGES),
        TARGET: labels(STUDY_CLASSES),
    }
    model = replace(densenet(40), name="daily-increment", data=data)
    every = IMAGES_PER_DAY // batch
    evaluation_data = {"image": drifting_images(STUDY_CLASSES, 0)}
    return TrainingStep(
        (TrainingPass(model, TRAINING_CONFIGS["densenet40"].optimizer),),
        batch,
        batches=(PRETRAINING_IMAGES + DAYS * IMAGES_PER_DAY) // batch,
        evaluation=EvaluationSpec(every, EVALUATION_IMAGES, evaluation_data, EVALUATION_BATCH),
    )
