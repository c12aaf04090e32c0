/* batch_norm.c - batch normalisation: with the statistics of the batch in training, with running
 * statistics in inference.
 *
 *   y = a((x - mean) rstd scale + shift)       mean, variance: of a channel in the whole batch
 *   rstd = 1 / sqrt(variance + EPSILON)        a: none, relu or relu6
 *   rmean = MOMENTUM rmean + (1 - MOMENTUM) mean, and the same for rvar with the unbiased variance
 *   in inference, mean and variance are rmean and rvar
 *
 * Mean and squared distance of a slice are computed one after the other while it is in the L1
 * cache: that reads x from memory once, with the accuracy of two passes. */
#include "batch_norm.h"

#include <math.h>

#include "reductions.h"

static op_run batch_norm_forward_run, batch_norm_relu_forward_run, batch_norm_relu6_forward_run;
static op_run batch_norm_inference_run, batch_norm_relu_inference_run;
static op_run batch_norm_relu6_inference_run;

#define FORWARD                                                                                    \
    "x(N,C,P..) scale[C] shift[C] rmean[C] rvar[C]"                                                \
    " : y[N*C*P] mean[C] rstd[C] rmean[C]=rmean rvar[C]=rvar : : MOMENTUM EPSILON"
#define INFERENCE "x(N,C,P..) scale[C] shift[C] rmean[C] rvar[C] : y[N*C*P]=x : : EPSILON"

const struct op_kind batch_norm_kinds[] = {
    {"batch_norm_forward", FORWARD, .workspace = batch_norm_workspace,
     .run = batch_norm_forward_run},
    {"batch_norm_relu_forward", FORWARD, .workspace = batch_norm_workspace,
     .run = batch_norm_relu_forward_run},
    {"batch_norm_relu6_forward", FORWARD, .workspace = batch_norm_workspace,
     .run = batch_norm_relu6_forward_run},
    {"batch_norm_inference", INFERENCE, .run = batch_norm_inference_run},
    {"batch_norm_relu_inference", INFERENCE, .run = batch_norm_relu_inference_run},
    {"batch_norm_relu6_inference", INFERENCE, .run = batch_norm_relu6_inference_run},
    {.name = NULL},
};

/* ---- slices ---- */

struct batch_norm batch_norm_of(const struct op *op) {
    const struct tensor *x = op->in[0];
    struct batch_norm norm = {.op = op,
                              .x = floats(x),
                              .samples = x->dim[0],
                              .channels = x->dim[1],
                              .pixels = x->count / (x->dim[0] * x->dim[1])};
    norm.values = norm.samples * norm.pixels;
    norm.slices = (norm.values + SLICE_VALUES - 1) / SLICE_VALUES;
    return norm;
}

struct piece first_piece(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    int64_t first = slice * SLICE_VALUES, left = norm->values - first;
    int64_t pixel = first % norm->pixels, room = norm->pixels - pixel;
    left = left < SLICE_VALUES ? left : SLICE_VALUES;
    return (struct piece){.at = (first / norm->pixels * norm->channels + channel) * norm->pixels +
                                pixel,
                          .count = room < left ? room : left,
                          .left = left};
}

bool next_piece(const struct batch_norm *norm, struct piece *piece) {
    piece->left -= piece->count;
    piece->at += piece->count + (norm->channels - 1) * norm->pixels;
    piece->count = norm->pixels < piece->left ? norm->pixels : piece->left;
    return piece->left > 0;
}

/* ---- moments ---- */

static int64_t slice_count(const struct batch_norm *norm, int64_t slice) {
    int64_t left = norm->values - slice * SLICE_VALUES;
    return left < SLICE_VALUES ? left : SLICE_VALUES;
}

struct moments {
    double count, mean, squares; /* squares: the sum of squared distances from the mean */
};

static void merge_moments(struct moments *total, const struct moments *more) {
    double count = total->count + more->count, distance = more->mean - total->mean;
    total->squares += more->squares + distance * distance * total->count * more->count / count;
    total->mean += distance * more->count / count;
    total->count = count;
}

static struct moments slice_moments(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    v8 sum = splat8(0.0f), squares = splat8(0.0f);
    struct piece piece = first_piece(norm, channel, slice);
    do {
        sum += sum_lanes(norm->x + piece.at, piece.count);
    } while (next_piece(norm, &piece));
    double count = (double)slice_count(norm, slice), mean = (double)hsum8(sum) / count;
    piece = first_piece(norm, channel, slice);
    do {
        squares += squared_distance_lanes(norm->x + piece.at, piece.count, (float)mean);
    } while (next_piece(norm, &piece));
    return (struct moments){count, mean, (double)hsum8(squares)};
}

/* ---- forward ---- */

