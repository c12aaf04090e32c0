/* launch_training.c - the loss, accuracy, and the optimizers (losses.cl, optimizers.cl). */
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

const struct launch_entry training_launches[] = {
    {"softmax_cross_entropy", softmax_cross_entropy, 0},
    {"softmax_cross_entropy_gradient", softmax_cross_entropy_gradient, 0},
    {"accuracy", accuracy, 0},
    {"sgd", sgd, 0},
    {"momentum", momentum, 0},
    {"adam", adam, 0},
    {"", NULL, 0},
};

#endif
