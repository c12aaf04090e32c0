"""How each layer becomes operations of the engine (kernels/engine/cpu/ops.h).

One generator per layer: the code before its `yield` emits the forward pass, the code after it the
backward pass, with the gradient of the output in `ctx.dy`.
"""

from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

from workloads.layers import (
    GELU,
    LSTM,
    Add,
    AttentionHeads,
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
    LastTimeStep,
    Layer,
    LayerNorm,
    LeakyReLU,
    Linear,
    MaxPool,
    MeanSquaredError,
    PositionEmbedding,
    ReLU,
    ReLU6,
    RepeatVector,
    Reshape,
    Sigmoid,
    Softmax,
    SoftmaxCrossEntropy,
    Tanh,
    TemporalDifference,
    TiedLinear,
    Upsample,
)
from workloads.layers.layer import Shape
from workloads.layers.window_shapes import as_pair, window_axes
from workloads.lowering.lowering_context import LayerContext, Lowering
from workloads.protocol.faults import InvalidRequest

LayerLowering = Callable[[Any, LayerContext], Lowering]
Function = TypeVar("Function", bound=LayerLowering)
LOWERINGS: dict[type[Layer], LayerLowering] = {}


def lowering_of(*layers: type[Layer]) -> Callable[[Function], Function]:
    """Register the function that lowers these layers."""

    def register(function: Function) -> Function:
        LOWERINGS.update(dict.fromkeys(layers, function))
        return function

    return register


def lower_layer(layer: Layer, ctx: LayerContext) -> Lowering:
    """Start the lowering of a layer."""
    if type(layer) not in LOWERINGS:
        raise InvalidRequest(f"layer '{ctx.node}': the engine has no operation for {layer.tag}")
    return LOWERINGS[type(layer)](layer, ctx)


@lowering_of(Conv2d)
def conv(layer: Conv2d, ctx: LayerContext) -> Lowering:
    """Lower a convolution; a transposed one is the input gradient of a plain one."""
    weight = ctx.parameter("weight")
    bias = ctx.parameter("bias") if layer.bias else None
    window = (layer.groups, *_window(layer, ctx.shapes.inputs[0], layer.transposed))
    if layer.transposed:
        ctx.op("forward", "conv_input_gradient", (weight, ctx.x), (ctx.y,), window)
        if bias:
            ctx.op("forward", "channel_bias", (ctx.y, bias), (ctx.y,))
    else:
        ctx.op("forward", "conv_forward", (ctx.x, weight, bias), (ctx.y,), window)
    yield
    if ctx.trainable:
        image, gradient = (ctx.dy, ctx.x) if layer.transposed else (ctx.x, ctx.dy)
        dw = ctx.gradient("weight")
        ctx.op("weight_gradient", "conv_weight_gradient", (image, gradient), (dw,), window)
        if bias:
            db = ctx.gradient("bias")
            ctx.op("bias_gradient", "channel_bias_gradient", (ctx.dy,), (db,))
    if ctx.needs_input_gradient and layer.transposed:
        ctx.op("input_gradient", "conv_forward", (ctx.dy, weight, None), (ctx.dx(),), window)
    elif ctx.needs_input_gradient:
        ctx.op("input_gradient", "conv_input_gradient", (weight, ctx.dy), (ctx.dx(),), window)


@lowering_of(Linear)
def linear(layer: Linear, ctx: LayerContext) -> Lowering:
    """Lower a fully connected layer: a matrix product in each direction."""
    weight = ctx.parameter("weight")
    bias = ctx.parameter("bias") if layer.bias else None
    ctx.op("forward", "linear_forward", (ctx.x, weight, bias), (ctx.y,))
    yield
    if ctx.trainable:
        dw = ctx.gradient("weight")
        ctx.op("weight_gradient", "linear_weight_gradient", (ctx.x, ctx.dy), (dw,))
        if bias:
            ctx.op("bias_gradient", "row_bias_gradient", (ctx.dy,), (ctx.gradient("bias"),))
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "linear_input_gradient", (weight, ctx.dy), (ctx.dx(),))


@lowering_of(TiedLinear)
def tied_linear(layer: TiedLinear, ctx: LayerContext) -> Lowering:
    """Lower a product with the table of an embedding; the embedding adds its own gradient later."""
    table = ctx.builder.parameter(layer.table, "weight")
    ctx.op("forward", "linear_forward", (ctx.x, table, None), (ctx.y,))
    yield
    if ctx.trainable:
        dtable = ctx.builder.gradient(layer.table, "weight")
        ctx.op("weight_gradient", "linear_weight_gradient", (ctx.x, ctx.dy), (dtable,))
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "linear_input_gradient", (table, ctx.dy), (ctx.dx(),))


