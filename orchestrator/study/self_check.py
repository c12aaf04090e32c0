"""Arithmetic on a publication's own numbers: do they agree with each other, within rounding?

A printed number represents all values that round to it: an interval of half a unit of its last
digit on both sides. Numbers contradict each other if these intervals do not overlap.
"""

from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Annotated

from pydantic import AfterValidator, Field

from workloads.protocol.base import WireModel

_Interval = tuple[Decimal, Decimal]


def _check_printed(text: str) -> str:
    try:
        positive = Decimal(text) > 0
    except InvalidOperation:
        positive = False
    if not positive:
        raise ValueError(f"'{text}' is not a positive number")
    return text


PrintedNumber = Annotated[str, AfterValidator(_check_printed)]  # as printed, for its digits


class SelfCheck(WireModel):
    """What follows from some published numbers, and what the publication states instead."""

    product_of: tuple[PrintedNumber, ...] = Field(min_length=1)
    divided_by: tuple[PrintedNumber, ...] = ()
    stated: PrintedNumber
    unit: str = ""
    text: str = Field(default="", description="what is computed")

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the difference."""
        low, high = _product(self.product_of)
        for text in self.divided_by:
            divisor = _interval(text)
            low, high = low / divisor[1], high / divisor[0]
        stated = _interval(self.stated)
        return low <= stated[1] and stated[0] <= high

    @property
    def computed(self) -> float:
        """What the numbers give as they are printed."""
        value = reduce(Decimal.__mul__, map(Decimal, self.product_of))
        return float(reduce(Decimal.__truediv__, map(Decimal, self.divided_by), value))

    @property
    def result(self) -> str:
        """The arithmetic as text."""
        formula = " / ".join((" x ".join(self.product_of), *self.divided_by))
        prefix = f"{self.text}: " if self.text else ""
        unit = f" {self.unit}".rstrip()
        is_single = len(self.product_of) + len(self.divided_by) == 1
        computed = formula if is_single else f"{formula} = {self.computed:.3g}"
        return f"{prefix}{computed}{unit}, stated {self.stated}{unit}"


def _interval(text: str) -> _Interval:
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    half = Decimal(5).scaleb(exponent - 1)
    return max(value - half, half / 10), value + half


def _product(texts: tuple[str, ...]) -> _Interval:
    low = high = Decimal(1)
    for text in texts:
        factor = _interval(text)
        low, high = low * factor[0], high * factor[1]
    return low, high