struct affine affine_of_channel(const struct batch_norm *norm, int64_t channel) {
    float shift = norm->shift ? norm->shift[channel] : 0.0f;
    float scale = norm->scale ? norm->scale[channel] : 0.0f;
    return affine_of(scale, shift, norm->mean[channel], norm->rstd[channel]);
}

static void set_lane(struct affine *affine, int64_t lane, float scale, float shift, float mean,
                     float rstd) {
    float factor = scale * rstd;
    affine->factor[lane] = factor;
    affine->offset[lane] = shift - mean * factor;
}

struct affine affine_of_channels(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    struct affine affine = {splat8(0.0f), splat8(0.0f)};
    for (int64_t n = channel; n < channel + lanes; n++) {
        set_lane(&affine, n - channel, norm->scale ? norm->scale[n] : 0.0f,
                 norm->shift ? norm->shift[n] : 0.0f, norm->mean[n], norm->rstd[n]);
    }
    return affine;
}

ALWAYS_INLINE v8 apply(v8 x, const struct affine *affine, enum activation activation) {
    v8 y = x * affine->factor + affine->offset;
    if (activation != NO_ACTIVATION) {
        y = max8(y, splat8(0.0f));
    }
    return activation == RELU6 ? min8(y, splat8(6.0f)) : y;
}

/* The end of a row is read before its middle is written, since x and y may be the same memory. */
ALWAYS_INLINE void apply_row(const float *x, float *y, int64_t count, const struct affine *affine,
                             enum activation activation) {
    if (count < LANES) {
        store8_part(y, apply(load8_part(x, count, 0.0f), affine, activation), count);
        return;
    }
    v8 end = load8(x + count - LANES);
    for (int64_t i = 0; i + LANES <= count; i += LANES) {
        store8(y + i, apply(load8(x + i), affine, activation));
    }
    store8(y + count - LANES, apply(end, affine, activation));
}

static void apply_row_of(const float *x, float *y, int64_t count, const struct affine *affine,
                         enum activation activation) {
    if (activation == RELU6) {
        apply_row(x, y, count, affine, RELU6);
    } else if (activation == RELU) {
        apply_row(x, y, count, affine, RELU);
    } else {
        apply_row(x, y, count, affine, NO_ACTIVATION);
    }
}

static void apply_slice(const struct batch_norm *norm, int64_t channel, int64_t slice,
                        const struct affine *affine) {
    struct piece piece = first_piece(norm, channel, slice);
    do {
        apply_row_of(norm->x + piece.at, norm->y + piece.at, piece.count, affine, norm->activation);
    } while (next_piece(norm, &piece));
}

/* Writes mean and rstd of a channel for the gradient, and its running statistics for inference. */
static void finish_channel(const struct batch_norm *norm, int64_t channel,
                           const struct moments *moments) {
    const struct op *op = norm->op;
    float momentum = op->f[0], epsilon = op->f[1];
    double variance = moments->squares / moments->count;
    double unbiased = moments->count > 1.0 ? moments->squares / (moments->count - 1.0) : variance;
    float mean = (float)moments->mean, rstd = (float)(1.0 / sqrt(variance + (double)epsilon));
    norm->new_mean[channel] = mean;
    norm->new_rstd[channel] = rstd;
    floats(op->out[3])[channel] = momentum * floats(op->in[3])[channel] + (1.0f - momentum) * mean;
    floats(op->out[4])[channel] =
        momentum * floats(op->in[4])[channel] + (1.0f - momentum) * (float)unbiased;
}

static void forward_channels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    split_range(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel++) {
        struct moments total = slice_moments(norm, channel, 0);
        for (int64_t slice = 1; slice < norm->slices; slice++) {
            struct moments more = slice_moments(norm, channel, slice);
            merge_moments(&total, &more);
        }
        finish_channel(norm, channel, &total);
        struct affine affine = affine_of_channel(norm, channel);
        for (int64_t slice = norm->slices - 1; slice >= 0; slice--) {
            apply_slice(norm, channel, slice, &affine);
        }
    }
}

static void forward_moments(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    split_range(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        struct moments moments = slice_moments(norm, n / norm->slices, n % norm->slices);
        memcpy(norm->slice_sums + 3 * n, &moments, sizeof moments);
    }
}

static void apply_slices(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    split_range(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        struct affine affine = affine_of_channel(norm, n / norm->slices);
        apply_slice(norm, n / norm->slices, n % norm->slices, &affine);
    }
}

