/* batch_norm.c - batch normalisation: by the batch in training, by what was seen in inference.
 *
 * Mean and squared distance of a slice are taken one after the other while it is in the nearest
 * cache: that reads x once, with the accuracy of two passes. */
#include "batch_norm.h"
#include "sums.h"

#include <math.h>

/* --- slices -------------------------------------------------------------------------------- */

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
    return (struct piece){
        .at = (first / norm->pixels * norm->channels + channel) * norm->pixels + pixel,
        .count = room < left ? room : left,
        .left = left};
}

bool next_piece(const struct batch_norm *norm, struct piece *piece) {
    piece->left -= piece->count;
    piece->at += piece->count + (norm->channels - 1) * norm->pixels;
    piece->count = norm->pixels < piece->left ? norm->pixels : piece->left;
    return piece->left > 0;
}

/* --- sums ---------------------------------------------------------------------------------- */

static int64_t slice_count(const struct batch_norm *norm, int64_t slice) {
    int64_t left = norm->values - slice * SLICE_VALUES;
    return left < SLICE_VALUES ? left : SLICE_VALUES;
}

struct moments {
    double count, mean, squares; /* squares: squared distances from the mean, added up */
};

static void join_moments(struct moments *all, const struct moments *more) {
    double count = all->count + more->count, distance = more->mean - all->mean;
    all->squares += more->squares + distance * distance * all->count * more->count / count;
    all->mean += distance * more->count / count;
    all->count = count;
}

static struct moments slice_moments(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    v8 sum = all8(0.0f), squares = all8(0.0f);
    struct piece piece = first_piece(norm, channel, slice);
    do
        sum += sum_of(norm->x + piece.at, piece.count);
    while (next_piece(norm, &piece));
    double count = (double)slice_count(norm, slice), mean = (double)sum8(sum) / count;
    piece = first_piece(norm, channel, slice);
    do
        squares += squares_of(norm->x + piece.at, piece.count, (float)mean);
    while (next_piece(norm, &piece));
    return (struct moments){count, mean, (double)sum8(squares)};
}

/* --- forward ------------------------------------------------------------------------------- */

struct line line_at(const struct batch_norm *norm, int64_t channel) {
    float shift = norm->shift ? norm->shift[channel] : 0.0f;
    float scale = norm->scale ? norm->scale[channel] : 0.0f;
    return line_of(scale, shift, norm->mean[channel], norm->rstd[channel]);
}

static void set_lane(struct line *line, int64_t lane, float scale, float shift, float mean,
                     float rstd) {
    float slope = scale * rstd;
    line->slope[lane] = slope;
    line->offset[lane] = shift - mean * slope;
}

struct line lines_at(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    struct line line = {all8(0.0f), all8(0.0f)};
    for (int64_t n = channel; n < channel + lanes; n++)
        set_lane(&line, n - channel, norm->scale ? norm->scale[n] : 0.0f,
                 norm->shift ? norm->shift[n] : 0.0f, norm->mean[n], norm->rstd[n]);
    return line;
}

__attribute__((always_inline)) static inline v8 apply(v8 x, const struct line *line,
                                                      enum after after) {
    v8 y = x * line->slope + line->offset;
    if (after != NOTHING)
        y = max8(y, all8(0.0f));
    return after == RELU6 ? min8(y, all8(6.0f)) : y;
}

/* The end of a row is read before its middle is written, since x and y may be the same. */
__attribute__((always_inline)) static inline void apply_row(const float *x, float *y, int64_t count,
                                                            const struct line *line,
                                                            enum after after) {
    if (count < LANES) {
        store8_part(y, apply(load8_part(x, count, 0.0f), line, after), count);
        return;
    }
    v8 end = load8(x + count - LANES);
    for (int64_t i = 0; i + LANES <= count; i += LANES)
        store8(y + i, apply(load8(x + i), line, after));
    store8(y + count - LANES, apply(end, line, after));
}

static void apply_row_of(const float *x, float *y, int64_t count, const struct line *line,
                         enum after after) {
    if (after == RELU6)
        apply_row(x, y, count, line, RELU6);
    else if (after == RELU)
        apply_row(x, y, count, line, RELU);
    else
        apply_row(x, y, count, line, NOTHING);
}

static void apply_slice(const struct batch_norm *norm, int64_t channel, int64_t slice,
                        const struct line *line) {
    struct piece piece = first_piece(norm, channel, slice);
    do
        apply_row_of(norm->x + piece.at, norm->y + piece.at, piece.count, line, norm->after);
    while (next_piece(norm, &piece));
}

