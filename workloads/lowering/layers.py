"""How each layer becomes operations of the engine (kernels/engine/cpu/ops.h).

One small generator a layer: what stands before its `yield` is the way forward, what stands behind
it is the way back, with the gradient in `at.dy`. A new layer follows one that is there.
"""

from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

from workloads.fault import Refused
from workloads.layers import (
    GELU,
    LSTM,
    Add,
    Attention,
    AvgPool,
    BatchNorm,
    BinaryCrossEntropy,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool,
    LastMoment,
    Layer,
    LayerNorm,
    LeakyReLU,
    Linear,
    MaxPool,
    MeanSquaredError,
    Positions,
    ReLU,
    ReLU6,
    RepeatMoment,
    Reshape,
    Sigmoid,
    Softmax,
    SoftmaxCrossEntropy,
    Tanh,
    TemporalDifference,
    Upsample,
)
from workloads.layers.layer import Shape
from workloads.layers.windows import pair, slides
from workloads.lowering.site import Site, Way

Lowers = Callable[[Any, Site], Way]
Found = TypeVar("Found", bound=Lowers)
LAYERS: dict[type[Layer], Lowers] = {}


def lowers(*layers: type[Layer]) -> Callable[[Found], Found]:
    """Mark the function that lowers these layers."""

    def mark(function: Found) -> Found:
        LAYERS.update(dict.fromkeys(layers, function))
        return function

    return mark


def way_of(layer: Layer, at: Site) -> Way:
    """The way through a layer."""
    if type(layer) not in LAYERS:
        raise Refused(f"layer '{at.node}': no engine has an operation for {type(layer).__name__}")
    return LAYERS[type(layer)](layer, at)


@lowers(Conv2d)
def conv(layer: Conv2d, at: Site) -> Way:
    """A transposed one is the input gradient of a plain one, and the other way round."""
    weight = at.parameter("weight")
    bias = at.parameter("bias") if layer.bias else None
    window = (layer.groups, *_window(layer, at.place.inputs[0], layer.transposed))
    if layer.transposed:
        at.op("forward", "conv_input_gradient", (weight, at.x), (at.y,), window)
        if bias:
            at.op("forward", "channel_bias", (at.y, bias), (at.y,))
    else:
        at.op("forward", "conv_forward", (at.x, weight, bias), (at.y,), window)
    yield
    if at.learns:
        seen, sent = (at.dy, at.x) if layer.transposed else (at.x, at.dy)
        dw = at.gradient("weight")
        at.op("weight_gradient", "conv_weight_gradient", (seen, sent), (dw,), window)
        if bias:
            db = at.gradient("bias")
            at.op("bias_gradient", "channel_bias_gradient", (at.dy,), (db,))
    if at.passes_on and layer.transposed:
        at.op("input_gradient", "conv_forward", (at.dy, weight, None), (at.dx(),), window)
    elif at.passes_on:
        at.op("input_gradient", "conv_input_gradient", (weight, at.dy), (at.dx(),), window)


@lowers(Linear)
def linear(layer: Linear, at: Site) -> Way:
    """A matrix product each way."""
    weight = at.parameter("weight")
    bias = at.parameter("bias") if layer.bias else None
    at.op("forward", "linear_forward", (at.x, weight, bias), (at.y,))
    yield
    if at.learns:
        dw = at.gradient("weight")
        at.op("weight_gradient", "linear_weight_gradient", (at.x, at.dy), (dw,))
        if bias:
            at.op("bias_gradient", "row_bias_gradient", (at.dy,), (at.gradient("bias"),))
    if at.passes_on:
        at.op("input_gradient", "linear_input_gradient", (weight, at.dy), (at.dx(),))


@lowers(ReLU, ReLU6, Tanh, Sigmoid, LeakyReLU)
def activation(layer: Layer, at: Site) -> Way:
    """The slope follows from the result."""
    if at.done:
        at.y = at.x
        at.covers("forward")
        yield
        at.gradients = {0: at.dy}
        at.covers("input_gradient")
        return
    name = "leaky" if isinstance(layer, LeakyReLU) else type(layer).__name__.lower()
    slope = (layer.slope,) if isinstance(layer, LeakyReLU) else ()
    at.op("forward", f"{name}_forward", (at.x,), (at.y,), (), slope)
    yield
    if at.passes_on:
        at.op("input_gradient", f"{name}_gradient", (at.y, at.dy), (at.dx(),), (), slope)


