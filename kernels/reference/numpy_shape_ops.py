"""NumPy references of the operations that move, join, repeat or pick elements."""

import numpy as np

from kernels.reference.machine import Call, Results, kind


@kind("add")
def add(call: Call) -> Results:
    return (np.sum([call[index] for index in range(len(call.given))], axis=0),)


@kind("concat")
def concat(call: Call) -> Results:
    parts = [call[index] for index in range(len(call.given))]
    return (np.concatenate(parts, axis=call.op.ints[0]),)


@kind("split")
def split(call: Call) -> Results:
    axis = call.op.ints[0]
    ends = np.cumsum([shape[axis] for shape in call.shapes])[:-1]
    return tuple(np.split(call[0], ends, axis=axis))


@kind("copy")
def copy(call: Call) -> Results:
    return (call[0].reshape(call.shapes[0]),)


@kind("copy_scaled")
def copy_scaled(call: Call) -> Results:
    return (call[0] * call.op.floats[0],)


@kind("position_add")
def position_add(call: Call) -> Results:
    return (call[0] + call[1],)


@kind("position_gradient")
def position_gradient(call: Call) -> Results:
    return (call[0].sum(axis=0),)


@kind("last_moment")
def last_moment(call: Call) -> Results:
    return (call[0][:, -1],)


@kind("last_moment_gradient")
def last_moment_gradient(call: Call) -> Results:
    dx = np.zeros(call.shapes[0])
    dx[:, -1] = call[0]
    return (dx,)


@kind("repeat_moment")
def repeat_moment(call: Call) -> Results:
    return (np.repeat(call[0][:, None], call.shapes[0][1], axis=1),)


@kind("repeat_moment_gradient")
def repeat_moment_gradient(call: Call) -> Results:
    return (call[0].sum(axis=1),)


@kind("upsample")
def upsample(call: Call) -> Results:
    factor = call.op.ints[0]
    return (call[0].repeat(factor, axis=2).repeat(factor, axis=3),)


@kind("upsample_gradient")
def upsample_gradient(call: Call) -> Results:
    n, c, height, width = call.shapes[0]
    factor = call.op.ints[0]
    return (call[0].reshape(n, c, height, factor, width, factor).sum(axis=(3, 5)),)


@kind("td_target")
def td_target(call: Call) -> Results:
    q, following, action, reward = (call[index] for index in range(4))
    goal = q.copy()
    best = reward + call.op.floats[0] * following.max(axis=-1)
    goal[np.arange(len(goal)), action.astype(np.int64)] = best
    return (goal,)