/* Writes what the channel's moments say: for the gradient, and for inference later. */
static void finish_channel(const struct batch_norm *norm, int64_t channel,
                           const struct moments *moments) {
    const struct op *op = norm->op;
    float momentum = op->f[0], epsilon = op->f[1];
    double variance = moments->squares / moments->count;
    double unbiased = moments->count > 1.0 ? moments->squares / (moments->count - 1.0) : variance;
    float mean = (float)moments->mean, rstd = (float)(1.0 / sqrt(variance + (double)epsilon));
    norm->new_mean[channel] = mean;
    norm->new_rstd[channel] = rstd;
    floats(op->out[3])[channel] =
        momentum * floats(op->in[3])[channel] + (1.0f - momentum) * mean;
    floats(op->out[4])[channel] =
        momentum * floats(op->in[4])[channel] + (1.0f - momentum) * (float)unbiased;
}

static void forward_channels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    share_of(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel++) {
        struct moments all = slice_moments(norm, channel, 0);
        for (int64_t slice = 1; slice < norm->slices; slice++) {
            struct moments more = slice_moments(norm, channel, slice);
            join_moments(&all, &more);
        }
        finish_channel(norm, channel, &all);
        struct line line = line_at(norm, channel);
        for (int64_t slice = norm->slices - 1; slice >= 0; slice--)
            apply_slice(norm, channel, slice, &line);
    }
}

static void forward_measure(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    share_of(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        struct moments moments = slice_moments(norm, n / norm->slices, n % norm->slices);
        memcpy(norm->slice_sums + 3 * n, &moments, sizeof moments);
    }
}

static void apply_slices(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    share_of(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        struct line line = line_at(norm, n / norm->slices);
        apply_slice(norm, n / norm->slices, n % norm->slices, &line);
    }
}

static void forward_eight(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    const float *x = norm->x + channel;
    float *y = norm->y + channel;
    v8 sum = all8(0.0f), squares = all8(0.0f);
    for (int64_t n = 0; n < norm->samples; n++)
        sum += load8_up_to(x + n * norm->channels, lanes);
    v8 mean = sum / (float)norm->samples;
    for (int64_t n = 0; n < norm->samples; n++)
        squares += square8(load8_up_to(x + n * norm->channels, lanes) - mean);
    for (int64_t lane = 0; lane < lanes; lane++) {
        struct moments moments = {(double)norm->samples, (double)mean[lane], (double)squares[lane]};
        finish_channel(norm, channel + lane, &moments);
    }
    struct line line = lines_at(norm, channel, lanes);
    for (int64_t n = 0; n < norm->samples; n++) {
        v8 value = load8_up_to(x + n * norm->channels, lanes);
        store8_up_to(y + n * norm->channels, apply(value, &line, norm->after), lanes);
    }
}

static void forward_single_pixels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    share_of_values(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel += LANES)
        forward_eight(norm, channel, last - channel < LANES ? last - channel : LANES);
}

/* --- as operations ------------------------------------------------------------------------- */

size_t batch_norm_workspace(const struct op *op, int threads) {
    struct batch_norm norm = batch_norm_of(op);
    if (channels_suffice(&norm, threads))
        return 0;
    return (size_t)(norm.channels * norm.slices) * 3 * sizeof(double);
}

static void forward(const struct op *op, struct scene *scene, enum after after) {
    struct batch_norm norm = batch_norm_of(op);
    norm.scale = floats(op->in[1]);
    norm.shift = floats(op->in[2]);
    norm.y = floats(op->out[0]);
    norm.mean = norm.new_mean = floats(op->out[1]);
    norm.rstd = norm.new_rstd = floats(op->out[2]);
    norm.slice_sums = scene->workspace;
    norm.after = after;
    int64_t work = op->in[0]->count * 2;
    int threads = spread_parts(scene, norm.channels * norm.slices, work);
    if (norm.pixels == 1) {
        spread(scene, norm.channels, work, forward_single_pixels, &norm);
    } else if (threads == 1 || channels_suffice(&norm, pool_threads(scene->pool))) {
        spread(scene, norm.channels, work, forward_channels, &norm);
    } else {
        spread(scene, norm.channels * norm.slices, work, forward_measure, &norm);
        for (int64_t channel = 0; channel < norm.channels; channel++) {
            struct moments all, more;
            for (int64_t slice = 0; slice < norm.slices; slice++) {
                memcpy(slice ? &more : &all,
                       norm.slice_sums + 3 * (channel * norm.slices + slice), sizeof all);
                if (slice)
                    join_moments(&all, &more);
            }
            finish_channel(&norm, channel, &all);
        }
        spread(scene, norm.channels * norm.slices, work, apply_slices, &norm);
    }
}

