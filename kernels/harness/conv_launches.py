"""Convolutions on a device: what has to be laid out before them, and the launches (conv.cl).

kernels/engine/opencl/recipes.c says the same to the native runner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from workloads.lowering.body import BodyOp, Tensor

if TYPE_CHECKING:
    from kernels.harness.device import Launch
    from kernels.harness.network import Network

WIDE, BLOCK = 8, 8  # of conv.cl: windows and channels of the output that an item makes
OUTS, INS = 4, 3  # and the weights whose gradients it makes
_SLIM = 4  # windows of an item of depthwise.cl


@dataclass(frozen=True)
class Sweep:
    """Windows moving over images; `flat`: of one pixel, so that an image is one long row."""

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
    margins: tuple[int, int]
    apart: tuple[int, int] = (1, 1)
    flat: bool = False

    @classmethod
    def of(cls, x: Sequence[int], y: Sequence[int], ints: Sequence[int]) -> "Sweep":
        """Of an operation, by the shapes of its images and its whole numbers."""
        groups, kh, kw, sh, sw, top, left = ints
        images, ins, height, width = x
        sizes = (images, ins, y[1], groups, height, width, y[2], y[3])
        plain = cls(*sizes, (kh, kw), (sh, sw), (top, left))
        pixels, same = height * width, (height, width) == tuple(y[2:])
        if same and tuple(ints[1:]) == (1, 1, 1, 1, 0, 0) and pixels >= WIDE:
            return replace(plain, height=1, width=pixels, out_height=1, out_width=pixels, flat=True)
        return plain

    @property
    def back(self) -> "Sweep":
        """The way back to the image: over the gradient, through windows that are turned round."""
        (kh, kw), (top, left) = self.kernel, self.margins
        return Sweep(
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
            self.flat,
        )

    @property
    def gradient(self) -> "Sweep":
        """The gradient itself, as rows of whole vectors."""
        sizes = (self.images, self.outs, self.outs, 1, *(2 * (self.out_height, self.out_width)))
        return Sweep(*sizes, (1, 1), (1, 1), (0, 0), flat=self.flat)

    @property
    def rows(self) -> int:
        """Rows of an image that is laid out."""
        return (self.out_height - 1) * self.stride[0] + self.kernel[0]

    @property
    def length(self) -> int:
        """The values of such a row for one phase of the stride: whole vectors, for every tap."""
        if self.flat:
            return self.width
        more = -(-(self.kernel[1] - 1) // self.stride[1])
        return _up(_up(self.out_width) + more)

    @property
    def blocks(self) -> int:
        """Items that share the channels of the output, in all groups."""
        return -(-(self.outs // self.groups) // BLOCK) * self.groups

    @property
    def shape(self) -> tuple[int, ...]:
        """As the kernels take it."""
        sizes = (self.images, self.ins, self.outs, self.groups, self.out_height, self.out_width)
        return (*sizes, *self.kernel, *self.stride, self.rows, self.length)


def layout(sweep: Sweep) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Size and numbers of the launch that lays images out."""
    planes, phases = sweep.images * sweep.ins, sweep.stride[1]
    words = (planes, sweep.height, sweep.width, *sweep.apart, *sweep.margins, phases)
    size = (phases * sweep.length // WIDE, sweep.rows, planes)
    return size, (*words, sweep.rows, sweep.length)


def lay_out(net: "Network", sweep: Sweep, x: Tensor, scratch: str) -> tuple[list["Launch"], Any]:
    """The launch that lays images out, and where they lie then."""
    if sweep.flat:
        return [], x
    size, words = layout(sweep)
    laid = net.scratch(scratch, 4 * WIDE * prod(size))
    return [net.entry("conv.cl", "lay_out", size, *words, x, laid)], laid


def convolve(
    net: "Network", sweep: Sweep, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, turned: bool
) -> list["Launch"]:
    """Image and weights laid out, and the product of both."""
    made, laid = lay_out(net, sweep, x, "image")
    outs, ins = sweep.outs // sweep.groups, sweep.ins // sweep.groups
    taps = sweep.kernel[0] * sweep.kernel[1]
    weights = net.scratch("weights", 4 * sweep.blocks * BLOCK * ins * taps)
    words = (sweep.groups, outs, ins, taps, int(turned), w, weights)
    made.append(net.entry("conv.cl", "lay_out_weights", (ins * taps, sweep.blocks), *words))
    size = (-(-sweep.out_width // WIDE), sweep.out_height, sweep.blocks * sweep.images)
    words = (*sweep.shape, int(bias is not None), laid, weights, bias, y)
    return [*made, net.entry("conv.cl", "convolve", size, *words)]


def forward(net: "Network", op: BodyOp) -> list["Launch"]:
    """y = x * w + bias."""
    x, w, bias, y = _given(op)
    if _is_depthwise(op, x, y):
        size = (-(-y.shape[3] // _SLIM), y.shape[2], y.shape[0] * y.shape[1])
        words = (*_planes(x, y, op), int(bias is not None), x, w, bias, y)
        return [net.entry("depthwise.cl", "depthwise_forward", size, *words)]
    return convolve(net, Sweep.of(x.shape, y.shape, op.ints), x, w, bias, y, turned=False)


def input_gradient(net: "Network", op: BodyOp) -> list["Launch"]:
    """Where the image should have been otherwise."""
    w, dy, dx = _given(op)
    if _is_depthwise(op, dx, dy):
        size = (dx.shape[3], dx.shape[2], dx.shape[0] * dx.shape[1])
        words = (*_planes(dx, dy, op), w, dy, dx)
        return [net.entry("depthwise.cl", "depthwise_input_gradient", size, *words)]
    return convolve(net, Sweep.of(dx.shape, dy.shape, op.ints).back, dy, w, None, dx, turned=True)


def weight_gradient(net: "Network", op: BodyOp) -> list["Launch"]:
    """Where the weights should have been otherwise."""
    x, dy, dw = _given(op)
    if _is_depthwise(op, x, dy):
        taps = (dw.shape[2] * dw.shape[3], dw.shape[0])
        words = (*_planes(x, dy, op), x, dy, dw)
        return [net.entry("depthwise.cl", "depthwise_weight_gradient", taps, *words)]
    sweep = Sweep.of(x.shape, dy.shape, op.ints)
    made, laid = lay_out(net, sweep, x, "image")
    more, back = lay_out(net, sweep.gradient, dy, "gradient")
    out, depth, kh, kw = dw.shape
    outs = -(-(out // sweep.groups) // OUTS) * sweep.groups
    words = (*weight_shape(sweep), laid, back, dw)
    size = (kh * kw, -(-depth // INS), outs)
    return [*made, *more, net.entry("conv.cl", "conv_weight_gradient", size, *words)]


def weight_shape(sweep: Sweep) -> tuple[int, ...]:
    """The same for the weights' gradient: windows count by the rows in which the gradient lies."""
    before, behind = sweep.shape[:5], sweep.shape[6:]
    return (*before, sweep.gradient.length, *behind)


def _up(count: int) -> int:
    return -(-count // WIDE) * WIDE


def _given(op: BodyOp) -> list[Any]:
    return [*op.ins, *op.outs]


def _is_depthwise(op: BodyOp, x: Tensor, y: Tensor) -> bool:
    return op.ints[0] == x.shape[1] == y.shape[1]


def _planes(x: Tensor, y: Tensor, op: BodyOp) -> tuple[int, ...]:
    return (x.shape[0] * x.shape[1], *x.shape[1:], *y.shape[2:], *op.ints[1:])
