/* batch_norm_gradient.c - the gradients of batch normalisation and of the activation fused with it.
 *
 *   g = dy where the activation passed its input, n = (x - mean) rstd
 *   dshift = sum of g, dscale = sum of g n, over a channel of M values
 *   dx = rstd scale (g - (dshift + n dscale) / M)
 *
 * Both gradients need the same two sums over a channel: of dy, and of dy * (x - mean). */
#include "batch_norm.h"

static op_run batch_norm_weight_gradient_run, batch_norm_gradient_run;
static op_run batch_norm_relu_gradient_run, batch_norm_relu6_gradient_run;

/* Both gradients while a channel is in the cache. */
#define BOTH                                                                                       \
    "x(N,C,P..) dy[N*C*P] scale[C] shift[C] mean[C] rstd[C] : dscale[C] dshift[C] dx[N*C*P]=dy"

const struct op_kind batch_norm_gradient_kinds[] = {
    {"batch_norm_weight_gradient", "x(N,C,P..) dy[N*C*P] mean[C] rstd[C] : dscale[C] dshift[C]",
     .workspace = batch_norm_workspace, .run = batch_norm_weight_gradient_run},
    {"batch_norm_gradient", BOTH, .workspace = batch_norm_workspace,
     .run = batch_norm_gradient_run},
    {"batch_norm_relu_gradient", BOTH, .workspace = batch_norm_workspace,
     .run = batch_norm_relu_gradient_run},
    {"batch_norm_relu6_gradient", BOTH, .workspace = batch_norm_workspace,
     .run = batch_norm_relu6_gradient_run},
    {.name = NULL},
};

/* Sums of dy, and of dy * (x - mean). */
struct grad_sums {
    double sum, weighted_sum;
};

/* Passes dy only where the fused activation passed its input. */
ALWAYS_INLINE v8 mask_by_activation(v8 dy, v8 x, const struct affine *affine,
                                    enum activation activation) {
    if (activation == NO_ACTIVATION) {
        return dy;
    }
    v8 y = x * affine->factor + affine->offset;
    return mask8(activation == RELU ? y > 0.0f : (y > 0.0f) & (y < 6.0f), dy);
}

ALWAYS_INLINE void add_grad_sums(const float *x, const float *dy, int64_t count, float mean,
                                 const struct affine *affine, enum activation activation, v8 *sum,
                                 v8 *weighted_sum) {
    v8 p = splat8(0.0f), q = p, w = p, z = p;
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        v8 x0 = load8(x + i), x1 = load8(x + i + LANES);
        v8 g0 = mask_by_activation(load8(dy + i), x0, affine, activation);
        v8 g1 = mask_by_activation(load8(dy + i + LANES), x1, affine, activation);
        p += g0;
        q += g1;
        w += g0 * (x0 - mean);
        z += g1 * (x1 - mean);
    }
    if (i + LANES <= count) {
        v8 x0 = load8(x + i), g0 = mask_by_activation(load8(dy + i), x0, affine, activation);
        p += g0;
        w += g0 * (x0 - mean);
        i += LANES;
    }
    if (i < count) {
        bool overlaps = count >= LANES;
        v8 x0 = overlaps ? load8(x + count - LANES) : load8_part(x, count, 0.0f);
        v8 g0 = overlaps ? mask8(tail_mask8(count), load8(dy + count - LANES))
                         : load8_part(dy, count, 0.0f);
        g0 = mask_by_activation(g0, x0, affine, activation);
        q += g0;
        z += g0 * (x0 - mean);
    }
    *sum += p + q;
    *weighted_sum += w + z;
}

static struct grad_sums slice_grad_sums(const struct batch_norm *norm, int64_t channel,
                                        int64_t slice) {
    v8 sum = splat8(0.0f), weighted_sum = sum;
    struct affine affine = affine_of_channel(norm, channel);
    float mean = norm->mean[channel];
    struct piece piece = first_piece(norm, channel, slice);
    do {
        const float *x = norm->x + piece.at, *dy = norm->dy + piece.at;
        if (norm->activation == RELU6) {
            add_grad_sums(x, dy, piece.count, mean, &affine, RELU6, &sum, &weighted_sum);
        } else if (norm->activation == RELU) {
            add_grad_sums(x, dy, piece.count, mean, &affine, RELU, &sum, &weighted_sum);
        } else {
            add_grad_sums(x, dy, piece.count, mean, &affine, NO_ACTIVATION, &sum, &weighted_sum);
        }
    } while (next_piece(norm, &piece));
    return (struct grad_sums){(double)hsum8(sum), (double)hsum8(weighted_sum)};
}