@lowers(GELU)
def gelu(_: GELU, at: Site) -> Way:
    """The slope follows from what came in."""
    at.op("forward", "gelu_forward", (at.x,), (at.y,))
    yield
    if at.passes_on:
        at.op("input_gradient", "gelu_gradient", (at.x, at.dy), (at.dx(),))


@lowers(Dropout)
def dropout(layer: Dropout, at: Site) -> Way:
    """Drops nothing but in training."""
    if not at.training:
        at.y = at.x
        return
    mask = at.new("mask", at.x.shape, "byte")
    at.op("forward", "dropout_forward", (at.x,), (at.y, mask), (), (layer.share,))
    yield
    if at.passes_on:
        share = (layer.share,)
        at.op("input_gradient", "dropout_gradient", (mask, at.dy), (at.dx(),), (), share)


@lowers(Softmax)
def softmax(layer: Softmax, at: Site) -> Way:
    """Along one axis; what lies before and behind it is looped over."""
    axis = layer.axis % len(at.place.output) + 1
    shape = at.x.shape
    loop = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    at.op("forward", "softmax_forward", (at.x,), (at.y,), loop)
    yield
    if at.passes_on:
        at.op("input_gradient", "softmax_gradient", (at.y, at.dy), (at.dx(),), loop)


@lowers(BatchNorm)
def batch_norm(layer: BatchNorm, at: Site) -> Way:
    """By the batch in training, by what was seen in training elsewhere; a ReLU goes with it."""
    name = f"batch_norm_{type(at.behind).__name__.lower()}" if at.behind else "batch_norm"
    channels = at.place.output[:1]
    scale, shift = at.parameter("scale"), at.parameter("shift")
    running = (at.state("mean", channels, 0.0), at.state("variance", channels, 1.0))
    given = (at.x, scale, shift, *running)
    if not at.training:
        at.op("forward", f"{name}_inference", given, (at.y,), (), (layer.epsilon,))
        return
    mean, rstd = at.new("mean", channels), at.new("rstd", channels)
    made = (at.y, mean, rstd, *running)
    at.op("forward", f"{name}_forward", given, made, (), (layer.momentum, layer.epsilon))
    yield
    sums = (at.gradient("scale"), at.gradient("shift"))
    if at.passes_on:
        # The input's gradient needs both sums as well, also where nothing learns from them.
        part = "weight_gradient" if at.learns else "input_gradient"
        known = (at.x, at.dy, scale, shift, mean, rstd)
        at.op(part, f"{name}_gradient", known, (*sums, at.dx()))
        if at.learns:
            at.covers("input_gradient")
    else:
        at.op("weight_gradient", "batch_norm_weight_gradient", (at.x, at.dy, mean, rstd), sums)


@lowers(LayerNorm)
def layer_norm(layer: LayerNorm, at: Site) -> Way:
    """Row by row."""
    scale, shift = at.parameter("scale"), at.parameter("shift")
    rows = at.x.shape[:-1]
    mean, rstd = at.new("mean", rows), at.new("rstd", rows)
    epsilon = (layer.epsilon,)
    at.op("forward", "layer_norm_forward", (at.x, scale, shift), (at.y, mean, rstd), (), epsilon)
    yield
    if at.learns:
        sums = (at.gradient("scale"), at.gradient("shift"))
        at.op("weight_gradient", "layer_norm_weight_gradient", (at.x, at.dy, mean, rstd), sums)
    if at.passes_on:
        known = (at.x, at.dy, scale, mean, rstd)
        at.op("input_gradient", "layer_norm_input_gradient", known, (at.dx(),))


@lowers(MaxPool)
def max_pool(layer: MaxPool, at: Site) -> Way:
    """Remembers where the greatest was."""
    window = _window(layer, at.place.inputs[0])
    where = at.new("where", at.y.shape, "index")
    at.op("forward", "max_pool_forward", (at.x,), (at.y, where), window)
    yield
    if at.passes_on:
        at.op("input_gradient", "max_pool_gradient", (where, at.dy), (at.dx(),), window)


@lowers(AvgPool)
def avg_pool(layer: AvgPool, at: Site) -> Way:
    """Remembers nothing."""
    window = _window(layer, at.place.inputs[0])
    at.op("forward", "avg_pool_forward", (at.x,), (at.y,), window)
    yield
    if at.passes_on:
        at.op("input_gradient", "avg_pool_gradient", (at.dy,), (at.dx(),), window)


