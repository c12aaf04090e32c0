/* launch_training.c - losses, accuracy, and the optimizers (losses.cl, optimizers.cl). */
#include "launch.h"

#ifndef RUNNER_STATIC

#define LOSSES "losses.cl"
#define OPTIMIZERS "optimizers.cl"

/* x is (rows, classes). */
static int64_t classes_of(const struct tensor *x) { return x->rank > 0 ? x->dim[x->rank - 1] : 1; }

static bool softmax_cross_entropy(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t classes = classes_of(x), rows = x->count / classes;
    return scratch(to, SLOT_A, rows) &&
           LAUNCH(to, LOSSES, "softmax_cross_entropy", grid1(rows), INT(rows), INT(classes),
                  BUFFER(x), BUFFER(op->in[1]), BUFFER(op->out[0]), SCRATCH(SLOT_A)) &&
           LAUNCH(to, LOSSES, "mean_loss", in_groups(grid1(1), 1, 1, 1), INT(rows), SCRATCH(SLOT_A),
                  BUFFER(op->out[1]));
}

static bool softmax_cross_entropy_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t classes = classes_of(x), rows = x->count / classes;
    return LAUNCH(to, LOSSES, "softmax_cross_entropy_gradient", grid2(rows, classes), INT(rows),
                  INT(classes), BUFFER(x), BUFFER(op->in[1]), BUFFER(op->out[0]));
}

/* x are probabilities. */
static bool cross_entropy(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t rows = op->in[1]->count;
    return scratch(to, SLOT_A, rows) &&
           LAUNCH(to, LOSSES, "cross_entropy", grid1(rows), INT(rows), INT(x->count / rows),
                  BUFFER(x), BUFFER(op->in[1]), SCRATCH(SLOT_A)) &&
           LAUNCH(to, LOSSES, "mean_loss", in_groups(grid1(1), 1, 1, 1), INT(rows), SCRATCH(SLOT_A),
                  BUFFER(op->out[0]));
}

static bool cross_entropy_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t rows = op->in[1]->count, classes = x->count / rows;
    return LAUNCH(to, LOSSES, "cross_entropy_gradient", grid2(rows, classes), INT(rows),
                  INT(classes), BUFFER(x), BUFFER(op->in[1]), BUFFER(op->out[0]));
}

/* A loss over values: the mean of what `entry` makes of each. */
static bool value_loss(struct launcher *to, const struct op *op, const char *entry) {
    const struct tensor *x = op->in[0];
    define(to, "GROUP", to->group);
    return scratch(to, SLOT_A, x->count) &&
           LAUNCH(to, LOSSES, entry, grid1(x->count), INT(x->count), BUFFER(x), BUFFER(op->in[1]),
                  SCRATCH(SLOT_A)) &&
           LAUNCH(to, LOSSES, "mean_of_values", in_groups(grid1(to->group), to->group, 1, 1),
                  INT(x->count), SCRATCH(SLOT_A), BUFFER(op->out[0]));
}

static bool value_loss_gradient(struct launcher *to, const struct op *op, const char *entry) {
    const struct tensor *x = op->in[0];
    return LAUNCH(to, LOSSES, entry, grid1(x->count), INT(x->count), BUFFER(x), BUFFER(op->in[1]),
                  BUFFER(op->out[0]));
}

static bool mean_squared_error(struct launcher *to, const struct op *op) {
    return value_loss(to, op, "squared_error");
}

static bool mean_squared_error_gradient(struct launcher *to, const struct op *op) {
    return value_loss_gradient(to, op, "squared_error_gradient");
}

static bool binary_cross_entropy(struct launcher *to, const struct op *op) {
    return value_loss(to, op, "binary_cross_entropy");
}

static bool binary_cross_entropy_gradient(struct launcher *to, const struct op *op) {
    return value_loss_gradient(to, op, "binary_cross_entropy_gradient");
}

static bool td_target(struct launcher *to, const struct op *op) {
    int64_t rows = op->in[2]->count;
    return LAUNCH(to, LOSSES, "td_target", grid1(rows), INT(rows), INT(op->in[0]->count / rows),
                  FLOAT(op->f[0]), BUFFER(op->in[0]), BUFFER(op->in[1]), BUFFER(op->in[2]),
                  BUFFER(op->in[3]), BUFFER(op->out[0]));
}

static bool accuracy(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t classes = classes_of(x);
    return LAUNCH(to, LOSSES, "accuracy", in_groups(grid1(1), 1, 1, 1), INT(x->count / classes),
                  INT(classes), BUFFER(x), BUFFER(op->in[1]), BUFFER(op->out[0]));
}

