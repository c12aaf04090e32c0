"""Windows over images, for convolution and pooling."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kernels.reference.machine import Array


@dataclass(frozen=True)
class Window:
    """A window over images of one size."""

    size: tuple[int, int]
    positions: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]

    @classmethod
    def of(cls, ints: Sequence[int], x: Sequence[int], y: Sequence[int]) -> "Window":
        """Build a window from the integers of an operation and the shapes of both sides."""
        kh, kw, sh, sw, top, left = ints
        return cls((x[2], x[3]), (y[2], y[3]), (kh, kw), (sh, sw), (top, left))

    @property
    def padded(self) -> tuple[int, int]:
        """Return the size of an image that contains all positions."""
        return (self._padded(0), self._padded(1))

    def _padded(self, axis: int) -> int:
        reach = (self.positions[axis] - 1) * self.stride[axis] + self.kernel[axis]
        return max(reach, self.before[axis] + self.size[axis])

    def pad(self, x: Array, value: float = 0.0) -> Array:
        """Return an image with its padding."""
        height, width = self.padded
        full = np.full((*x.shape[:2], height, width), value)
        full[self.inside] = x
        return full

    @property
    def inside(self) -> tuple[slice, ...]:
        """Return where the image is in the padded image."""
        (top, left), (height, width) = self.before, self.size
        return (slice(None), slice(None), slice(top, top + height), slice(left, left + width))

    def views(self, x: Array, value: float = 0.0) -> Array:
        """Return the windows of all positions: (N, C, OH, OW, KH, KW)."""
        seen = sliding_window_view(self.pad(x, value), self.kernel, axis=(2, 3))
        seen = seen[:, :, :: self.stride[0], :: self.stride[1]]
        return seen[:, :, : self.positions[0], : self.positions[1]]

    def spread(self, parts: Array, channels: int) -> Array:
        """Add the values of all windows to the positions that they came from."""
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