static void finish_grad_sums(const struct batch_norm *norm, int64_t channel,
                             const struct grad_sums *sums) {
    norm->dshift[channel] = (float)sums->sum;
    norm->dscale[channel] = (float)(sums->weighted_sum * (double)norm->rstd[channel]);
}

/* dx = dy_factor * dy + x_factor * (x - mean) + constant: the last two terms are the influence of x
 * on the mean and the standard deviation. */
struct input_grad {
    v8 dy_factor, x_factor, constant, mean;
};

ALWAYS_INLINE v8 input_grad8(v8 x, v8 dy, const struct input_grad *grad,
                             const struct affine *affine, enum activation activation) {
    v8 masked = mask_by_activation(dy, x, affine, activation);
    return masked * grad->dy_factor + ((x - grad->mean) * grad->x_factor + grad->constant);
}

ALWAYS_INLINE void input_grad_row(const float *x, const float *dy, float *dx, int64_t count,
                                  const struct input_grad *grad, const struct affine *affine,
                                  enum activation activation) {
    if (count < LANES) {
        v8 all_x = load8_part(x, count, 0.0f), all_dy = load8_part(dy, count, 0.0f);
        store8_part(dx, input_grad8(all_x, all_dy, grad, affine, activation), count);
        return;
    }
    v8 end =
        input_grad8(load8(x + count - LANES), load8(dy + count - LANES), grad, affine, activation);
    for (int64_t i = 0; i + LANES <= count; i += LANES) {
        store8(dx + i, input_grad8(load8(x + i), load8(dy + i), grad, affine, activation));
    }
    store8(dx + count - LANES, end);
}

static struct input_grad input_grad_of(const struct batch_norm *norm, v8 scale, v8 mean, v8 rstd,
                                       v8 dscale, v8 dshift) {
    v8 dy_factor = scale * rstd, factor = dy_factor / (float)norm->values;
    return (struct input_grad){dy_factor, -factor * rstd * dscale, -factor * dshift, mean};
}

static void input_grad_slice(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    struct input_grad grad = input_grad_of(
        norm, splat8(norm->scale[channel]), splat8(norm->mean[channel]),
        splat8(norm->rstd[channel]), splat8(norm->dscale[channel]), splat8(norm->dshift[channel]));
    struct affine affine = affine_of_channel(norm, channel);
    struct piece piece = first_piece(norm, channel, slice);
    do {
        const float *x = norm->x + piece.at, *dy = norm->dy + piece.at;
        float *dx = norm->y + piece.at;
        if (norm->activation == RELU6) {
            input_grad_row(x, dy, dx, piece.count, &grad, &affine, RELU6);
        } else if (norm->activation == RELU) {
            input_grad_row(x, dy, dx, piece.count, &grad, &affine, RELU);
        } else {
            input_grad_row(x, dy, dx, piece.count, &grad, &affine, NO_ACTIVATION);
        }
    } while (next_piece(norm, &piece));
}

static void gradient_channels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    split_range(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel++) {
        struct grad_sums total = {0.0, 0.0};
        for (int64_t slice = 0; slice < norm->slices; slice++) {
            struct grad_sums more = slice_grad_sums(norm, channel, slice);
            total.sum += more.sum;
            total.weighted_sum += more.weighted_sum;
        }
        finish_grad_sums(norm, channel, &total);
        for (int64_t slice = norm->slices - 1; slice >= 0 && norm->y; slice--) {
            input_grad_slice(norm, channel, slice);
        }
    }
}

static v8 mask_by_activation_of(v8 dy, v8 x, const struct affine *affine,
                                enum activation activation) {
    return activation == RELU6  ? mask_by_activation(dy, x, affine, RELU6)
           : activation == RELU ? mask_by_activation(dy, x, affine, RELU)
                                : dy;
}