@lowers(GlobalAvgPool)
def global_avg_pool(_: GlobalAvgPool, at: Site) -> Way:
    """One mean a channel."""
    at.op("forward", "global_avg_pool_forward", (at.x,), (at.y,))
    yield
    if at.passes_on:
        at.op("input_gradient", "global_avg_pool_gradient", (at.dy,), (at.dx(),))


@lowers(Concat)
def concat(layer: Concat, at: Site) -> Way:
    """The engine counts the batch as an axis as well."""
    axis = (layer.axis + 1,)
    at.op("forward", "concat", at.xs, (at.y,), axis)
    yield
    if at.passes_on:
        apart = [at.dx(index) for index in range(len(at.xs))]
        at.op("input_gradient", "split", (at.dy,), apart, axis)


@lowers(Add)
def add(_: Add, at: Site) -> Way:
    """The gradient reaches every input as it is."""
    at.op("forward", "add", at.xs, (at.y,))
    yield
    at.gradients = {index: at.dy for index, asked in enumerate(at.asks) if asked}


@lowers(Upsample)
def upsample(layer: Upsample, at: Site) -> Way:
    """Pixels copied, gradients added."""
    at.op("forward", "upsample", (at.x,), (at.y,), (layer.factor,))
    yield
    if at.passes_on:
        at.op("input_gradient", "upsample_gradient", (at.dy,), (at.dx(),), (layer.factor,))


@lowers(Flatten, Reshape)
def reshape(_: Layer, at: Site) -> Way:
    """Another view, there and back."""
    at.y = at.view(at.x, (at.place.batch, *at.place.output))
    yield
    at.gradients = {0: at.view(at.dy, at.x.shape)}


@lowers(Embedding)
def embedding(_: Embedding, at: Site) -> Way:
    """Rows of a table; a symbol has no slope."""
    at.op("forward", "embedding_forward", (at.x, at.parameter("weight")), (at.y,))
    yield
    if at.learns:
        table = at.gradient("weight")
        at.op("weight_gradient", "embedding_gradient", (at.x, at.dy), (table,))


@lowers(Positions)
def positions(_: Positions, at: Site) -> Way:
    """The gradient goes on as it is."""
    at.op("forward", "position_add", (at.x, at.parameter("weight")), (at.y,))
    yield
    if at.learns:
        at.op("weight_gradient", "position_gradient", (at.dy,), (at.gradient("weight"),))
    at.gradients = {0: at.dy}


@lowers(LastMoment)
def last_moment(_: LastMoment, at: Site) -> Way:
    """One row of many."""
    at.op("forward", "last_moment", (at.x,), (at.y,))
    yield
    if at.passes_on:
        at.op("input_gradient", "last_moment_gradient", (at.dy,), (at.dx(),))


@lowers(RepeatMoment)
def repeat_moment(_: RepeatMoment, at: Site) -> Way:
    """Many rows of one."""
    at.op("forward", "repeat_moment", (at.x,), (at.y,))
    yield
    if at.passes_on:
        at.op("input_gradient", "repeat_moment_gradient", (at.dy,), (at.dx(),))


@lowers(LSTM)
def lstm(layer: LSTM, at: Site) -> Way:
    """Forward and back through time are one operation each."""
    wi, ws, bias = (at.parameter(name) for name in ("input_weight", "state_weight", "bias"))
    batch, time, features = at.y.shape
    gates = at.new("gates", (batch, time, 4 * features))
    cells = at.new("cells", at.y.shape)
    at.op("forward", "lstm_forward", (at.x, wi, ws, bias), (at.y, gates, cells))
    at.covers("gates")
    yield
    dgates = at.new("gates_gradient", gates.shape)
    at.op("gates_gradient", "lstm_gradient", (at.dy, gates, cells, ws), (dgates,))
    at.covers("state_gradient")
    if at.learns:
        sums = (at.gradient("input_weight"), at.gradient("state_weight"))
        at.op("weight_gradient", "lstm_weight_gradient", (at.x, at.y, dgates), sums)
        at.op("bias_gradient", "row_bias_gradient", (dgates,), (at.gradient("bias"),))
    if at.passes_on:
        at.op("input_gradient", "linear_input_gradient", (wi, dgates), (at.dx(),))


