"""Data sets: what every input of a model, and its target, is made of.

A column is made on the phone from a seed, or read from a file; nothing is downloaded. All columns
of a model agree sample by sample (kernels/engine/data.h), so that there is something to learn.
"""

from dataclasses import dataclass
from typing import Literal

from workloads.layers.layer import Shape

BATCHES = 4  # in a data set, unless a workload needs more: few, so that losses can be compared

Type = Literal["float", "index", "byte"]


@dataclass(frozen=True)
class Column:
    """One column of a data set: how its values are made, and what is done to them on loading."""

    generator: str
    type: Type
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    scale: float = 1.0
    shift: float = 0.0


def images(classes: int) -> Column:
    """Pictures of a class under noise, loaded as values from -1 to 1."""
    return Column("image", "byte", (classes,), scale=2 / 255, shift=-1.0)


def dark_images(classes: int) -> Column:
    """The same, loaded as values from 0 to 1."""
    return Column("image", "byte", (classes,), scale=1 / 255)


def personal_images(classes: int, first: int) -> Column:
    """Pictures that drift away from what is known, from the sample `first` on."""
    return Column("personal", "byte", (classes, first), scale=2 / 255, shift=-1.0)


def rows(classes: int) -> Column:
    """Points near the point of their class."""
    return Column("rows", "float", (classes,))


def labels(classes: int) -> Column:
    """The class of each sample, as a number."""
    return Column("label", "index", (classes,))


def one_hot(classes: int) -> Column:
    """The class of each sample, as so many values of which one is 1."""
    return Column("one_hot", "float", (classes,))


def tokens(symbols: int) -> Column:
    """A text in which every symbol has likely followers."""
    return Column("tokens", "index", (symbols,))


def next_tokens(symbols: int) -> Column:
    """The same text, one symbol later: what is to be foretold."""
    return Column("next_tokens", "index", (symbols,))


def token_class(symbols: int, classes: int) -> Column:
    """A text whose symbols depend on its class; the class itself is `labels`."""
    return Column("token_class", "index", (symbols, classes))


def noise() -> Column:
    """Independent values of a normal distribution."""
    return Column("normal", "float")


def constant(value: float) -> Column:
    """One value everywhere."""
    return Column("constant", "float", floats=(value,))


def filed_images(number: int) -> Column:
    """Pictures from a column of the data file that comes with the run."""
    return Column("file", "byte", (number, 0), scale=2 / 255, shift=-1.0)


def filed_labels(number: int, classes: int) -> Column:
    """Classes from a column of the data file that comes with the run."""
    return Column("file", "index", (number, classes))


def input_column(shape: Shape, symbols: int | None, classes: int) -> Column:
    """What an input is made of where its model does not say: by its shape and who reads it."""
    if symbols is not None:
        return tokens(symbols)
    return images(classes) if len(shape) == 3 else rows(classes)


def target_column(rows_of: Shape, classes: int) -> Column:
    """What is to be said where a model does not say: a class a sample, or a symbol a moment."""
    return next_tokens(classes) if rows_of else labels(classes)