@lowering_of(ReLU, ReLU6, Tanh, Sigmoid, LeakyReLU)
def activation(layer: Layer, ctx: LayerContext) -> Lowering:
    """Lower an activation whose derivative follows from its output."""
    if ctx.already_computed:
        ctx.y = ctx.x
        ctx.mark_covered("forward")
        yield
        ctx.input_gradients = {0: ctx.dy}
        ctx.mark_covered("input_gradient")
        return
    name = "leaky" if isinstance(layer, LeakyReLU) else layer.tag
    slope = (layer.negative_slope,) if isinstance(layer, LeakyReLU) else ()
    ctx.op("forward", f"{name}_forward", (ctx.x,), (ctx.y,), (), slope)
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", f"{name}_gradient", (ctx.y, ctx.dy), (ctx.dx(),), (), slope)


@lowering_of(GELU)
def gelu(_: GELU, ctx: LayerContext) -> Lowering:
    """Lower GELU, whose derivative follows from its input."""
    ctx.op("forward", "gelu_forward", (ctx.x,), (ctx.y,))
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "gelu_gradient", (ctx.x, ctx.dy), (ctx.dx(),))


@lowering_of(Dropout)
def dropout(layer: Dropout, ctx: LayerContext) -> Lowering:
    """Lower dropout; in inference it is the identity."""
    if not ctx.training:
        ctx.y = ctx.x
        return
    mask = ctx.new_tensor("mask", ctx.x.shape, "byte")
    ctx.op("forward", "dropout_forward", (ctx.x,), (ctx.y, mask), (), (layer.rate,))
    yield
    if ctx.needs_input_gradient:
        rate = (layer.rate,)
        ctx.op("input_gradient", "dropout_gradient", (mask, ctx.dy), (ctx.dx(),), (), rate)


@lowering_of(Softmax)
def softmax(layer: Softmax, ctx: LayerContext) -> Lowering:
    """Lower softmax along one axis, as loops over the axes before and after it."""
    axis = layer.axis % len(ctx.shapes.output) + 1
    shape = ctx.x.shape
    loop = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    ctx.op("forward", "softmax_forward", (ctx.x,), (ctx.y,), loop)
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "softmax_gradient", (ctx.y, ctx.dy), (ctx.dx(),), loop)


@lowering_of(BatchNorm)
def batch_norm(layer: BatchNorm, ctx: LayerContext) -> Lowering:
    """Lower batch normalization: statistics of the batch in training, running ones elsewhere."""
    fused = ctx.fused_activation
    name = f"batch_norm_{fused.tag}" if fused else "batch_norm"
    channels = ctx.shapes.output[:1]
    scale, shift = ctx.parameter("scale"), ctx.parameter("shift")
    running = (ctx.state("mean", channels, 0.0), ctx.state("variance", channels, 1.0))
    ins = (ctx.x, scale, shift, *running)
    if not ctx.training:
        ctx.op("forward", f"{name}_inference", ins, (ctx.y,), (), (layer.epsilon,))
        return
    mean, rstd = ctx.new_tensor("mean", channels), ctx.new_tensor("rstd", channels)
    outs = (ctx.y, mean, rstd, *running)
    ctx.op("forward", f"{name}_forward", ins, outs, (), (layer.momentum, layer.epsilon))
    yield
    sums = (ctx.gradient("scale"), ctx.gradient("shift"))
    if ctx.needs_input_gradient:
        # The input gradient needs both sums, even where scale and shift are not trained.
        part = "weight_gradient" if ctx.trainable else "input_gradient"
        read = (ctx.x, ctx.dy, scale, shift, mean, rstd)
        ctx.op(part, f"{name}_gradient", read, (*sums, ctx.dx()))
        if ctx.trainable:
            ctx.mark_covered("input_gradient")
    else:
        ctx.op("weight_gradient", "batch_norm_weight_gradient", (ctx.x, ctx.dy, mean, rstd), sums)


@lowering_of(LayerNorm)
def layer_norm(layer: LayerNorm, ctx: LayerContext) -> Lowering:
    scale, shift = ctx.parameter("scale"), ctx.parameter("shift")
    rows = ctx.x.shape[:-1]
    mean, rstd = ctx.new_tensor("mean", rows), ctx.new_tensor("rstd", rows)
    epsilon = (layer.epsilon,)
    ctx.op("forward", "layer_norm_forward", (ctx.x, scale, shift), (ctx.y, mean, rstd), (), epsilon)
    yield
    if ctx.trainable:
        sums = (ctx.gradient("scale"), ctx.gradient("shift"))
        ctx.op("weight_gradient", "layer_norm_weight_gradient", (ctx.x, ctx.dy, mean, rstd), sums)
    if ctx.needs_input_gradient:
        ins = (ctx.x, ctx.dy, scale, mean, rstd)
        ctx.op("input_gradient", "layer_norm_input_gradient", ins, (ctx.dx(),))


