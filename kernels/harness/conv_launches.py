"""The launches of a convolution: which layout its images are packed into, and which kernels run.

kernels/engine/opencl/launch_conv.c does the same in the runner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from workloads.lowering.plan_body import PlanOp, Tensor

if TYPE_CHECKING:
    from kernels.harness.device_network import DeviceNetwork
    from kernels.harness.opencl_device import KernelLaunch

WIDE, OUT_BLOCK = 8, 8  # of conv.cl: windows and output channels per work item
GRAD_OUTS, GRAD_INS = 4, 3  # and the weights whose gradients one item computes
_DEPTHWISE_WINDOWS = 4  # per work item of depthwise.cl


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


def pack_image(
    net: "DeviceNetwork", layout: ConvLayout, x: Tensor, slot: str
) -> tuple[list["KernelLaunch"], Any]:
    """Return the launch that packs images, and the packed images."""
    if layout.pointwise:
        return [], x
    size, scalars = pack_launch(layout)
    packed = net.scratch(slot, 4 * WIDE * prod(size))
    return [net.launch("conv.cl", "pack_image", size, *scalars, x, packed)], packed


def convolve(
    net: "DeviceNetwork",
    layout: ConvLayout,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    y: Tensor,
    transposed: bool,
) -> list["KernelLaunch"]:
    """Pack image and weights, and convolve."""
    launches, packed = pack_image(net, layout, x, "image")
    outs, ins = layout.outs // layout.groups, layout.ins // layout.groups
    taps = layout.kernel[0] * layout.kernel[1]
    weights = net.scratch("weights", 4 * layout.blocks * OUT_BLOCK * ins * taps)
    arguments = (layout.groups, outs, ins, taps, int(transposed), w, weights)
    launches.append(net.launch("conv.cl", "pack_weights", (ins * taps, layout.blocks), *arguments))
    size = (-(-layout.out_width // WIDE), layout.out_height, layout.blocks * layout.images)
    arguments = (*layout.shape, int(bias is not None), packed, weights, bias, y)
    return [*launches, net.launch("conv.cl", "conv_packed", size, *arguments)]


def forward(net: "DeviceNetwork", op: PlanOp) -> list["KernelLaunch"]:
    """Launch y = x * w + bias."""
    x, w, bias, y = _operands(op)
    if _is_depthwise(op, x, y):
        size = (-(-y.shape[3] // _DEPTHWISE_WINDOWS), y.shape[2], y.shape[0] * y.shape[1])
        arguments = (*_planes(x, y, op), int(bias is not None), x, w, bias, y)
        return [net.launch("depthwise.cl", "depthwise_forward", size, *arguments)]
    return convolve(net, ConvLayout.of(x.shape, y.shape, op.ints), x, w, bias, y, transposed=False)


def input_gradient(net: "DeviceNetwork", op: PlanOp) -> list["KernelLaunch"]:
    """Launch the gradient of the image."""
    w, dy, dx = _operands(op)
    if _is_depthwise(op, dx, dy):
        size = (dx.shape[3], dx.shape[2], dx.shape[0] * dx.shape[1])
        arguments = (*_planes(dx, dy, op), w, dy, dx)
        return [net.launch("depthwise.cl", "depthwise_input_gradient", size, *arguments)]
    layout = ConvLayout.of(dx.shape, dy.shape, op.ints).backward
    return convolve(net, layout, dy, w, None, dx, transposed=True)


def weight_gradient(net: "DeviceNetwork", op: PlanOp) -> list["KernelLaunch"]:
    """Launch the gradient of the weights."""
    x, dy, dw = _operands(op)
    if _is_depthwise(op, x, dy):
        taps = (dw.shape[2] * dw.shape[3], dw.shape[0])
        arguments = (*_planes(x, dy, op), x, dy, dw)
        return [net.launch("depthwise.cl", "depthwise_weight_gradient", taps, *arguments)]
    layout = ConvLayout.of(x.shape, dy.shape, op.ints)
    pack_x, packed_x = pack_image(net, layout, x, "image")
    pack_dy, packed_dy = pack_image(net, layout.gradient, dy, "gradient")
    out, depth, kh, kw = dw.shape
    outs = -(-(out // layout.groups) // GRAD_OUTS) * layout.groups
    arguments = (*weight_gradient_shape(layout), packed_x, packed_dy, dw)
    size = (kh * kw, -(-depth // GRAD_INS), outs)
    return [*pack_x, *pack_dy, net.launch("conv.cl", "conv_weight_gradient", size, *arguments)]


def weight_gradient_shape(layout: ConvLayout) -> tuple[int, ...]:
    """Return the leading arguments of conv_weight_gradient: rows have the length of packed dy."""
    before, after = layout.shape[:5], layout.shape[6:]
    return (*before, layout.gradient.length, *after)


def _round_up(count: int) -> int:
    return -(-count // WIDE) * WIDE


def _operands(op: PlanOp) -> list[Any]:
    return [*op.ins, *op.outs]


def _is_depthwise(op: PlanOp, x: Tensor, y: Tensor) -> bool:
    return op.ints[0] == x.shape[1] == y.shape[1]


def _planes(x: Tensor, y: Tensor, op: PlanOp) -> tuple[int, ...]:
    return (x.shape[0] * x.shape[1], *x.shape[1:], *y.shape[2:], *op.ints[1:])
