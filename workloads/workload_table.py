"""The table of built-in workloads: parameters, defaults, and the study that each comes from.

Models are imported only when a step is first needed: most processes never need one.
"""

from collections.abc import Iterator
from dataclasses import replace

from workloads.basic_steps import MatmulStep, OpaqueStep
from workloads.models.own_models import OWN_MODELS
from workloads.run_options import FEED, INPUT, KERNEL
from workloads.step_cost import Step
from workloads.workload import (
    BUILT_IN,
    BoundParameters,
    FixedLength,
    Parameter,
    Workload,
    WorkloadSource,
)

CAMBRIDGE = WorkloadSource("cambridge", "Cambridge on smartphone GPUs (arXiv 2202.10100)", warmup=5)
EMDL = WorkloadSource(
    "emdl21", "EMDL'21, MNN on six phones (doi 10.1145/3469116.3470009)", warmup=5
)
TX2 = WorkloadSource("tx2", "UC Merced on the NVIDIA TX2 (arXiv 1906.04278)", warmup=3)
TX2_FAILED = WorkloadSource(
    "tx2-failed", "the six models that did not run on the TX2's 8 GB", warmup=3
)
TEXTBOOK = WorkloadSource(
    "textbook", "the textbook versions of EMDL'21's models, and ResNet-20", warmup=5
)
LANGUAGE = WorkloadSource("language", "small language models, trained on the phone", warmup=3)
OWN = WorkloadSource("own", "models of this installation", warmup=5)
STUDIES = (CAMBRIDGE, EMDL, TX2, TX2_FAILED, TEXTBOOK, LANGUAGE, OWN, BUILT_IN)

INFERENCE_SUFFIX = "-inference"
# daily-increment: images per day and the number of days are the study's; the number of images
# before the first day is Farmhand's.
IMAGES_PER_DAY, DAYS, PRETRAINING_IMAGES = 64, 17, 1024

_EMDL_NOTES = (
    "Exactly as coded in the study's repository, errors included, so that its published times are "
    "comparable. As in the study: SGD with momentum 0.9, weight decay 5e-4 and learning rate 0.01, "
    "batches of 1 to 32, images of 224x224 (LeNet: 28x28), 5 warm-up steps, four threads. The data "
    "are generated, with values from 0 to 1."
)
_SAME_SHAPES = (
    "The published network cannot learn as it was coded, so its runs do not count on a real phone. "
    "This one has the same convolutions, takes about the same time, and learns."
)
_NEVER_LEARNS = (
    " As in the study, its loss is {}, so its runs are void; that is a result, not a failure."
)
_TINY_RATE = (
    " Its learning rate was 1e-5 and its weight decay 4e-5; in a short run some tensors do not "
    "change, and the run is void."
)
_TX2_NOTES = (
    "Batches of 4 to 64 and 3 warm-up steps as in the study, which does not name the optimizer. "
)
_TX2_IMAGES = _TX2_NOTES + (
    "The study trained on CIFAR-10, so its own size is `image_size=32`, as in the sweeps of `farm "
    "study`. The default is the size of each model's paper. Ten classes. "
)
_PAPER = (
    "The optimizer is that of the model's paper. The learning rate is Farmhand's: the paper's is "
    "for large batches and diverges with small ones."
)


def _batch(default: int, max: int = 512) -> Parameter:
    return Parameter("batch_size", default, 1, max, "samples per step")


def _image_size(default: int, min: int) -> Parameter:
    return Parameter("image_size", default, min, 512, "pixels per side")


def _text_length(default: int, min: int, max: int) -> Parameter:
    return Parameter("text_length", default, min, max, "tokens per sample")


