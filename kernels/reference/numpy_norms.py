"""Batch norm and layer norm."""

import numpy as np

from kernels.reference.machine import Array, Call, Results, kind, rows


def _of_channel(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


def _activate(name: str, y: Array) -> Array:
    """Apply the activation that is fused with a norm."""
    return np.clip(y, 0, 6 if "_relu6" in name else None) if "_relu" in name else y


@kind("batch_norm_forward", "batch_norm_relu_forward", "batch_norm_relu6_forward")
def batch_norm_forward(call: Call) -> Results:
    x, scale, shift, running_mean, running_variance = (call[index] for index in range(5))
    momentum, epsilon = call.op.floats
    mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    count = x.size / x.shape[1]
    rstd = 1 / np.sqrt(variance + epsilon)
    y = (x - _of_channel(mean)) * _of_channel(rstd * scale) + _of_channel(shift)
    unbiased = variance * count / max(count - 1, 1)
    return (
        _activate(call.op.kind, y),
        mean,
        rstd,
        momentum * running_mean + (1 - momentum) * mean,
        momentum * running_variance + (1 - momentum) * unbiased,
    )


@kind("batch_norm_weight_gradient")
def batch_norm_weight_gradient(call: Call) -> Results:
    x, dy, mean, rstd = (call[index] for index in range(4))
    normal = (x - _of_channel(mean)) * _of_channel(rstd)
    return (dy * normal).sum(axis=(0, 2, 3)), dy.sum(axis=(0, 2, 3))


@kind("batch_norm_gradient", "batch_norm_relu_gradient", "batch_norm_relu6_gradient")
def batch_norm_gradient(call: Call) -> Results:
    x, dy, scale, shift, mean, rstd = (call[index] for index in range(6))
    count = x.size / x.shape[1]
    normal = (x - _of_channel(mean)) * _of_channel(rstd)
    y = normal * _of_channel(scale) + _of_channel(shift)
    dy = np.where(_activate(call.op.kind, y) == y, dy, 0.0)
    dscale, dshift = (dy * normal).sum(axis=(0, 2, 3)), dy.sum(axis=(0, 2, 3))
    less = _of_channel(dshift / count) + normal * _of_channel(dscale / count)
    return dscale, dshift, _of_channel(scale * rstd) * (dy - less)


@kind("batch_norm_inference", "batch_norm_relu_inference", "batch_norm_relu6_inference")
def batch_norm_inference(call: Call) -> Results:
    x, scale, shift, mean, variance = (call[index] for index in range(5))
    rstd = 1 / np.sqrt(variance + call.op.floats[0])
    y = (x - _of_channel(mean)) * _of_channel(rstd * scale) + _of_channel(shift)
    return (_activate(call.op.kind, y),)


@kind("layer_norm_forward")
def layer_norm_forward(call: Call) -> Results:
    x, scale, shift = (call[index] for index in range(3))
    mean = x.mean(axis=-1)
    rstd = 1 / np.sqrt(x.var(axis=-1) + call.op.floats[0])
    y = (x - mean[..., None]) * rstd[..., None] * scale + shift
    return y, mean, rstd


@kind("layer_norm_weight_gradient")
def layer_norm_weight_gradient(call: Call) -> Results:
    x, dy, mean, rstd = (call[index] for index in range(4))
    normal = (x - mean[..., None]) * rstd[..., None]
    return rows(dy * normal).sum(axis=0), rows(dy).sum(axis=0)


@kind("layer_norm_input_gradient")
def layer_norm_input_gradient(call: Call) -> Results:
    x, dy, scale, mean, rstd = (call[index] for index in range(5))
    normal = (x - mean[..., None]) * rstd[..., None]
    inner = dy * scale
    along = (inner * normal).mean(axis=-1, keepdims=True)
    return (rstd[..., None] * (inner - inner.mean(axis=-1, keepdims=True) - normal * along),)
