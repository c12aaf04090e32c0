"""Convolutions and linear layers."""

import numpy as np

from kernels.reference.machine import Array, Call, Results, kind, rows
from kernels.reference.numpy_window import Window


def _grouped(x: Array, groups: int) -> Array:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def _weights(w: Array, groups: int) -> Array:
    return w.reshape(groups, w.shape[0] // groups, *w.shape[1:])


@kind("conv_forward")
def conv_forward(call: Call) -> Results:
    x, w, bias = call[0], call[1], call.given[2]
    groups, *ints = call.op.ints
    window = Window.of(ints, x.shape, call.shapes[0])
    seen = _grouped(window.views(x), groups)
    y = np.einsum("ngcyxhw,gochw->ngoyx", seen, _weights(w, groups), optimize=True)
    y = y.reshape(call.shapes[0])
    return (y if bias is None else y + bias[:, None, None],)


@kind("conv_weight_gradient")
def conv_weight_gradient(call: Call) -> Results:
    x, dy = call[0], call[1]
    groups, *ints = call.op.ints
    seen = _grouped(Window.of(ints, x.shape, dy.shape).views(x), groups)
    dw = np.einsum("ngcyxhw,ngoyx->gochw", seen, _grouped(dy, groups), optimize=True)
    return (dw.reshape(call.shapes[0]),)


@kind("conv_input_gradient")
def conv_input_gradient(call: Call) -> Results:
    w, dy = call[0], call[1]
    groups, *ints = call.op.ints
    window = Window.of(ints, call.shapes[0], dy.shape)
    sent, weights = _grouped(dy, groups), _weights(w, groups)
    parts = np.einsum("ngoyx,gochw->ngcyxhw", sent, weights, optimize=True)
    channels = call.shapes[0][1]
    return (window.spread(parts.reshape(dy.shape[0], channels, *parts.shape[3:]), channels),)


@kind("channel_bias")
def channel_bias(call: Call) -> Results:
    return (call[0] + call[1][:, None, None],)


@kind("channel_bias_gradient")
def channel_bias_gradient(call: Call) -> Results:
    return (call[0].sum(axis=(0, 2, 3)),)


@kind("linear_forward")
def linear_forward(call: Call) -> Results:
    y = call[0] @ call[1].T
    bias = call.given[2]
    return (y if bias is None else y + bias,)


@kind("linear_weight_gradient")
def linear_weight_gradient(call: Call) -> Results:
    return (rows(call[1]).T @ rows(call[0]),)


@kind("linear_input_gradient")
def linear_input_gradient(call: Call) -> Results:
    return (call[1] @ call[0],)


@kind("row_bias_gradient")
def row_bias_gradient(call: Call) -> Results:
    return (rows(call[0]).sum(axis=0),)


@kind("sgemm")
def sgemm(call: Call) -> Results:
    first, second = call.op.ints
    return ((call[0].T if first else call[0]) @ (call[1].T if second else call[1]),)