@lowers(Attention)
def attention(layer: Attention, at: Site) -> Way:
    """Projections are full connections; what lies between them goes head by head."""
    weight, bias, out_weight, out_bias = (
        at.parameter(name) for name in ("weight", "bias", "out_weight", "out_bias")
    )
    batch, time, features = at.x.shape
    heads, causal = layer.heads, int(layer.causal)
    loop = (batch * heads * time, time, 1)
    qkv = at.new("qkv", (batch, time, 3 * features))
    scores = at.new("scores", (batch, heads, time, time))
    shares = at.new("shares", scores.shape)
    mixed = at.new("mixed", at.x.shape)
    at.op("in_projection", "linear_forward", (at.x, weight, bias), (qkv,))
    at.op("scores", "attention_scores", (qkv,), (scores,), (heads, causal))
    at.op("shares", "softmax_forward", (scores,), (shares,), loop)
    at.op("values", "attention_values", (qkv, shares), (mixed,), (heads,))
    at.op("out_projection", "linear_forward", (mixed, out_weight, out_bias), (at.y,))
    yield
    dmixed, dqkv = at.new("mixed_gradient", mixed.shape), at.new("qkv_gradient", qkv.shape)
    dshares, dscores = (
        at.new(name, scores.shape) for name in ("shares_gradient", "scores_gradient")
    )
    at.op("out_gradient", "linear_input_gradient", (out_weight, at.dy), (dmixed,))
    back = (dshares, dqkv)
    at.op("values_gradient", "attention_values_gradient", (qkv, shares, dmixed), back, (heads,))
    at.op("shares_gradient", "softmax_gradient", (shares, dshares), (dscores,), loop)
    known = (qkv, dscores, dqkv)
    at.op("scores_gradient", "attention_scores_gradient", known, (dqkv,), (heads, causal))
    if at.learns:
        dout, dw = at.gradient("out_weight"), at.gradient("weight")
        at.op("out_weight_gradient", "linear_weight_gradient", (mixed, at.dy), (dout,))
        at.op("weight_gradient", "linear_weight_gradient", (at.x, dqkv), (dw,))
        at.op("bias_gradient", "row_bias_gradient", (at.dy,), (at.gradient("out_bias"),))
        at.op("bias_gradient", "row_bias_gradient", (dqkv,), (at.gradient("bias"),))
    if at.passes_on:
        at.op("input_gradient", "linear_input_gradient", (weight, dqkv), (at.dx(),))


@lowers(SoftmaxCrossEntropy)
def softmax_cross_entropy(_: SoftmaxCrossEntropy, at: Site) -> Way:
    """The gradient is made of the shares, in their place."""
    shares = at.new("shares", at.x.shape)
    at.op("forward", "softmax_cross_entropy", (at.x, at.target), (shares, at.y))
    yield
    known = (shares, at.target)
    at.op("input_gradient", "softmax_cross_entropy_gradient", known, (at.dx(),))


@lowers(CrossEntropy, MeanSquaredError, BinaryCrossEntropy)
def loss(layer: Layer, at: Site) -> Way:
    """What the model says against what is so."""
    name = {
        CrossEntropy: "cross_entropy",
        MeanSquaredError: "mean_squared_error",
        BinaryCrossEntropy: "binary_cross_entropy",
    }[type(layer)]  # type: ignore[index]
    at.op("forward", name, (at.x, at.target), (at.y,))
    yield
    at.op("input_gradient", f"{name}_gradient", (at.x, at.target), (at.dx(),))


@lowers(TemporalDifference)
def temporal_difference(layer: TemporalDifference, at: Site) -> Way:
    """What the values should be is made here, and taken as given."""
    goal = at.new("target", at.x.shape)
    at.op("target", "td_target", at.xs, (goal,), (), (layer.discount,))
    at.op("forward", "mean_squared_error", (at.x, goal), (at.y,))
    yield
    at.op("input_gradient", "mean_squared_error_gradient", (at.x, goal), (at.dx(),))


def _window(
    layer: Conv2d | MaxPool | AvgPool, shape: Shape, transposed: bool = False
) -> tuple[int, ...]:
    """Kernel, stride and the padding before, as the engine wants them."""
    height, width = slides(
        (shape[1], shape[2]), layer.kernel, layer.stride, layer.padding, transposed
    )
    return (*pair(layer.kernel), *pair(layer.stride), height.before, width.before)