/* Eight channels of one pixel each: dscale, dshift, and dx unless norm->y is NULL. */
static void gradient_eight_channels(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    struct affine affine = affine_of_channels(norm, channel, lanes);
    v8 sum = splat8(0.0f), weighted_sum = sum, mean = load8_up_to(norm->mean + channel, lanes);
    for (int64_t n = 0; n < norm->samples; n++) {
        int64_t at = n * norm->channels + channel;
        v8 x = load8_up_to(norm->x + at, lanes), dy = load8_up_to(norm->dy + at, lanes);
        dy = mask_by_activation_of(dy, x, &affine, norm->activation);
        sum += dy;
        weighted_sum += dy * (x - mean);
    }
    v8 rstd = load8_up_to(norm->rstd + channel, lanes), dscale = weighted_sum * rstd;
    store8_up_to(norm->dshift + channel, sum, lanes);
    store8_up_to(norm->dscale + channel, dscale, lanes);
    if (norm->y == NULL) {
        return;
    }
    v8 scale = load8_up_to(norm->scale + channel, lanes);
    struct input_grad grad = input_grad_of(norm, scale, mean, rstd, dscale, sum);
    for (int64_t n = 0; n < norm->samples; n++) {
        int64_t at = n * norm->channels + channel;
        v8 x = load8_up_to(norm->x + at, lanes), dy = load8_up_to(norm->dy + at, lanes);
        dy = mask_by_activation_of(dy, x, &affine, norm->activation);
        store8_up_to(norm->y + at, input_grad8(x, dy, &grad, &affine, NO_ACTIVATION), lanes);
    }
}

static void gradient_single_pixels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    split_range_by_cache_line(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel += LANES) {
        gradient_eight_channels(norm, channel, last - channel < LANES ? last - channel : LANES);
    }
}

static void gradient_sums(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    split_range(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        struct grad_sums sums = slice_grad_sums(norm, n / norm->slices, n % norm->slices);
        memcpy(norm->slice_sums + 3 * n, &sums, sizeof sums);
    }
}

static void input_grad_slices(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    split_range(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        input_grad_slice(norm, n / norm->slices, n % norm->slices);
    }
}

/* ---- operations ---- */

/* Computes dscale and dshift, and dx unless norm->y is NULL. */
static void gradient(struct batch_norm *norm, struct exec_context *exec) {
    norm->slice_sums = exec->workspace;
    int64_t values = norm->op->in[0]->count * 2, slices = norm->channels * norm->slices;
    int threads = parallel_for_parts(exec, slices, values);
    if (norm->pixels == 1) {
        parallel_for(exec, norm->channels, values, gradient_single_pixels, norm);
        return;
    }
    if (threads == 1 || channels_are_enough(norm, thread_pool_size(exec->pool))) {
        parallel_for(exec, norm->channels, values, gradient_channels, norm);
        return;
    }
    parallel_for(exec, slices, values, gradient_sums, norm);
    for (int64_t channel = 0; channel < norm->channels; channel++) {
        struct grad_sums total = {0.0, 0.0}, more;
        for (int64_t slice = 0; slice < norm->slices; slice++) {
            memcpy(&more, norm->slice_sums + 3 * (channel * norm->slices + slice), sizeof more);
            total.sum += more.sum;
            total.weighted_sum += more.weighted_sum;
        }
        finish_grad_sums(norm, channel, &total);
    }
    if (norm->y) {
        parallel_for(exec, slices, values, input_grad_slices, norm);
    }
}

static void batch_norm_weight_gradient_run(const struct op *op, struct exec_context *exec) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.mean = floats(op->in[2]);
    norm.rstd = floats(op->in[3]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    gradient(&norm, exec);
}

static void both_gradients(const struct op *op, struct exec_context *exec,
                           enum activation activation) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.shift = floats(op->in[3]);
    norm.mean = floats(op->in[4]);
    norm.rstd = floats(op->in[5]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    norm.y = floats(op->out[2]);
    norm.activation = activation;
    gradient(&norm, exec);
}

static void batch_norm_gradient_run(const struct op *op, struct exec_context *exec) {
    both_gradients(op, exec, NO_ACTIVATION);
}

static void batch_norm_relu_gradient_run(const struct op *op, struct exec_context *exec) {
    both_gradients(op, exec, RELU);
}

static void batch_norm_relu6_gradient_run(const struct op *op, struct exec_context *exec) {
    both_gradients(op, exec, RELU6);
}
