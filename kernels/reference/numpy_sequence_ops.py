"""Embedding, LSTM and attention."""

import numpy as np

from kernels.reference.machine import Array, Call, Results, kind, rows
from kernels.reference.numpy_activations import sigmoid


@kind("embedding_forward")
def embedding_forward(call: Call) -> Results:
    return (call[1][call[0].astype(np.int64)],)


@kind("embedding_gradient")
def embedding_gradient(call: Call) -> Results:
    table = np.zeros(call.shapes[0])
    np.add.at(table, call[0].astype(np.int64), call[1])
    return (table,)


@kind("embedding_gradient_add")
def embedding_gradient_add(call: Call) -> Results:
    table = call[2].copy()
    np.add.at(table, call[0].astype(np.int64), call[1])
    return (table,)


@kind("lstm_forward")
def lstm_forward(call: Call) -> Results:
    x, wi, ws, bias = (call[index] for index in range(4))
    batch, time, features = call.shapes[0]
    y, cells = np.zeros(call.shapes[0]), np.zeros(call.shapes[2])
    gates = np.zeros(call.shapes[1])
    state, cell = np.zeros((batch, features)), np.zeros((batch, features))
    for at in range(time):
        raw = x[:, at] @ wi.T + state @ ws.T + bias
        i, f, c, o = np.split(raw, 4, axis=1)
        i, f, c, o = sigmoid(i), sigmoid(f), np.tanh(c), sigmoid(o)
        cell = f * cell + i * c
        state = o * np.tanh(cell)
        y[:, at], cells[:, at] = state, cell
        gates[:, at] = np.concatenate([i, f, c, o], axis=1)
    return y, gates, cells


@kind("lstm_gradient")
def lstm_gradient(call: Call) -> Results:
    dy, gates, cells, ws = (call[index] for index in range(4))
    batch, time, features = dy.shape
    dgates = np.zeros(call.shapes[0])
    dstate, dcell = np.zeros((batch, features)), np.zeros((batch, features))
    for at in reversed(range(time)):
        i, f, c, o = np.split(gates[:, at], 4, axis=1)
        before = cells[:, at - 1] if at else np.zeros((batch, features))
        bent = np.tanh(cells[:, at])
        dh = dy[:, at] + dstate
        dc = dcell + dh * o * (1 - bent * bent)
        parts = [
            dc * c * i * (1 - i),
            dc * before * f * (1 - f),
            dc * i * (1 - c * c),
            dh * bent * o * (1 - o),
        ]
        dgates[:, at] = np.concatenate(parts, axis=1)
        dcell = dc * f
        dstate = dgates[:, at] @ ws
    return (dgates,)


@kind("lstm_weight_gradient")
def lstm_weight_gradient(call: Call) -> Results:
    x, y, dgates = (call[index] for index in range(3))
    before = np.concatenate([np.zeros_like(y[:, :1]), y[:, :-1]], axis=1)
    return rows(dgates).T @ rows(x), rows(dgates).T @ rows(before)


def _heads(x: Array, heads: int) -> Array:
    batch, time, features = x.shape
    return x.reshape(batch, time, heads, features // heads).transpose(0, 2, 1, 3)


def _joined(x: Array) -> Array:
    batch, heads, time, features = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, time, heads * features)


@kind("attention_scores")
def attention_scores(call: Call) -> Results:
    heads, causal = call.op.ints
    q, k, _ = (_heads(part, heads) for part in np.split(call[0], 3, axis=-1))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    hidden = np.triu(np.ones(scores.shape[-2:], bool), 1) & bool(causal)
    return (np.where(hidden, -1e30, scores),)


@kind("attention_values")
def attention_values(call: Call) -> Results:
    value = _heads(np.split(call[0], 3, axis=-1)[2], call.op.ints[0])
    return (_joined(call[1] @ value),)


@kind("attention_values_gradient")
def attention_values_gradient(call: Call) -> Results:
    qkv, shares = call[0], call[1]
    dout = _heads(call[2], call.op.ints[0])
    value = _heads(np.split(qkv, 3, axis=-1)[2], call.op.ints[0])
    dqkv = np.zeros_like(qkv)
    dqkv[..., 2 * call[2].shape[-1] :] = _joined(shares.transpose(0, 1, 3, 2) @ dout)
    return dout @ value.transpose(0, 1, 3, 2), dqkv


@kind("attention_scores_gradient")
def attention_scores_gradient(call: Call) -> Results:
    heads, causal = call.op.ints
    q, k, _ = (_heads(part, heads) for part in np.split(call[0], 3, axis=-1))
    hidden = np.triu(np.ones(call[1].shape[-2:], bool), 1) & bool(causal)
    dscores = np.where(hidden, 0.0, call[1]) / np.sqrt(q.shape[-1])
    dqkv, features = call[2].copy(), call[0].shape[-1] // 3
    dqkv[..., :features] = _joined(dscores @ k)
    dqkv[..., features : 2 * features] = _joined(dscores.transpose(0, 1, 3, 2) @ q)
    return (dqkv,)