static bool sgd(struct launcher *to, const struct op *op) {
    const struct tensor *p = op->in[0];
    if (!in_place(p, op->out[0])) {
        return lacks(to);
    }
    return LAUNCH(to, OPTIMIZERS, "sgd", grid1(p->count), INT(p->count), FLOAT(op->f[0]),
                  FLOAT(op->f[1]), BUFFER(p), BUFFER(op->in[1]));
}

static bool momentum(struct launcher *to, const struct op *op) {
    const struct tensor *p = op->in[0];
    if (!in_place(p, op->out[0]) || !in_place(op->in[2], op->out[1])) {
        return lacks(to);
    }
    return LAUNCH(to, OPTIMIZERS, "momentum", grid1(p->count), INT(p->count), FLOAT(op->f[0]),
                  FLOAT(op->f[1]), FLOAT(op->f[2]), BUFFER(p), BUFFER(op->in[1]),
                  BUFFER(op->in[2]));
}

static bool adam(struct launcher *to, const struct op *op) {
    const struct tensor *p = op->in[0];
    if (!in_place(p, op->out[0]) || !in_place(op->in[2], op->out[1]) ||
        !in_place(op->in[3], op->out[2])) {
        return lacks(to);
    }
    return LAUNCH(to, OPTIMIZERS, "adam", grid1(p->count), INT(p->count), FLOAT(op->f[0]),
                  FLOAT(op->f[1]), FLOAT(op->f[2]), FLOAT(op->f[3]), BIAS_CORRECTION, BUFFER(p),
                  BUFFER(op->in[1]), BUFFER(op->in[2]), BUFFER(op->in[3]));
}

static bool adamw(struct launcher *to, const struct op *op) {
    const struct tensor *p = op->in[0];
    if (!in_place(p, op->out[0]) || !in_place(op->in[2], op->out[1]) ||
        !in_place(op->in[3], op->out[2])) {
        return lacks(to);
    }
    return LAUNCH(to, OPTIMIZERS, "adamw", grid1(p->count), INT(p->count), FLOAT(op->f[0]),
                  FLOAT(op->f[1]), FLOAT(op->f[2]), FLOAT(op->f[3]), BIAS_CORRECTION,
                  FLOAT(op->f[4]), FLOAT(op->f[5]), FLOAT(op->f[6]), BUFFER(p), BUFFER(op->in[1]),
                  BUFFER(op->in[2]), BUFFER(op->in[3]), BUFFER(op->in[4]));
}

enum { NORM_GROUPS = 64 };

static bool squared_norm(struct launcher *to, const struct op *op) {
    const struct tensor *g = op->in[0], *total = op->out[0];
    int64_t group = to->group;
    define(to, "GROUP", group);
    return scratch(to, SLOT_A, NORM_GROUPS) &&
           LAUNCH(to, OPTIMIZERS, "squared_norm_parts",
                  in_groups(grid1(NORM_GROUPS * group), group, 1, 1), INT(g->count), BUFFER(g),
                  SCRATCH(SLOT_A)) &&
           LAUNCH(to, OPTIMIZERS, "squared_norm_total", in_groups(grid1(1), 1, 1, 1),
                  INT(NORM_GROUPS), INT(op->ins == 2), SCRATCH(SLOT_A),
                  BUFFER(op->ins == 2 ? op->in[1] : total), BUFFER(total));
}

const struct launch_entry training_launches[] = {
    {"softmax_cross_entropy", softmax_cross_entropy, 0},
    {"softmax_cross_entropy_gradient", softmax_cross_entropy_gradient, 0},
    {"cross_entropy", cross_entropy, 0},
    {"cross_entropy_gradient", cross_entropy_gradient, 0},
    {"mean_squared_error", mean_squared_error, 0},
    {"mean_squared_error_gradient", mean_squared_error_gradient, 0},
    {"binary_cross_entropy", binary_cross_entropy, 0},
    {"binary_cross_entropy_gradient", binary_cross_entropy_gradient, 0},
    {"td_target", td_target, 0},
    {"accuracy", accuracy, 0},
    {"sgd", sgd, 0},
    {"momentum", momentum, 0},
    {"adam", adam, 0},
    {"adamw", adamw, 0},
    {"squared_norm", squared_norm, 0},
    {"squared_norm_add", squared_norm, 0},
    {"", NULL, 0},
};

#endif
