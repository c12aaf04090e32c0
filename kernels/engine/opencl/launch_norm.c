/* launch_norm.c - batch normalisation, alone or fused with an activation, and layer normalisation
 * (norms.cl). */
#include "launch.h"

#ifndef RUNNER_STATIC

#define NORMS "norms.cl"

/* The values of the definition ACTIVATION in norms.cl. */
enum { NO_ACTIVATION, RELU, RELU6 };

/* One work group each. */
static struct grid group_grid(struct launcher *to, int64_t groups) {
    define(to, "GROUP", to->group);
    return in_groups(grid1(mul_saturated(groups, to->group)), to->group, 1, 1);
}

static struct grid channel_grid(struct launcher *to, const struct tensor *x) {
    return group_grid(to, x->dim[1]);
}

static bool batch_norm_forward(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    if (!in_place(op->in[3], op->out[3]) || !in_place(op->in[4], op->out[4])) {
        return lacks(to);
    }
    define(to, "ACTIVATION", to->variant);
    return LAUNCH(to, NORMS, "batch_norm_forward", channel_grid(to, x), INT(x->dim[0]),
                  INT(x->dim[1]), INT(values_from_axis(x, 2)), FLOAT(op->f[0]), FLOAT(op->f[1]),
                  BUFFER(x), BUFFER(op->in[1]), BUFFER(op->in[2]), BUFFER(op->out[0]),
                  BUFFER(op->out[1]), BUFFER(op->out[2]), BUFFER(op->out[3]), BUFFER(op->out[4]));
}

static bool batch_norm_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    define(to, "ACTIVATION", to->variant);
    return LAUNCH(to, NORMS, "batch_norm_gradient", channel_grid(to, x), INT(x->dim[0]),
                  INT(x->dim[1]), INT(values_from_axis(x, 2)), BUFFER(x), BUFFER(op->in[1]),
                  BUFFER(op->in[2]), BUFFER(op->in[3]), BUFFER(op->in[4]), BUFFER(op->in[5]),
                  BUFFER(op->out[0]), BUFFER(op->out[1]), BUFFER(op->out[2]));
}

static bool batch_norm_inference(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    define(to, "ACTIVATION", to->variant);
    return LAUNCH(to, NORMS, "batch_norm_inference", grid1(y->count), INT(y->count), INT(x->dim[1]),
                  INT(values_from_axis(x, 2)), FLOAT(op->f[0]), BUFFER(x), BUFFER(op->in[1]),
                  BUFFER(op->in[2]), BUFFER(op->in[3]), BUFFER(op->in[4]), BUFFER(y));
}

static bool batch_norm_weight_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    return LAUNCH(to, NORMS, "batch_norm_weight_gradient", channel_grid(to, x), INT(x->dim[0]),
                  INT(x->dim[1]), INT(values_from_axis(x, 2)), BUFFER(x), BUFFER(op->in[1]),
                  BUFFER(op->in[2]), BUFFER(op->in[3]), BUFFER(op->out[0]), BUFFER(op->out[1]));
}

/* ---- layer normalisation ---- */

static int64_t length_of(const struct tensor *x) { return x->dim[x->rank - 1]; }

static struct grid row_grid(struct launcher *to, const struct tensor *x) {
    return group_grid(to, x->count / length_of(x));
}

static bool layer_norm_forward(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    return LAUNCH(to, NORMS, "layer_norm_forward", row_grid(to, x), INT(length_of(x)),
                  FLOAT(op->f[0]), BUFFER(x), BUFFER(op->in[1]), BUFFER(op->in[2]),
                  BUFFER(op->out[0]), BUFFER(op->out[1]), BUFFER(op->out[2]));
}

static bool layer_norm_weight_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t length = length_of(x);
    return LAUNCH(to, NORMS, "layer_norm_weight_gradient", grid1(length), INT(x->count / length),
                  INT(length), BUFFER(x), BUFFER(op->in[1]), BUFFER(op->in[2]), BUFFER(op->in[3]),
                  BUFFER(op->out[0]), BUFFER(op->out[1]));
}

static bool layer_norm_input_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    return LAUNCH(to, NORMS, "layer_norm_input_gradient", row_grid(to, x), INT(length_of(x)),
                  BUFFER(x), BUFFER(op->in[1]), BUFFER(op->in[2]), BUFFER(op->in[3]),
                  BUFFER(op->in[4]), BUFFER(op->out[0]));
}

const struct launch_entry norm_launches[] = {
    {"batch_norm_forward", batch_norm_forward, NO_ACTIVATION},
    {"batch_norm_relu_forward", batch_norm_forward, RELU},
    {"batch_norm_relu6_forward", batch_norm_forward, RELU6},
    {"batch_norm_gradient", batch_norm_gradient, NO_ACTIVATION},
    {"batch_norm_relu_gradient", batch_norm_gradient, RELU},
    {"batch_norm_relu6_gradient", batch_norm_gradient, RELU6},
    {"batch_norm_weight_gradient", batch_norm_weight_gradient, 0},
    {"batch_norm_inference", batch_norm_inference, NO_ACTIVATION},
    {"batch_norm_relu_inference", batch_norm_inference, RELU},
    {"batch_norm_relu6_inference", batch_norm_inference, RELU6},
    {"layer_norm_forward", layer_norm_forward, 0},
    {"layer_norm_weight_gradient", layer_norm_weight_gradient, 0},
    {"layer_norm_input_gradient", layer_norm_input_gradient, 0},
    {"", NULL, 0},
};

#endif
