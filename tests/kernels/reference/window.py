"""Windows that slide over images, for convolution and pooling."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.kernels.reference.machine import Array


@dataclass(frozen=True)
class Window:
    """A window over images of one size, with so many positions."""

    size: tuple[int, int]
    positions: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]

    @classmethod
    def of(cls, ints: Sequence[int], x: Sequence[int], y: Sequence[int]) -> "Window":
        """From the whole numbers of an operation and the shapes on both sides."""
        kh, kw, sh, sw, top, left = ints
        return cls((x[2], x[3]), (y[2], y[3]), (kh, kw), (sh, sw), (top, left))

    @property
    def padded(self) -> tuple[int, int]:
        """The size of an image that all positions lie in."""
        return (self._padded(0), self._padded(1))

    def _padded(self, axis: int) -> int:
        reach = (self.positions[axis] - 1) * self.stride[axis] + self.kernel[axis]
        return max(reach, self.before[axis] + self.size[axis])

    def pad(self, x: Array, value: float = 0.0) -> Array:
        """An image with its border."""
        height, width = self.padded
        full = np.full((*x.shape[:2], height, width), value)
        full[self.inside] = x
        return full

    @property
    def inside(self) -> tuple[slice, ...]:
        """Where in the padded image the image lies."""
        (top, left), (height, width) = self.before, self.size
        return (slice(None), slice(None), slice(top, top + height), slice(left, left + width))

    def views(self, x: Array, value: float = 0.0) -> Array:
        """Every position's window: (N, C, OH, OW, KH, KW)."""
        seen = sliding_window_view(self.pad(x, value), self.kernel, axis=(2, 3))
        seen = seen[:, :, :: self.stride[0], :: self.stride[1]]
        return seen[:, :, : self.positions[0], : self.positions[1]]

    def spread(self, parts: Array, channels: int) -> Array:
        """The reverse: every window's values added up where they came from."""
        full = np.zeros((parts.shape[0], channels, *self.padded))
        (oh, ow), (sh, sw) = self.positions, self.stride
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                at = (
                    slice(row, row + oh * sh - sh + 1, sh),
                    slice(column, column + ow * sw - sw + 1, sw),
                )
                full[:, :, at[0], at[1]] += parts[..., row, column]
        return full[self.inside]
