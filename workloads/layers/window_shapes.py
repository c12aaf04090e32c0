"""Windows that slide over an image: how many fit, and what is padded on which side."""

from math import ceil
from typing import Literal, NamedTuple

from workloads.fault import Refused

Size = int | tuple[int, int]  # a square, or (height, width)
# "valid" pads nothing; "same" pads until the image shrinks by the stride alone, the odd pixel
# after; a number pads so many pixels on every side.
Padding = Literal["valid", "same"] | int


class Slide(NamedTuple):
    """One axis of a sliding window."""

    positions: int
    before: int
    after: int


def pair(size: Size) -> tuple[int, int]:
    """A size as (height, width)."""
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise Refused(f"a window and its stride are at least 1, not {height}x{width}")
    return height, width


def slide(length: int, kernel: int, stride: int, padding: Padding) -> Slide:
    """Slide a window along an axis."""
    if padding == "same":
        positions = ceil(length / stride)
        total = max((positions - 1) * stride + kernel - length, 0)
        return Slide(positions, total // 2, total - total // 2)
    pad = padding if isinstance(padding, int) else 0
    if pad < 0 or kernel > length + 2 * pad:
        raise Refused(f"a window of {kernel} does not fit into {length} padded by {pad}")
    return Slide((length + 2 * pad - kernel) // stride + 1, pad, pad)


def spread(length: int, kernel: int, stride: int, padding: Padding) -> Slide:
    """The reverse, for a transposed convolution: the axis that would slide to this length."""
    if padding == "same":
        total = max(kernel - stride, 0)
        return Slide(length * stride, total // 2, total - total // 2)
    pad = padding if isinstance(padding, int) else 0
    positions = (length - 1) * stride + kernel - 2 * pad
    if pad < 0 or positions < 1:
        raise Refused(f"a window of {kernel} over {length} leaves nothing when {pad} is cut off")
    return Slide(positions, pad, pad)


def slides(
    shape: tuple[int, int], kernel: Size, stride: Size, padding: Padding, transposed: bool = False
) -> tuple[Slide, Slide]:
    """Both axes of an image."""
    along = spread if transposed else slide
    kernels, strides = pair(kernel), pair(stride)
    return (
        along(shape[0], kernels[0], strides[0], padding),
        along(shape[1], kernels[1], strides[1], padding),
    )
