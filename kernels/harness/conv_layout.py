"""The layout that images are packed into for a convolution, and the arguments of its kernels.

kernels/engine/opencl/launch_conv.c does the same in the runner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

WIDE, OUT_BLOCK = 8, 8  # of conv.cl: windows and output channels per work item
GRAD_OUTS, GRAD_INS = 4, 3  # and the weights whose gradients one item computes


@dataclass(frozen=True)
class ConvLayout:
    """Shapes of a convolution over packed images; `pointwise`: the image is one long row."""

    images: int
    ins: int
    outs: int
    groups: int
    height: int
    width: int
    out_height: int
    out_width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    spread: tuple[int, int] = (1, 1)  # how far apart input pixels are in the packed image
    pointwise: bool = False

    @classmethod
    def of(cls, x: Sequence[int], y: Sequence[int], ints: Sequence[int]) -> "ConvLayout":
        """Derive the layout from the shapes of the images and the integers of the operation."""
        groups, kh, kw, sh, sw, top, left = ints
        images, ins, height, width = x
        sizes = (images, ins, y[1], groups, height, width, y[2], y[3])
        layout = cls(*sizes, (kh, kw), (sh, sw), (top, left))
        pixels, same = height * width, (height, width) == tuple(y[2:])
        if same and tuple(ints[1:]) == (1, 1, 1, 1, 0, 0) and pixels >= WIDE:
            row = replace(layout, height=1, width=pixels, out_height=1, out_width=pixels)
            return replace(row, pointwise=True)
        return layout

    @property
    def backward(self) -> "ConvLayout":
        """The layout of the input gradient: over dy, through reversed windows."""
        (kh, kw), (top, left) = self.kernel, self.padding
        return ConvLayout(
            self.images,
            self.outs,
            self.ins,
            self.groups,
            self.out_height,
            self.out_width,
            self.height,
            self.width,
            self.kernel,
            (1, 1),
            (kh - 1 - top, kw - 1 - left),
            self.stride,
            self.pointwise,
        )

    @property
    def gradient(self) -> "ConvLayout":
        """The layout of dy for the weight gradient: rows of whole vectors."""
        sizes = (self.images, self.outs, self.outs, 1, *(2 * (self.out_height, self.out_width)))
        return ConvLayout(*sizes, (1, 1), (1, 1), (0, 0), pointwise=self.pointwise)

    @property
    def rows(self) -> int:
        """The rows of a packed image."""
        return (self.out_height - 1) * self.stride[0] + self.kernel[0]

    @property
    def length(self) -> int:
        """The values of a packed row per phase of the stride: whole vectors for every tap."""
        if self.pointwise:
            return self.width
        overlap = -(-(self.kernel[1] - 1) // self.stride[1])
        return _round_up(_round_up(self.out_width) + overlap)

    @property
    def blocks(self) -> int:
        """Blocks of output channels, in all groups."""
        return -(-(self.outs // self.groups) // OUT_BLOCK) * self.groups

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading arguments of the kernel conv_packed."""
        sizes = (self.images, self.ins, self.outs, self.groups, self.out_height, self.out_width)
        return (*sizes, *self.kernel, *self.stride, self.rows, self.length)


def pack_launch(layout: ConvLayout) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return size and scalar arguments of the kernel pack_image."""
    planes, phases = layout.images * layout.ins, layout.stride[1]
    scalars = (planes, layout.height, layout.width, *layout.spread, *layout.padding, phases)
    size = (phases * layout.length // WIDE, layout.rows, planes)
    return size, (*scalars, layout.rows, layout.length)


def weight_gradient_shape(layout: ConvLayout) -> tuple[int, ...]:
    """Return the leading arguments of conv_weight_gradient: rows have the length of packed dy."""
    before, after = layout.shape[:5], layout.shape[6:]
    return (*before, layout.gradient.length, *after)


def _round_up(count: int) -> int:
    return -(-count // WIDE) * WIDE