# The sizes that EMDL'21's slides and table II of the TX2 study give, as they are printed there.
_SLIDES = {
    "emdl-lenet": "3.2 K",
    "emdl-alexnet": "61 M",
    "emdl-squeezenet": "411.2 K",
    "emdl-googlenet": "6.8 M",
    "emdl-mobilenetv2": "3.4 M",
}
_TABLE_II = {
    "densenet40": "40 layers, 30 M FLOPs, 1 M parameters",
    "resnet50": "50 layers, 4 G FLOPs, 98 M parameters",
    "squeezenet": "40 layers, 837 M FLOPs, 5 M parameters",
    "vgg16": "16 layers, 4 G FLOPs, 134 M parameters",
    "xception": "39 layers, 23 M parameters",
    "inceptionv1": "22 layers, 30 M FLOPs, 5 M parameters",
    "char-cnn": "2 layers, 23 M FLOPs, 1 M parameters",
    "dcgan": "40 layers, 30 M FLOPs, 1 M parameters",
    "dqn": "4 layers",
    "alexnet": "8 layers, 727 M FLOPs, 60 M parameters",
    "vgg19": "19 layers, 20 G FLOPs, 548 M parameters",
    "bert": "12 layers, 110 M parameters",
    "resnet101": "101 layers, 8 G FLOPs, 155 M parameters",
    "resnet152": "152 layers, 11 G FLOPs, 220 M parameters",
    "densenet100": "100 layers, 31 M FLOPs, 7 M parameters",
    "seq2seq": "2 layers, 28 G FLOPs, 348 M parameters",
}
_STATED = {name: f"{size} parameters, on its slides" for name, size in _SLIDES.items()}
_STATED |= {name: f"{size}, in its table II" for name, size in _TABLE_II.items()}


def _training(
    name: str, study: WorkloadSource, text: str, *parameters: Parameter, notes: str
) -> Workload:
    """Return a workload that trains a model of workloads/models/training_configs.py."""

    def step(given: BoundParameters) -> Step:
        from workloads.models.training_configs import build_training_step

        return build_training_step(name, given)

    return Workload(
        name,
        text,
        parameters,
        step,
        threads=4 if study is EMDL else None,
        study=study,
        notes=notes,
        stated=_STATED.get(name, ""),
        options=(FEED, INPUT, KERNEL),
    )


def _inference_variant(workload: Workload) -> Workload:
    """Return the workload that runs only the forward pass of the same model."""

    def step(given: BoundParameters) -> Step:
        from workloads.models.training_configs import build_inference_step

        return build_inference_step(workload.name, given)

    return replace(
        workload,
        name=f"{workload.name}{INFERENCE_SUFFIX}",
        text=f"inference: {workload.text}",
        step=step,
        notes=f"The forward pass only, as a trained model is used. {workload.notes}",
    )