static void batch_norm_forward_run(const struct op *op, struct scene *scene) {
    forward(op, scene, NOTHING);
}

static void batch_norm_relu_forward_run(const struct op *op, struct scene *scene) {
    forward(op, scene, RELU);
}

static void batch_norm_relu6_forward_run(const struct op *op, struct scene *scene) {
    forward(op, scene, RELU6);
}

static void inference_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    float epsilon = norm->op->f[0];
    int64_t row, last;
    share_of(norm->samples * norm->channels, part, parts, &row, &last);
    for (; row < last; row++) {
        int64_t channel = row % norm->channels;
        float rstd = 1.0f / sqrtf(norm->rstd[channel] + epsilon); /* here, rstd is the variance */
        struct line line =
            line_of(norm->scale[channel], norm->shift[channel], norm->mean[channel], rstd);
        apply_row_of(norm->x + row * norm->pixels, norm->y + row * norm->pixels, norm->pixels,
                     &line, norm->after);
    }
}

static void inference(const struct op *op, struct scene *scene, enum after after) {
    struct batch_norm norm = batch_norm_of(op);
    norm.scale = floats(op->in[1]);
    norm.shift = floats(op->in[2]);
    norm.mean = floats(op->in[3]);
    norm.rstd = floats(op->in[4]);
    norm.y = floats(op->out[0]);
    norm.after = after;
    spread(scene, norm.samples * norm.channels, op->in[0]->count, inference_part, &norm);
}

static void batch_norm_inference_run(const struct op *op, struct scene *scene) {
    inference(op, scene, NOTHING);
}

static void batch_norm_relu_inference_run(const struct op *op, struct scene *scene) {
    inference(op, scene, RELU);
}

static void batch_norm_relu6_inference_run(const struct op *op, struct scene *scene) {
    inference(op, scene, RELU6);
}

const char *check_channels(const struct op *op, int like_x, int whole) {
    const struct tensor *x = op->in[0];
    if (x->rank < 2)
        return "has an operand without channels";
    for (int n = 1; n < op->ins; n++)
        if (op->in[n]->count != (n < like_x ? x->count : x->dim[1]))
            return "has an operand that does not fit its channels";
    for (int n = 0; n < op->outs; n++)
        if (op->out[n]->count != (n == whole ? x->count : x->dim[1]))
            return "has a result that does not fit its channels";
    return NULL;
}

static const char *check_batch_norm_forward(const struct op *op) {
    const char *fault = check_form(op, "fffff", "fffff", 0, 2);
    return fault ? fault : check_channels(op, 1, 0);
}

static const char *check_batch_norm_inference(const struct op *op) {
    const char *fault = check_form(op, "fffff", "f", 0, 1);
    return fault ? fault : check_channels(op, 1, 0);
}

static const struct op_kind batch_norm_forward = {
    "batch_norm_forward", check_batch_norm_forward, batch_norm_workspace, NULL,
    batch_norm_forward_run};
static const struct op_kind batch_norm_relu_forward = {
    "batch_norm_relu_forward", check_batch_norm_forward, batch_norm_workspace, NULL,
    batch_norm_relu_forward_run};
static const struct op_kind batch_norm_relu6_forward = {
    "batch_norm_relu6_forward", check_batch_norm_forward, batch_norm_workspace, NULL,
    batch_norm_relu6_forward_run};
static const struct op_kind batch_norm_inference = {
    "batch_norm_inference", check_batch_norm_inference, NULL, NULL, batch_norm_inference_run};
static const struct op_kind batch_norm_relu_inference = {
    "batch_norm_relu_inference", check_batch_norm_inference, NULL, NULL,
    batch_norm_relu_inference_run};
static const struct op_kind batch_norm_relu6_inference = {
    "batch_norm_relu6_inference", check_batch_norm_inference, NULL, NULL,
    batch_norm_relu6_inference_run};

const struct op_kind *const batch_norm_kinds[] = {
    &batch_norm_forward,
    &batch_norm_relu_forward,
    &batch_norm_relu6_forward,
    &batch_norm_inference,
    &batch_norm_relu_inference,
    &batch_norm_relu6_inference,
    NULL,
};