static void forward_eight_channels(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    const float *x = norm->x + channel;
    float *y = norm->y + channel;
    v8 sum = splat8(0.0f), squares = splat8(0.0f);
    for (int64_t n = 0; n < norm->samples; n++) {
        sum += load8_up_to(x + n * norm->channels, lanes);
    }
    v8 mean = sum / (float)norm->samples;
    for (int64_t n = 0; n < norm->samples; n++) {
        squares += square8(load8_up_to(x + n * norm->channels, lanes) - mean);
    }
    for (int64_t lane = 0; lane < lanes; lane++) {
        struct moments moments = {(double)norm->samples, (double)mean[lane], (double)squares[lane]};
        finish_channel(norm, channel + lane, &moments);
    }
    struct affine affine = affine_of_channels(norm, channel, lanes);
    for (int64_t n = 0; n < norm->samples; n++) {
        v8 value = load8_up_to(x + n * norm->channels, lanes);
        store8_up_to(y + n * norm->channels, apply(value, &affine, norm->activation), lanes);
    }
}

static void forward_single_pixels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    split_range_by_cache_line(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel += LANES) {
        forward_eight_channels(norm, channel, last - channel < LANES ? last - channel : LANES);
    }
}

/* ---- operations ---- */

size_t batch_norm_workspace(const struct op *op, int threads) {
    struct batch_norm norm = batch_norm_of(op);
    if (channels_are_enough(&norm, threads)) {
        return 0;
    }
    return (size_t)(norm.channels * norm.slices) * 3 * sizeof(double);
}

static void forward(const struct op *op, struct exec_context *exec, enum activation activation) {
    struct batch_norm norm = batch_norm_of(op);
    norm.scale = floats(op->in[1]);
    norm.shift = floats(op->in[2]);
    norm.y = floats(op->out[0]);
    norm.mean = norm.new_mean = floats(op->out[1]);
    norm.rstd = norm.new_rstd = floats(op->out[2]);
    norm.slice_sums = exec->workspace;
    norm.activation = activation;
    int64_t values = op->in[0]->count * 2;
    int threads = parallel_for_parts(exec, norm.channels * norm.slices, values);
    if (norm.pixels == 1) {
        parallel_for(exec, norm.channels, values, forward_single_pixels, &norm);
    } else if (threads == 1 || channels_are_enough(&norm, thread_pool_size(exec->pool))) {
        parallel_for(exec, norm.channels, values, forward_channels, &norm);
    } else {
        parallel_for(exec, norm.channels * norm.slices, values, forward_moments, &norm);
        for (int64_t channel = 0; channel < norm.channels; channel++) {
            struct moments total, more;
            for (int64_t slice = 0; slice < norm.slices; slice++) {
                memcpy(slice ? &more : &total,
                       norm.slice_sums + 3 * (channel * norm.slices + slice), sizeof total);
                if (slice) {
                    merge_moments(&total, &more);
                }
            }
            finish_channel(&norm, channel, &total);
        }
        parallel_for(exec, norm.channels * norm.slices, values, apply_slices, &norm);
    }
}

static void batch_norm_forward_run(const struct op *op, struct exec_context *exec) {
    forward(op, exec, NO_ACTIVATION);
}

static void batch_norm_relu_forward_run(const struct op *op, struct exec_context *exec) {
    forward(op, exec, RELU);
}

static void batch_norm_relu6_forward_run(const struct op *op, struct exec_context *exec) {
    forward(op, exec, RELU6);
}

static void inference_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    float epsilon = norm->op->f[0];
    int64_t row, last;
    split_range(norm->samples * norm->channels, part, parts, &row, &last);
    for (; row < last; row++) {
        int64_t channel = row % norm->channels;
        float rstd = 1.0f / sqrtf(norm->rstd[channel] +
                                  epsilon); /* norm->rstd is the running variance here */
        struct affine affine =
            affine_of(norm->scale[channel], norm->shift[channel], norm->mean[channel], rstd);
        apply_row_of(norm->x + row * norm->pixels, norm->y + row * norm->pixels, norm->pixels,
                     &affine, norm->activation);
    }
}

static void inference(const struct op *op, struct exec_context *exec, enum activation activation) {
    struct batch_norm norm = batch_norm_of(op);
    norm.scale = floats(op->in[1]);
    norm.shift = floats(op->in[2]);
    norm.mean = floats(op->in[3]);
    norm.rstd = floats(op->in[4]);
    norm.y = floats(op->out[0]);
    norm.activation = activation;
    parallel_for(exec, norm.samples * norm.channels, op->in[0]->count, inference_part, &norm);
}

static void batch_norm_inference_run(const struct op *op, struct exec_context *exec) {
    inference(op, exec, NO_ACTIVATION);
}

static void batch_norm_relu_inference_run(const struct op *op, struct exec_context *exec) {
    inference(op, exec, RELU);
}

static void batch_norm_relu6_inference_run(const struct op *op, struct exec_context *exec) {
    inference(op, exec, RELU6);
}