def _daily_increment() -> Workload:
    """Return the one workload that ends by itself."""
    sizes = (1, 2, 4, 8, 16, 32, 64)
    batch = Parameter("batch_size", 16, 1, 64, "samples per step", choices=sizes)
    notes = (
        "64 images per day for 17 days and a pre-trained model, as in the study, which used three "
        "batch sizes without naming them: the example has 4, 16 and 64. The model is pre-trained "
        "on 1024 generated images during the warm-up; then the images drift, and every day ends "
        "with an evaluation on 2048 other images. Accuracies are those of generated data: compare "
        "days and batch sizes with each other, not with the study's 60.65 to 61.32 %."
    )
    text = "DenseNet40 learns 64 images per day for 17 days"

    def length(given: BoundParameters) -> FixedLength:
        batch_size = given["batch_size"]
        return FixedLength(PRETRAINING_IMAGES // batch_size, DAYS * IMAGES_PER_DAY // batch_size)

    return replace(_training("daily-increment", TX2, text, batch, notes=notes), length=length)


def _cambridge() -> Iterator[Workload]:
    yield Workload(
        "sgemm",
        "one single-precision matrix product per step, C = A B",
        (
            Parameter("m", 512, 1, 8192, "rows of C"),
            Parameter("n", 512, 1, 8192, "columns of C"),
            Parameter("k", 512, 1, 8192, "inner dimension"),
        ),
        lambda given: MatmulStep(given["m"], given["n"], given["k"]),
        study=CAMBRIDGE,
        notes="Any shape; the study's are square.",
        options=(KERNEL,),
    )
    yield Workload(
        "sgemm-square",
        "one n x n matrix product per step, as in the study",
        (Parameter("n", 512, 1, 8192, "rows and columns"),),
        lambda given: MatmulStep(given["n"], given["n"], given["n"]),
        study=CAMBRIDGE,
        notes="The study went from 32 to 512 in steps of 32, with 500 runs each after a warm-up, "
        "on the same buffers.",
        options=(KERNEL,),
    )
    notes = (
        "Batches of 32 and random input as in the study; SGD with Farmhand's learning rate of 0.01."
    )
    for name, widths in {
        "mlp-1": "16-16",
        "mlp-2": "16-16-16-16",
        "mlp-3": "256-256",
        "mlp-4": "784-256-128-16",
    }.items():
        text = f"a {widths} perceptron"
        yield _training(name, CAMBRIDGE, text, _batch(32, 4096), notes=notes)


def _emdl() -> Iterator[Workload]:
    for name, title, max_batch, caution in (
        ("lenet", "LeNet", 4096, " Its second convolution is never updated."),
        ("alexnet", "AlexNet", 512, " It has half the parameters of AlexNet."),
        ("squeezenet", "SqueezeNet", 512, _NEVER_LEARNS.format("not a number")),
        ("googlenet", "GoogLeNet", 512, _NEVER_LEARNS.format("constant")),
        ("mobilenetv2", "MobileNetV2", 512, _TINY_RATE),
    ):
        text = f"EMDL'21's {title} as it was coded"
        notes = _EMDL_NOTES + caution
        yield _training(f"emdl-{name}", EMDL, text, _batch(16, max_batch), notes=notes)
    for name, title, change in (
        ("squeezenet", "SqueezeNet", "It has the activations and the softmax that were left out."),
        ("googlenet", "GoogLeNet", "It has activations, and its softmax is over the classes."),
        ("mobilenetv2", "MobileNetV2", "It is trained with the learning rate of the others."),
    ):
        text = f"textbook {title}, EMDL'21's shapes"
        notes = f"{_SAME_SHAPES} {change}"
        yield _training(f"emdl-{name}-textbook", EMDL, text, _batch(16), notes=notes)
    yield _training(
        "emdl-cpuconf",
        EMDL,
        "the job of EMDL'21's table of core sets and clocks",
        notes="The study does not name the job; by its time and power we take it to be AlexNet "
        "with 16 samples.",
    )


def _tx2() -> Iterator[Workload]:
    for name, title, size, min_size in (
        ("alexnet", "AlexNet", 224, 32),
        ("inceptionv1", "Inception V1", 224, 32),
        ("resnet50", "ResNet-50", 224, 32),
        ("squeezenet", "SqueezeNet 1.0", 224, 32),
        ("vgg16", "VGG-16", 224, 32),
        ("xception", "Xception", 299, 32),
    ):
        parameters = (_batch(16), _image_size(size, min_size))
        yield _training(name, TX2, title, *parameters, notes=_TX2_IMAGES + _PAPER)
    yield _training("densenet40", TX2, "DenseNet40-12", _batch(16), notes=_TX2_IMAGES + _PAPER)
    sizes = "The layer sizes were chosen to match the study's 1 M parameters and 23 M MACs. "
    yield _training(
        "char-cnn",
        TX2,
        "the author of a text, by LSTM and convolution",
        _batch(16),
        _text_length(30, 4, 1024),
        notes=_TX2_NOTES + sizes + "Adam with learning rate 0.001 is Farmhand's choice.",
    )
    yield _training(
        "char-lstm",
        TX2,
        "the next character, by two LSTMs of 128",
        _batch(16),
        _text_length(50, 1, 1024),
        notes=_TX2_NOTES + "The sizes are those of char-rnn; Adam with learning rate 0.002 as in "
        "its TensorFlow port.",
    )
    yield _training(
        "dcgan",
        TX2,
        "DCGAN of 64x64: a generator and a discriminator",
        _batch(16),
        notes=_TX2_NOTES + "The optimizer, Adam with learning rate 2e-4, is that of the paper.",
    )
    yield _training(
        "dqn",
        TX2,
        "deep Q-network for Atari, 18 actions",
        _batch(16),
        notes=_TX2_NOTES + "Adam with learning rate 1e-4 replaces the paper's RMSProp.",
    )
    yield _daily_increment()


def _tx2_failed() -> Iterator[Workload]:
    never, later = "On the TX2 it never started.", "On the TX2 it crashed after some steps."
    for name, title in (
        ("resnet101", "ResNet-101"),
        ("resnet152", "ResNet-152"),
        ("vgg19", "VGG-19"),
    ):
        notes = f"{never} {_TX2_IMAGES}{_PAPER}"
        yield _training(name, TX2_FAILED, title, _batch(16), _image_size(224, 32), notes=notes)
    notes = f"{later} {_TX2_IMAGES}{_PAPER}"
    yield _training("densenet100", TX2_FAILED, "DenseNet100-12", _batch(16), notes=notes)
    yield _training(
        "bert",
        TX2_FAILED,
        "BERT-base as a binary classifier of texts",
        _batch(16),
        _text_length(384, 8, 512),
        notes=f"{never} {_TX2_NOTES}Adam with learning rate 3e-5 and 384 tokens are those of its "
        "SQuAD recipe.",
    )
    sizes = "The layer sizes were chosen to match the study's 348 M parameters and 28 G MACs. "
    yield _training(
        "seq2seq",
        TX2_FAILED,
        "translation by four LSTMs of 2048",
        _batch(16),
        _text_length(128, 8, 512),
        notes=f"{later} {_TX2_NOTES}{sizes}Adam with learning rate 0.001 is Farmhand's choice.",
    )


def _textbook() -> Iterator[Workload]:
    notes = "The textbook model with ten classes, on generated data. " + _PAPER
    size = _image_size(224, 32)
    yield _training("lenet", TEXTBOOK, "LeNet-5", _batch(16, 4096), notes=notes)
    yield _training("googlenet", TEXTBOOK, "GoogLeNet", _batch(16), size, notes=notes)
    yield _training("mobilenetv2", TEXTBOOK, "MobileNetV2", _batch(16), size, notes=notes)
    yield _training("resnet20", TEXTBOOK, "ResNet-20 for CIFAR", _batch(16, 4096), notes=notes)


def _language() -> Iterator[Workload]:
    notes = (
        "GPT-2's architecture with tied output, AdamW (weight decay 0.01, gradients clipped to a "
        "norm of 1), on generated text that can be learned, of 256 or 2048 tokens. "
    )
    micro = Parameter("micro_batches", 1, 1, 16, "batches per step and update")
    parameters = (_batch(4), _text_length(128, 8, 512), micro)
    rank = Parameter("lora_rank", 8, 1, 64, "rank of the adapters")
    mlp = Parameter("lora_mlp", 0, 0, 1, "1: adapters in the MLP as well")
    for name, text in (
        ("decoder-1m", "a decoder of 1 M parameters"),
        ("decoder-15m", "a decoder of 15 M parameters"),
    ):
        yield _training(
            name, LANGUAGE, text, *parameters, notes=f"{notes}Learning rate 0.001. All learn."
        )
        yield _training(
            f"{name}-lora",
            LANGUAGE,
            f"{text}, by LoRA",
            *parameters,
            rank,
            mlp,
            notes=f"{notes}Learning rate 0.01. Only the adapters learn (Hu et al. 2021, alpha = "
            "rank); everything else is frozen at its initial values.",
        )


def _own() -> Iterator[Workload]:
    notes = "A model of this installation, trained on generated data."
    for own in OWN_MODELS:
        parameters = (_batch(own.batch_size), *own.parameters)
        yield _training(own.name, OWN, own.text, *parameters, notes=notes)


def all_workloads() -> Iterator[Workload]:
    """Yield every workload, study by study, each model with its inference variant."""
    without_inference = {"sgemm", "sgemm-square", "emdl-cpuconf", "daily-increment"}
    without_inference |= {"decoder-1m-lora", "decoder-15m-lora"}
    for workloads in (
        _cambridge(),
        _emdl(),
        _tx2(),
        _tx2_failed(),
        _textbook(),
        _language(),
        _own(),
    ):
        for workload in workloads:
            yield workload
            if workload.name not in without_inference:
                yield _inference_variant(workload)
    yield Workload(
        "noop",
        "no call to the phone: the overhead of Farmhand itself",
        (),
        lambda _: OpaqueStep(),
        on_phone=False,
    )
