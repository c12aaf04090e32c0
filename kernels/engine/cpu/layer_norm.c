/* layer_norm.c - layer normalisation along the last axis, row by row, and its gradients.
 *
 *   y = n scale + shift, n = (x - mean) rstd, rstd = 1 / sqrt(variance + EPSILON)
 *   dshift = sum of dy, dscale = sum of dy n, over all rows
 *   dx = rstd (g - mean of g - n (mean of g n)), g = dy scale */
#include <math.h>

#include "ops.h"
#include "parallel_for.h"
#include "reductions.h"

static op_run layer_norm_forward_run, layer_norm_weight_gradient_run;
static op_run layer_norm_input_gradient_run;

const struct op_kind layer_norm_kinds[] = {
    {"layer_norm_forward", "x(R..,L) scale[L] shift[L] : y[R*L] mean[R] rstd[R] : : EPSILON",
     .run = layer_norm_forward_run},
    {"layer_norm_weight_gradient", "x(R..,L) dy[R*L] mean[R] rstd[R] : dscale[L] dshift[L]",
     .run = layer_norm_weight_gradient_run},
    {"layer_norm_input_gradient", "x(R..,L) dy[R*L] scale[L] mean[R] rstd[R] : dx[R*L]=dy",
     .run = layer_norm_input_gradient_run},
    {.name = NULL},
};

struct layer_norm {
    const float *x, *dy, *scale, *shift, *mean, *rstd;
    float *y, *new_mean, *new_rstd, *dscale, *dshift;
    int64_t rows, length;
    float epsilon;
};

static void layer_norm_forward_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t row, last;
    split_range(norm->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = norm->x + row * norm->length;
        float *y = norm->y + row * norm->length;
        float mean = hsum8(sum_lanes(x, norm->length)) / (float)norm->length;
        float variance = hsum8(squared_distance_lanes(x, norm->length, mean)) / (float)norm->length;
        float rstd = 1.0f / sqrtf(variance + norm->epsilon);
        norm->new_mean[row] = mean;
        norm->new_rstd[row] = rstd;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 scale = load8_up_to(norm->scale + i, count);
            v8 shift = load8_up_to(norm->shift + i, count);
            v8 normalised = (load8_up_to(x + i, count) - mean) * rstd;
            store8_up_to(y + i, normalised * scale + shift, count);
        }
    }
}

/* Each thread sums a range of columns over all rows. */
static void layer_norm_weight_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t i, last;
    split_range_by_cache_line(norm->length, part, parts, &i, &last);
    for (; i < last; i += LANES) {
        v8 sum = splat8(0.0f), weighted_sum = sum;
        for (int64_t row = 0; row < norm->rows; row++) {
            int64_t at = row * norm->length + i;
            v8 dy = load8_up_to(norm->dy + at, last - i);
            sum += dy;
            weighted_sum +=
                dy * ((load8_up_to(norm->x + at, last - i) - norm->mean[row]) * norm->rstd[row]);
        }
        store8_up_to(norm->dshift + i, sum, last - i);
        store8_up_to(norm->dscale + i, weighted_sum, last - i);
    }
}

static void layer_norm_input_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t row, last;
    split_range(norm->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = norm->x + row * norm->length, *dy = norm->dy + row * norm->length;
        float *dx = norm->y + row * norm->length;
        float mean = norm->mean[row], rstd = norm->rstd[row];
        v8 sum = splat8(0.0f), weighted_sum = sum;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 dy_scaled = load8_up_to(dy + i, count) * load8_up_to(norm->scale + i, count);
            sum += dy_scaled;
            weighted_sum += dy_scaled * (load8_up_to(x + i, count) - mean);
        }
        float mean_grad = hsum8(sum) / (float)norm->length;
        float projection = hsum8(weighted_sum) / (float)norm->length * rstd * rstd;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 dy_scaled = load8_up_to(dy + i, count) * load8_up_to(norm->scale + i, count);
            v8 grad = dy_scaled - mean_grad - (load8_up_to(x + i, count) - mean) * projection;
            store8_up_to(dx + i, grad * rstd, count);
        }
    }
}

static struct layer_norm layer_norm_of(const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t length = x->dim[x->rank - 1];
    return (struct layer_norm){.x = floats(x), .rows = x->count / length, .length = length};
}

static void layer_norm_forward_run(const struct op *op, struct exec_context *exec) {
    struct layer_norm norm = layer_norm_of(op);
    norm.scale = floats(op->in[1]);
    norm.shift = floats(op->in[2]);
    norm.y = floats(op->out[0]);
    norm.new_mean = floats(op->out[1]);
    norm.new_rstd = floats(op->out[2]);
    norm.epsilon = op->f[0];
    parallel_for(exec, norm.rows, op->in[0]->count * 2, layer_norm_forward_part, &norm);
}

static void layer_norm_weight_gradient_run(const struct op *op, struct exec_context *exec) {
    struct layer_norm norm = layer_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.mean = floats(op->in[2]);
    norm.rstd = floats(op->in[3]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    parallel_for(exec, norm.length, op->in[0]->count * 2, layer_norm_weight_gradient_part, &norm);
}

static void layer_norm_input_gradient_run(const struct op *op, struct exec_context *exec) {
    struct layer_norm norm = layer_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.mean = floats(op->in[3]);
    norm.rstd = floats(op->in[4]);
    norm.y = floats(op->out[0]);
    parallel_for(exec, norm.rows, op->in[0]->count * 3, layer_norm_input_gradient_part, &norm);
}
