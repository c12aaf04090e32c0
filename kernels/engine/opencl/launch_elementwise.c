/* launch_elementwise.c - activations, softmax, dropout, and operations that only move or add
 * values. */
#include "launch.h"

#ifndef RUNNER_STATIC

#define ACTIVATIONS "activations.cl"
#define SHAPE_OPS "shape_ops.cl"

/* The values of the definition ACTIVATION in activations.cl. */
enum { RELU, RELU6, LEAKY, TANH, SIGMOID, GELU };

static bool activation_forward(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0];
    define(to, "ACTIVATION", to->variant);
    return LAUNCH(to, ACTIVATIONS, "activation_forward", grid1(y->count), INT(y->count),
                  FLOAT(op->f[0]), BUFFER(op->in[0]), BUFFER(y));
}

static bool activation_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dx = op->out[0];
    define(to, "ACTIVATION", to->variant);
    return LAUNCH(to, ACTIVATIONS, "activation_gradient", grid1(dx->count), INT(dx->count),
                  FLOAT(op->f[0]), BUFFER(op->in[0]), BUFFER(op->in[1]), BUFFER(dx));
}

static float dropout_scale(const struct op *op) { return 1.0f / (1.0f - op->f[0]); }

static bool dropout_forward(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0];
    return LAUNCH(to, SHAPE_OPS, "dropout_forward", grid1(y->count), INT(y->count),
                  FLOAT(dropout_scale(op)), UINT((uint32_t)(op->f[0] * 65536.0f)), DROPOUT_KEY,
                  BUFFER(op->in[0]), BUFFER(y), BUFFER(op->out[1]));
}

static bool dropout_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dx = op->out[0];
    return LAUNCH(to, ACTIVATIONS, "apply_mask", grid1(dx->count), INT(dx->count),
                  FLOAT(dropout_scale(op)), BUFFER(op->in[0]), BUFFER(op->in[1]), BUFFER(dx));
}

/* Of (outer, length, inner); see cpu/ops.h. */
static bool softmax_forward(struct launcher *to, const struct op *op) {
    return LAUNCH(to, "softmax.cl", "softmax_forward", grid1(op->i[0] * op->i[2]), INT(op->i[0]),
                  INT(op->i[1]), INT(op->i[2]), BUFFER(op->in[0]), BUFFER(op->out[0]));
}

static bool softmax_gradient(struct launcher *to, const struct op *op) {
    return LAUNCH(to, "softmax.cl", "softmax_gradient", grid1(op->i[0] * op->i[2]), INT(op->i[0]),
                  INT(op->i[1]), INT(op->i[2]), BUFFER(op->in[0]), BUFFER(op->in[1]),
                  BUFFER(op->out[0]));
}

bool launch_accumulate(struct launcher *to, const struct tensor *x, const struct tensor *y,
                       bool accumulates) {
    return LAUNCH(to, SHAPE_OPS, "accumulate", grid1(y->count), INT(y->count), INT(accumulates),
                  BUFFER(x), BUFFER(y));
}

bool launch_fill(struct launcher *to, const struct tensor *y, float value) {
    return LAUNCH(to, SHAPE_OPS, "fill", grid1(y->count), INT(y->count), FLOAT(value), BUFFER(y));
}

static bool add(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0];
    if (op->ins == 2) {
        return LAUNCH(to, SHAPE_OPS, "add", grid1(y->count), INT(y->count), BUFFER(op->in[0]),
                      BUFFER(op->in[1]), BUFFER(y));
    }
    bool launched = true;
    for (int n = 0; n < op->ins && launched; n++) {
        launched = launch_accumulate(to, op->in[n], y, n > 0);
    }
    return launched;
}

static bool copy(struct launcher *to, const struct op *op) {
    return launch_accumulate(to, op->in[0], op->out[0], false);
}

static bool copy_scaled(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0];
    return LAUNCH(to, SHAPE_OPS, "copy_scaled", grid1(y->count), INT(y->count), FLOAT(op->f[0]),
                  BUFFER(op->in[0]), BUFFER(y));
}

/* One launch per piece of the joined tensor; op->i[0] is the axis. */
static bool copy_pieces(struct launcher *to, const struct op *op, const char *entry,
                        const struct tensor *joined, const struct tensor *const *pieces, int count,
                        bool splits) {
    int64_t axis = op->i[0], offset = 0;
    bool launched = true;
    for (int n = 0; n < count && launched; n++) {
        const struct tensor *piece = pieces[n];
        int64_t run = values_from_axis(piece, axis);
        launched = LAUNCH(to, SHAPE_OPS, entry, grid1(piece->count), INT(piece->count), INT(run),
                          INT(values_from_axis(joined, axis)), INT(offset),
                          BUFFER(splits ? joined : piece), BUFFER(splits ? piece : joined));
        offset += run;
    }
    return launched;
}

static bool concat(struct launcher *to, const struct op *op) {
    return copy_pieces(to, op, "concat_piece", op->out[0], op->in, op->ins, false);
}

static bool split(struct launcher *to, const struct op *op) {
    return copy_pieces(to, op, "split_piece", op->in[0], op->out, op->outs, true);
}

static bool upsample(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    return LAUNCH(to, SHAPE_OPS, "upsample_forward", grid1(y->count), INT(y->count), INT(x->dim[3]),
                  INT(op->i[0]), BUFFER(x), BUFFER(y));
}

static bool upsample_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dy = op->in[0], *dx = op->out[0];
    return LAUNCH(to, SHAPE_OPS, "upsample_gradient", grid1(dx->count), INT(dx->count),
                  INT(dx->dim[3]), INT(op->i[0]), BUFFER(dy), BUFFER(dx));
}

const struct launch_entry elementwise_launches[] = {
    {"relu_forward", activation_forward, RELU},
    {"relu_gradient", activation_gradient, RELU},
    {"relu6_forward", activation_forward, RELU6},
    {"relu6_gradient", activation_gradient, RELU6},
    {"leaky_forward", activation_forward, LEAKY},
    {"leaky_gradient", activation_gradient, LEAKY},
    {"tanh_forward", activation_forward, TANH},
    {"tanh_gradient", activation_gradient, TANH},
    {"sigmoid_forward", activation_forward, SIGMOID},
    {"sigmoid_gradient", activation_gradient, SIGMOID},
    {"gelu_forward", activation_forward, GELU},
    {"gelu_gradient", activation_gradient, GELU},
    {"dropout_forward", dropout_forward, 0},
    {"dropout_gradient", dropout_gradient, 0},
    {"softmax_forward", softmax_forward, 0},
    {"softmax_gradient", softmax_gradient, 0},
    {"add", add, 0},
    {"copy", copy, 0},
    {"copy_scaled", copy_scaled, 0},
    {"concat", concat, 0},
    {"split", split, 0},
    {"upsample", upsample, 0},
    {"upsample_gradient", upsample_gradient, 0},
    {"", NULL, 0},
};

#endif