@lowering_of(MaxPool)
def max_pool(layer: MaxPool, ctx: LayerContext) -> Lowering:
    """Lower max pooling, which saves the positions of the maxima."""
    window = _window(layer, ctx.shapes.inputs[0])
    positions = ctx.new_tensor("positions", ctx.y.shape, "index")
    ctx.op("forward", "max_pool_forward", (ctx.x,), (ctx.y, positions), window)
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "max_pool_gradient", (positions, ctx.dy), (ctx.dx(),), window)


@lowering_of(AvgPool)
def avg_pool(layer: AvgPool, ctx: LayerContext) -> Lowering:
    """Lower average pooling, which saves nothing."""
    window = _window(layer, ctx.shapes.inputs[0])
    ctx.op("forward", "avg_pool_forward", (ctx.x,), (ctx.y,), window)
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "avg_pool_gradient", (ctx.dy,), (ctx.dx(),), window)


@lowering_of(GlobalAvgPool)
def global_avg_pool(_: GlobalAvgPool, ctx: LayerContext) -> Lowering:
    ctx.op("forward", "global_avg_pool_forward", (ctx.x,), (ctx.y,))
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "global_avg_pool_gradient", (ctx.dy,), (ctx.dx(),))


@lowering_of(Concat)
def concat(layer: Concat, ctx: LayerContext) -> Lowering:
    axis = (layer.axis + 1,)  # the engine counts the batch as an axis
    ctx.op("forward", "concat", ctx.xs, (ctx.y,), axis)
    yield
    if ctx.needs_input_gradient:
        gradients = [ctx.dx(index) for index in range(len(ctx.xs))]
        ctx.op("input_gradient", "split", (ctx.dy,), gradients, axis)


@lowering_of(Add)
def add(_: Add, ctx: LayerContext) -> Lowering:
    """Lower an addition; the gradient of every input is that of the output."""
    ctx.op("forward", "add", ctx.xs, (ctx.y,))
    yield
    ctx.input_gradients = {
        index: ctx.dy for index, needed in enumerate(ctx.input_needs_gradient) if needed
    }


@lowering_of(Upsample)
def upsample(layer: Upsample, ctx: LayerContext) -> Lowering:
    """Lower upsampling: pixels are copied, their gradients added."""
    ctx.op("forward", "upsample", (ctx.x,), (ctx.y,), (layer.factor,))
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "upsample_gradient", (ctx.dy,), (ctx.dx(),), (layer.factor,))


@lowering_of(Flatten, Reshape)
def reshape(_: Layer, ctx: LayerContext) -> Lowering:
    """Lower a change of shape: a view in both directions."""
    ctx.y = ctx.view(ctx.x, (ctx.shapes.batch, *ctx.shapes.output))
    yield
    ctx.input_gradients = {0: ctx.view(ctx.dy, ctx.x.shape)}


@lowering_of(Embedding)
def embedding(_: Embedding, ctx: LayerContext) -> Lowering:
    """Lower an embedding; its input, a token, has no gradient."""
    ctx.op("forward", "embedding_forward", (ctx.x, ctx.parameter("weight")), (ctx.y,))
    yield
    if ctx.trainable and ctx.has_gradient("weight"):
        ins = (ctx.x, ctx.dy, ctx.gradient("weight"))
        ctx.op("weight_gradient", "embedding_gradient_add", ins, ins[2:])
    elif ctx.trainable:
        table = ctx.gradient("weight")
        ctx.op("weight_gradient", "embedding_gradient", (ctx.x, ctx.dy), (table,))


@lowering_of(PositionEmbedding)
def position_embedding(_: PositionEmbedding, ctx: LayerContext) -> Lowering:
    """Lower a position embedding; its input gradient is that of the output."""
    ctx.op("forward", "position_add", (ctx.x, ctx.parameter("weight")), (ctx.y,))
    yield
    if ctx.trainable:
        ctx.op("weight_gradient", "position_gradient", (ctx.dy,), (ctx.gradient("weight"),))
    ctx.input_gradients = {0: ctx.dy}


@lowering_of(LastTimeStep)
def last_time_step(_: LastTimeStep, ctx: LayerContext) -> Lowering:
    ctx.op("forward", "last_moment", (ctx.x,), (ctx.y,))
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "last_moment_gradient", (ctx.dy,), (ctx.dx(),))


@lowering_of(RepeatVector)
def repeat_vector(_: RepeatVector, ctx: LayerContext) -> Lowering:
    ctx.op("forward", "repeat_moment", (ctx.x,), (ctx.y,))
    yield
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "repeat_moment_gradient", (ctx.dy,), (ctx.dx(),))


