"""Data columns: how the values of every input of a model, and of its target, are generated.

A column is generated on the phone from a seed, or read from a file; nothing is downloaded. All
columns of a model belong together sample by sample (kernels/engine/dataset.h), so that the model
has something to learn.
"""

from dataclasses import dataclass
from typing import Literal

from workloads.layers.layer import Shape

# Batches in a data set, unless a workload needs more. Few, so that a short run passes through the
# data several times and its losses can be compared.
BATCHES = 4

ElementType = Literal["float", "index", "byte"]


@dataclass(frozen=True)
class DataColumn:
    """One column of a data set: its generator, and the scaling applied on loading."""

    generator: str
    type: ElementType
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    scale: float = 1.0
    shift: float = 0.0


def images(classes: int) -> DataColumn:
    """Return noisy images of a class, loaded as values from -1 to 1."""
    return DataColumn("image", "byte", (classes,), scale=2 / 255, shift=-1.0)


def images_from_0_to_1(classes: int) -> DataColumn:
    """Return noisy images of a class, loaded as values from 0 to 1."""
    return DataColumn("image", "byte", (classes,), scale=1 / 255)


def drifting_images(classes: int, first: int) -> DataColumn:
    """Return images whose distribution drifts away from sample `first` on."""
    return DataColumn("personal", "byte", (classes, first), scale=2 / 255, shift=-1.0)


def feature_rows(classes: int) -> DataColumn:
    """Return points near the centre of their class."""
    return DataColumn("rows", "float", (classes,))


def labels(classes: int) -> DataColumn:
    """Return the class of each sample as a number."""
    return DataColumn("label", "index", (classes,))


def one_hot(classes: int) -> DataColumn:
    """Return the class of each sample as a one-hot vector."""
    return DataColumn("one_hot", "float", (classes,))


def tokens(vocabulary: int) -> DataColumn:
    """Return a text in which every token has likely successors."""
    return DataColumn("tokens", "index", (vocabulary,))


def next_tokens(vocabulary: int) -> DataColumn:
    """Return the text of `tokens` shifted by one: the next token to predict."""
    return DataColumn("next_tokens", "index", (vocabulary,))


def class_tokens(vocabulary: int, classes: int) -> DataColumn:
    """Return a text whose tokens depend on its class; `labels` is the class itself."""
    return DataColumn("token_class", "index", (vocabulary, classes))


def noise() -> DataColumn:
    """Return independent values of a normal distribution."""
    return DataColumn("normal", "float")


def constant(value: float) -> DataColumn:
    """Return the same value everywhere."""
    return DataColumn("constant", "float", floats=(value,))


def images_from_file(number: int) -> DataColumn:
    """Return the images in a column of the run's data file."""
    return DataColumn("file", "byte", (number, 0), scale=2 / 255, shift=-1.0)


def labels_from_file(number: int, classes: int) -> DataColumn:
    """Return the classes in a column of the run's data file."""
    return DataColumn("file", "index", (number, classes))


def tokens_from_file(number: int, vocabulary: int) -> DataColumn:
    """Return the texts in a column of the run's data file."""
    return DataColumn("file", "index", (number, vocabulary))


def default_input_column(shape: Shape, vocabulary: int | None, classes: int) -> DataColumn:
    """Choose the data of an input by its shape and by whether an embedding reads it."""
    if vocabulary is not None:
        return tokens(vocabulary)
    return images(classes) if len(shape) == 3 else feature_rows(classes)


def default_target_column(leading: Shape, classes: int) -> DataColumn:
    """Choose the target: one class per sample, or one token per time step of a sequence."""
    return next_tokens(classes) if leading else labels(classes)
