"""The shelf: every workload of the studies, with what may be chosen, and where it comes from.

A table to be read; models are imported when a step of one is first asked for, and most processes
never do.
"""

from collections.abc import Iterator

from workloads.sgemm import Product
from workloads.work import Step, Work
from workloads.workload import HOUSE, Given, Length, Parameter, Study, Workload

CAMBRIDGE = Study("cambridge", "Cambridge on smartphone GPUs (arXiv 2202.10100)", warmup=5)
EMDL = Study("emdl21", "EMDL'21, MNN on six phones (doi 10.1145/3469116.3470009)", warmup=5)
TX2 = Study("tx2", "UC Merced on the NVIDIA TX2 (arXiv 1906.04278)", warmup=3)
TX2_FAILED = Study("tx2-failed", "the six that did not run on the TX2's 8 GB", warmup=3)
TEXTBOOK = Study("textbook", "what EMDL'21's names mean elsewhere, and ResNet-20", warmup=5)
STUDIES = (CAMBRIDGE, EMDL, TX2, TX2_FAILED, TEXTBOOK, HOUSE)

INFERENCE = "-inference"
# daily-increment: images a day and days are the study's, the images before the first day are ours.
PER_DAY, DAYS, BEFORE = 64, 17, 1024

_EMDL_NOTES = (
    "As coded in the study's repository, quirks included, so that its published times compare. "
    "SGD with momentum 0.9, weight decay 5e-4 and a rate of 0.01, batches of 1 to 32, images of "
    "224x224 (LeNet: 28x28), 5 warm-up steps, four threads: as there. Data are generated, with "
    "values from 0 to 1."
)
_NEVER_LEARNS = " Its loss is {} as it was in the study, so its runs are void: that is a finding."
_TINY_RATE = (
    " Its rate was 1e-5, its decay 4e-5; some tensors do not move by that within a short run, "
    "which is then void."
)
_TX2_NOTES = "Batches of 4 to 64 and 3 warm-up steps as in the study, which names no optimizer. "
_TX2_IMAGES = _TX2_NOTES + (
    "It names CIFAR-10, but its arithmetic and memory are those of images in the size of each "
    "model's paper (ResNet50 at 224x224 and batch 64: 5.8 GB there, 5.6 GB by our plan), so that "
    "is the default. Ten classes. "
)
_PAPER = (
    "The optimizer is that of the model's paper, with a rate of ours: the paper's is for large "
    "batches, and diverges with small ones."
)


def _batch(default: int, most: int = 512) -> Parameter:
    return Parameter("batch_size", default, 1, most, "samples a step")


def _side(default: int, least: int) -> Parameter:
    return Parameter("image_size", default, least, 512, "pixels a side")


def _length(default: int, least: int, most: int) -> Parameter:
    return Parameter("text_length", default, least, most, "symbols a sample")


def _trained(name: str, study: Study, text: str, *parameters: Parameter, notes: str) -> Workload:
    """A workload that trains a model of workloads/models/recipes.py."""

    def step(given: Given) -> Step:
        from workloads.models.recipes import trained

        return trained(name, given)

    threads = 4 if study is EMDL else None
    return Workload(name, text, parameters, step, threads=threads, study=study, notes=notes)


def _twin(workload: Workload) -> Workload:
    """The forward pass of the same model alone."""

    def step(given: Given) -> Step:
        from workloads.models.recipes import inferred

        return inferred(workload.name, given)

    return Workload(
        f"{workload.name}{INFERENCE}",
        f"inference: {workload.text}",
        workload.parameters,
        step,
        threads=workload.threads,
        study=workload.study,
        notes=f"Forward only, as a trained model is used. {workload.notes}",
    )


