"""Sliding windows of convolutions and pools: how many positions fit, and the padding per side."""

from math import ceil
from typing import Literal, NamedTuple

from workloads.protocol.faults import InvalidRequest

Size = int | tuple[int, int]  # a square, or (height, width)
# "valid" pads nothing. "same" pads until only the stride shrinks the image; an odd pixel goes
# after the image. A number pads that many pixels on every side.
Padding = Literal["valid", "same"] | int


class WindowAxis(NamedTuple):
    """One axis of a sliding window."""

    positions: int
    before: int
    after: int


def as_pair(size: Size) -> tuple[int, int]:
    """Return a size as (height, width)."""
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise InvalidRequest(f"window and stride must be at least 1, got {height}x{width}")
    return height, width


def window_axis(length: int, kernel: int, stride: int, padding: Padding) -> WindowAxis:
    """Slide a window along an axis."""
    if padding == "same":
        positions = ceil(length / stride)
        total = max((positions - 1) * stride + kernel - length, 0)
        return WindowAxis(positions, total // 2, total - total // 2)
    pad = padding if isinstance(padding, int) else 0
    if pad < 0 or kernel > length + 2 * pad:
        raise InvalidRequest(f"a window of {kernel} does not fit into {length} padded by {pad}")
    return WindowAxis((length + 2 * pad - kernel) // stride + 1, pad, pad)


def transposed_axis(length: int, kernel: int, stride: int, padding: Padding) -> WindowAxis:
    """Return the axis over which a window has `length` positions: a transposed convolution's."""
    if padding == "same":
        total = max(kernel - stride, 0)
        return WindowAxis(length * stride, total // 2, total - total // 2)
    pad = padding if isinstance(padding, int) else 0
    positions = (length - 1) * stride + kernel - 2 * pad
    if pad < 0 or positions < 1:
        raise InvalidRequest(f"a window of {kernel} over {length} cropped by {pad} leaves nothing")
    return WindowAxis(positions, pad, pad)


def window_axes(
    shape: tuple[int, int], kernel: Size, stride: Size, padding: Padding, transposed: bool = False
) -> tuple[WindowAxis, WindowAxis]:
    """Slide a window over both axes of an image."""
    axis = transposed_axis if transposed else window_axis
    kernels, strides = as_pair(kernel), as_pair(stride)
    return (
        axis(shape[0], kernels[0], strides[0], padding),
        axis(shape[1], kernels[1], strides[1], padding),
    )