@lowering_of(LSTM)
def lstm(layer: LSTM, ctx: LayerContext) -> Lowering:
    """Lower an LSTM; forward and backward through time are one operation each."""
    wi, ws, bias = (ctx.parameter(name) for name in ("input_weight", "state_weight", "bias"))
    batch, time, features = ctx.y.shape
    gates = ctx.new_tensor("gates", (batch, time, 4 * features))
    cells = ctx.new_tensor("cells", ctx.y.shape)
    ctx.op("forward", "lstm_forward", (ctx.x, wi, ws, bias), (ctx.y, gates, cells))
    ctx.mark_covered("gates")
    yield
    dgates = ctx.new_tensor("gates_gradient", gates.shape)
    ctx.op("gates_gradient", "lstm_gradient", (ctx.dy, gates, cells, ws), (dgates,))
    ctx.mark_covered("state_gradient")
    if ctx.trainable:
        sums = (ctx.gradient("input_weight"), ctx.gradient("state_weight"))
        ctx.op("weight_gradient", "lstm_weight_gradient", (ctx.x, ctx.y, dgates), sums)
        ctx.op("bias_gradient", "row_bias_gradient", (dgates,), (ctx.gradient("bias"),))
    if ctx.needs_input_gradient:
        ctx.op("input_gradient", "linear_input_gradient", (wi, dgates), (ctx.dx(),))


@lowering_of(AttentionHeads)
def attention_heads(layer: AttentionHeads, ctx: LayerContext) -> Lowering:
    """Lower attention: one matrix product per head in each direction."""
    batch, time, _ = ctx.x.shape
    heads, causal = layer.heads, int(layer.causal)
    loop = (batch * heads * time, time, 1)
    scores = ctx.new_tensor("scores", (batch, heads, time, time))
    weights = ctx.new_tensor("weights", scores.shape)
    ctx.op("scores", "attention_scores", (ctx.x,), (scores,), (heads, causal))
    ctx.op("weights", "softmax_forward", (scores,), (weights,), loop)
    ctx.op("values", "attention_values", (ctx.x, weights), (ctx.y,), (heads,))
    yield
    if not ctx.needs_input_gradient:
        return
    dweights, dscores = (
        ctx.new_tensor(name, scores.shape) for name in ("weights_gradient", "scores_gradient")
    )
    ins, outs = (ctx.x, weights, ctx.dy), (dweights, ctx.dx())
    ctx.op("values_gradient", "attention_values_gradient", ins, outs, (heads,))
    ctx.op("weights_gradient", "softmax_gradient", (weights, dweights), (dscores,), loop)
    ins = (ctx.x, dscores, ctx.dx())
    ctx.op("scores_gradient", "attention_scores_gradient", ins, (ctx.dx(),), (heads, causal))


@lowering_of(SoftmaxCrossEntropy)
def softmax_cross_entropy(_: SoftmaxCrossEntropy, ctx: LayerContext) -> Lowering:
    """Lower softmax and cross-entropy; the gradient replaces the probabilities in place."""
    probabilities = ctx.new_tensor("probabilities", ctx.x.shape)
    ctx.op("forward", "softmax_cross_entropy", (ctx.x, ctx.target), (probabilities, ctx.y))
    yield
    ins = (probabilities, ctx.target)
    ctx.op("input_gradient", "softmax_cross_entropy_gradient", ins, (ctx.dx(),))


@lowering_of(CrossEntropy, MeanSquaredError, BinaryCrossEntropy)
def loss(layer: Layer, ctx: LayerContext) -> Lowering:
    """Lower a loss that compares the output with the target, value by value."""
    ctx.op("forward", layer.tag, (ctx.x, ctx.target), (ctx.y,))
    yield
    ctx.op("input_gradient", f"{layer.tag}_gradient", (ctx.x, ctx.target), (ctx.dx(),))


@lowering_of(TemporalDifference)
def temporal_difference(layer: TemporalDifference, ctx: LayerContext) -> Lowering:
    """Lower deep Q-learning: the target values are computed first, and are constants after."""
    target = ctx.new_tensor("target", ctx.x.shape)
    ctx.op("target", "td_target", ctx.xs, (target,), (), (layer.discount,))
    ctx.op("forward", "mean_squared_error", (ctx.x, target), (ctx.y,))
    yield
    ctx.op("input_gradient", "mean_squared_error_gradient", (ctx.x, target), (ctx.dx(),))


def _window(
    layer: Conv2d | MaxPool | AvgPool, shape: Shape, transposed: bool = False
) -> tuple[int, ...]:
    """Return kernel, stride and the padding before, as the engine expects them."""
    height, width = window_axes(
        (shape[1], shape[2]), layer.kernel, layer.stride, layer.padding, transposed
    )
    return (*as_pair(layer.kernel), *as_pair(layer.stride), height.before, width.before)