def _daily() -> Workload:
    """The one workload that has an end."""
    sizes = (1, 2, 4, 8, 16, 32, 64)
    batch = Parameter("batch_size", 16, 1, 64, "samples a step", only=sizes)
    notes = (
        "64 images a day for 17 days and a trained start as in the study, which had three batch "
        "sizes and does not say which: the example has 4, 16 and 64. The start is trained on 1024 "
        "generated images during the warm-up; then the images drift, and every day ends with a "
        "look at 64 others. Accuracies are of generated data: compare days and batches, not the "
        "study's 60.65 to 61.32 %."
    )
    found = _trained(
        "daily-increment", TX2, "DenseNet40 learns 64 images a day, 17 days", batch, notes=notes
    )

    def length(given: Given) -> Length:
        return Length(BEFORE // given["batch_size"], DAYS * PER_DAY // given["batch_size"])

    return Workload(
        found.name,
        found.text,
        found.parameters,
        found.step,
        study=found.study,
        notes=found.notes,
        length=length,
    )


def _sgemm(given: Given) -> Step:
    return Product(given["m"], given["n"], given["k"])


class Nothing(Step):
    """A step that does nothing."""

    @property
    def work(self) -> Work:
        """No operation at all."""
        return Work((), training=False, samples_per_step=0, parameter_bytes=0, activation_bytes=0)

    @property
    def meaning(self) -> None:
        """There is nothing to say."""


def _cambridge() -> Iterator[Workload]:
    yield Workload(
        "sgemm",
        "one single-precision matrix product a step, C = A B",
        (
            Parameter("m", 512, 1, 8192, "rows of C"),
            Parameter("n", 512, 1, 8192, "columns of C"),
            Parameter("k", 512, 1, 8192, "depth of the product"),
        ),
        _sgemm,
        study=CAMBRIDGE,
        notes="Any shape; the study's are square.",
    )
    yield Workload(
        "sgemm-square",
        "the same of n x n values, as the study had it",
        (Parameter("n", 512, 1, 8192, "values a side"),),
        lambda given: Product(given["n"], given["n"], given["n"]),
        study=CAMBRIDGE,
        notes="The study went from 32 to 512 by 32, 500 hot runs each, on the same buffers.",
    )
    notes = "Batches of 32 and random input as in the study; the rate of SGD, 0.01, is ours."
    for name, widths in {
        "mlp-1": "16-16",
        "mlp-2": "16-16-16-16",
        "mlp-3": "256-256",
        "mlp-4": "784-256-128-16",
    }.items():
        text = f"a {widths} perceptron"
        yield _trained(name, CAMBRIDGE, text, _batch(32, 4096), notes=notes)


def _emdl() -> Iterator[Workload]:
    for name, said, most, caution in (
        ("lenet", "LeNet", 4096, " Its second convolution was never updated."),
        ("alexnet", "AlexNet", 512, " It has half the parameters of AlexNet."),
        ("squeezenet", "SqueezeNet", 512, _NEVER_LEARNS.format("not a number")),
        ("googlenet", "GoogLeNet", 512, _NEVER_LEARNS.format("constant")),
        ("mobilenetv2", "MobileNetV2", 512, _TINY_RATE),
    ):
        text = f"EMDL'21's {said} as it was coded"
        notes = _EMDL_NOTES + caution
        yield _trained(f"emdl-{name}", EMDL, text, _batch(16, most), notes=notes)
    yield _trained(
        "emdl-cpuconf",
        EMDL,
        "the job of EMDL'21's table of core sets and clocks",
        notes="Not named in the study; taken to be AlexNet, 16 samples, by its time and power.",
    )


def _tx2() -> Iterator[Workload]:
    for name, said, side, least in (
        ("alexnet", "AlexNet", 224, 63),
        ("inceptionv1", "Inception V1", 224, 32),
        ("resnet50", "ResNet-50", 224, 32),
        ("squeezenet", "SqueezeNet 1.0", 224, 32),
        ("vgg16", "VGG-16", 224, 32),
        ("xception", "Xception", 299, 71),
    ):
        yield _trained(name, TX2, said, _batch(16), _side(side, least), notes=_TX2_IMAGES + _PAPER)
    yield _trained("densenet40", TX2, "DenseNet40-12", _batch(16), notes=_TX2_IMAGES + _PAPER)
    sizes = "Its sizes are ours, so that the study's 1 M parameters and 23 M multiply-adds hold; "
    yield _trained(
        "char-cnn",
        TX2,
        "whose text is it? LSTM and convolution",
        _batch(16),
        _length(30, 4, 1024),
        notes=_TX2_NOTES + sizes + "Adam of 0.001 is ours.",
    )
    yield _trained(
        "char-lstm",
        TX2,
        "the next character, by two LSTMs of 128",
        _batch(16),
        _length(50, 1, 1024),
        notes=_TX2_NOTES + "Sizes of char-rnn; Adam of 0.002 as in its TensorFlow edition.",
    )
    yield _trained(
        "dcgan", TX2, "DCGAN of 64x64: two models against each other", _batch(16),
        notes=_TX2_NOTES + "The optimizer, Adam of 2e-4, is that of the paper.",
    )  # fmt: skip
    yield _trained(
        "dqn", TX2, "deep Q-network of Atari, 18 actions", _batch(16),
        notes=_TX2_NOTES + "The paper's RMSProp is replaced by Adam of 1e-4, which is ours.",
    )  # fmt: skip
    yield _daily()


def _tx2_failed() -> Iterator[Workload]:
    never, later = "On the TX2 it never started.", "On the TX2 it crashed after some steps."
    for name, said, how in (
        ("resnet101", "ResNet-101", never),
        ("resnet152", "ResNet-152", never),
        ("vgg19", "VGG-19", never),
    ):
        notes = f"{how} {_TX2_IMAGES}{_PAPER}"
        yield _trained(name, TX2_FAILED, said, _batch(16), _side(224, 32), notes=notes)
    notes = f"{later} {_TX2_IMAGES}{_PAPER}"
    yield _trained("densenet100", TX2_FAILED, "DenseNet100-12", _batch(16), notes=notes)
    yield _trained(
        "bert",
        TX2_FAILED,
        "BERT-base, yes or no about a text",
        _batch(16),
        _length(384, 8, 512),
        notes=f"{never} {_TX2_NOTES}Adam of 3e-5 and 384 symbols are those of its SQuAD recipe.",
    )
    sizes = "Its sizes are ours, so that the study's 348 M parameters and 28 G multiply-adds hold; "
    yield _trained(
        "seq2seq",
        TX2_FAILED,
        "translation by four LSTMs of 2048",
        _batch(16),
        _length(128, 8, 512),
        notes=f"{later} {_TX2_NOTES}{sizes}Adam of 0.001 is ours.",
    )


def _textbook() -> Iterator[Workload]:
    notes = "The textbook's model with ten classes, on generated data. " + _PAPER
    yield _trained("lenet", TEXTBOOK, "LeNet-5", _batch(16, 4096), notes=notes)
    yield _trained("googlenet", TEXTBOOK, "GoogLeNet", _batch(16), _side(224, 32), notes=notes)
    yield _trained("mobilenetv2", TEXTBOOK, "MobileNetV2", _batch(16), _side(224, 32), notes=notes)
    yield _trained("resnet20", TEXTBOOK, "ResNet-20 for CIFAR", _batch(16, 4096), notes=notes)


def shelf() -> Iterator[Workload]:
    """Every workload, study by study; behind each that trains, the same model's inference."""
    untwinned = {"sgemm", "sgemm-square", "emdl-cpuconf", "daily-increment"}
    for workloads in (_cambridge(), _emdl(), _tx2(), _tx2_failed(), _textbook()):
        for workload in workloads:
            yield workload
            if workload.name not in untwinned:
                yield _twin(workload)
    yield Workload(
        "noop",
        "nothing, not even a call to the phone: the farm's own cost",
        (),
        lambda _: Nothing(),
        on_phone=False,
    )
