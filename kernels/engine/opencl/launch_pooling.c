/* launch_pooling.c - pooling and its gradients (pooling.cl). */
#include "launch.h"

#ifndef RUNNER_STATIC

#define POOLING "pooling.cl"

/* The arguments that all kernels over windows begin with. x is (N, C, H, W), y is (N, C, OH,
 * OW). */
#define POOLING_SHAPE(op, x, y)                                                                    \
    INT((x)->dim[0] * (x)->dim[1]), INT((x)->dim[2]), INT((x)->dim[3]), INT((y)->dim[2]),          \
        INT((y)->dim[3]), INT((op)->i[0]), INT((op)->i[1]), INT((op)->i[2]), INT((op)->i[3]),      \
        INT((op)->i[4]), INT((op)->i[5])

/* One work item per pixel of an image. */
static struct grid pixel_grid(const struct tensor *image) {
    return grid3(image->dim[3], image->dim[2], image->dim[0] * image->dim[1]);
}

static bool max_pool_forward(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    return LAUNCH(to, POOLING, "max_pool_forward", pixel_grid(y), POOLING_SHAPE(op, x, y),
                  BUFFER(x), BUFFER(y), BUFFER(op->out[1]));
}

static bool max_pool_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *where = op->in[0], *dy = op->in[1], *dx = op->out[0];
    return LAUNCH(to, POOLING, "max_pool_gradient", pixel_grid(dx), POOLING_SHAPE(op, dx, dy),
                  BUFFER(where), BUFFER(dy), BUFFER(dx));
}

static bool avg_pool_forward(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    return LAUNCH(to, POOLING, "avg_pool_forward", pixel_grid(y), POOLING_SHAPE(op, x, y),
                  BUFFER(x), BUFFER(y));
}

static bool avg_pool_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dy = op->in[0], *dx = op->out[0];
    return LAUNCH(to, POOLING, "avg_pool_gradient", pixel_grid(dx), POOLING_SHAPE(op, dx, dy),
                  BUFFER(dy), BUFFER(dx));
}

static bool global_avg_pool_forward(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    return LAUNCH(to, POOLING, "global_avg_pool_forward", grid1(y->count), INT(y->count),
                  INT(values_from_axis(x, 2)), BUFFER(x), BUFFER(y));
}

static bool global_avg_pool_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dy = op->in[0], *dx = op->out[0];
    int64_t pixels = values_from_axis(dx, 2);
    return LAUNCH(to, POOLING, "global_avg_pool_gradient", grid2(pixels, dy->count), INT(dy->count),
                  INT(pixels), BUFFER(dy), BUFFER(dx));
}

const struct launch_entry pooling_launches[] = {
    {"max_pool_forward", max_pool_forward, 0},
    {"max_pool_gradient", max_pool_gradient, 0},
    {"avg_pool_forward", avg_pool_forward, 0},
    {"avg_pool_gradient", avg_pool_gradient, 0},
    {"global_avg_pool_forward", global_avg_pool_forward, 0},
    {"global_avg_pool_gradient", global_avg_pool_gradient, 0},
    {"", NULL, 0},
};

#endif
