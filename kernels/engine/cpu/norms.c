/* norms.c - batch normalisation and layer normalisation, and what they pass back.
 *
 * These operations wait for memory, so passes over it are what counts. A channel is cut into slices
 * that fit the nearest cache; mean and squared distance of a slice are taken one after the other
 * while it is there, and slices are put together in double precision. That reads x once, with the
 * accuracy of two passes. Slices depend on the shape alone, so results do not depend on threads.
 *
 * Where there are enough channels, a thread keeps a channel for itself and normalises it while it
 * is still in a cache; where there are few, all threads first measure slices, then write them. */
#include "check.h"
#include "ops.h"
#include "spread.h"
#include "vector.h"

#include <math.h>

enum { SLICE_VALUES = 8192 };

/* What follows a batch norm in the same pass. */
enum after { NOTHING, RELU, RELU6 };

struct batch_norm {
    const struct op *op;
    const float *x, *dy, *scale, *shift, *mean, *rstd;
    float *y; /* or dx */
    float *new_mean, *new_rstd, *dscale, *dshift;
    int64_t samples, channels, pixels, values, slices; /* values: of one channel */
    double *slice_sums;                                /* three a slice */
    enum after after;
};

/* --- slices -------------------------------------------------------------------------------- */

/* A piece of a slice that lies without gaps. */
struct piece {
    int64_t at, count, left;
};

static struct piece first_piece(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    int64_t first = slice * SLICE_VALUES, left = norm->values - first;
    int64_t pixel = first % norm->pixels, room = norm->pixels - pixel;
    left = left < SLICE_VALUES ? left : SLICE_VALUES;
    return (struct piece){
        .at = (first / norm->pixels * norm->channels + channel) * norm->pixels + pixel,
        .count = room < left ? room : left,
        .left = left};
}

static bool next_piece(const struct batch_norm *norm, struct piece *piece) {
    piece->left -= piece->count;
    piece->at += piece->count + (norm->channels - 1) * norm->pixels;
    piece->count = norm->pixels < piece->left ? norm->pixels : piece->left;
    return piece->left > 0;
}

static int64_t slice_count(const struct batch_norm *norm, int64_t slice) {
    int64_t left = norm->values - slice * SLICE_VALUES;
    return left < SLICE_VALUES ? left : SLICE_VALUES;
}

/* --- sums ---------------------------------------------------------------------------------- */

struct moments {
    double count, mean, squares; /* squares: squared distances from the mean, added up */
};

static void join_moments(struct moments *all, const struct moments *more) {
    double count = all->count + more->count, distance = more->mean - all->mean;
    all->squares += more->squares + distance * distance * all->count * more->count / count;
    all->mean += distance * more->count / count;
    all->count = count;
}

static v8 sum_of(const float *x, int64_t count) {
    v8 a = all8(0.0f), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        a += load8(x + i);
        b += load8(x + i + LANES);
        c += load8(x + i + 2 * LANES);
        d += load8(x + i + 3 * LANES);
    }
    for (; i + LANES <= count; i += LANES)
        a += load8(x + i);
    if (count >= LANES)
        b += keep8(tail8(count), load8(x + count - LANES));
    else
        b += load8_part(x, count, 0.0f);
    return (a + b) + (c + d);
}

static v8 square8(v8 x) { return x * x; }

static v8 squares_of(const float *x, int64_t count, float mean) {
    v8 a = all8(0.0f), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        a += square8(load8(x + i) - mean);
        b += square8(load8(x + i + LANES) - mean);
        c += square8(load8(x + i + 2 * LANES) - mean);
        d += square8(load8(x + i + 3 * LANES) - mean);
    }
    for (; i + LANES <= count; i += LANES)
        a += square8(load8(x + i) - mean);
    if (count >= LANES)
        b += keep8(tail8(count), square8(load8(x + count - LANES) - mean));
    else
        b += square8(load8_part(x, count, mean) - mean);
    return (a + b) + (c + d);
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

/* What normalising does to a value: times slope, plus offset. The lanes are pixels of one channel,
 * or, where channels have one pixel only, eight channels. */
struct line {
    v8 slope, offset;
};

static void set_lane(struct line *line, int64_t lane, float scale, float shift, float mean,
                     float rstd) {
    float slope = scale * rstd;
    line->slope[lane] = slope;
    line->offset[lane] = shift - mean * slope;
}

static struct line line_of(float scale, float shift, float mean, float rstd) {
    float slope = scale * rstd;
    return (struct line){all8(slope), all8(shift - mean * slope)};
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

static struct line line_at(const struct batch_norm *norm, int64_t channel) {
    float shift = norm->shift ? norm->shift[channel] : 0.0f;
    float scale = norm->scale ? norm->scale[channel] : 0.0f;
    return line_of(scale, shift, norm->mean[channel], norm->rstd[channel]);
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

/* Eight channels of one pixel each. */
static struct line lines_at(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    struct line line = {all8(0.0f), all8(0.0f)};
    for (int64_t n = channel; n < channel + lanes; n++)
        set_lane(&line, n - channel, norm->scale ? norm->scale[n] : 0.0f,
                 norm->shift ? norm->shift[n] : 0.0f, norm->mean[n], norm->rstd[n]);
    return line;
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

/* --- gradients ----------------------------------------------------------------------------- */

/* Sums over dy, and over dy times the distance of x from its mean. */
struct slopes {
    double plain, weighted;
};

/* Only what went through the function behind the norm comes back. */
__attribute__((always_inline)) static inline v8 let_through(v8 dy, v8 x,
                                                            const struct line *line,
                                                            enum after after) {
    if (after == NOTHING)
        return dy;
    v8 y = x * line->slope + line->offset;
    return keep8(after == RELU ? y > 0.0f : (y > 0.0f) & (y < 6.0f), dy);
}

__attribute__((always_inline)) static inline void add_slopes(const float *x, const float *dy,
                                                             int64_t count, float mean,
                                                             const struct line *line,
                                                             enum after after, v8 *plain,
                                                             v8 *weighted) {
    v8 p = all8(0.0f), q = p, w = p, z = p;
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        v8 x0 = load8(x + i), x1 = load8(x + i + LANES);
        v8 g0 = let_through(load8(dy + i), x0, line, after);
        v8 g1 = let_through(load8(dy + i + LANES), x1, line, after);
        p += g0;
        q += g1;
        w += g0 * (x0 - mean);
        z += g1 * (x1 - mean);
    }
    if (i + LANES <= count) {
        v8 x0 = load8(x + i), g0 = let_through(load8(dy + i), x0, line, after);
        p += g0;
        w += g0 * (x0 - mean);
        i += LANES;
    }
    if (i < count) {
        bool back = count >= LANES;
        v8 x0 = back ? load8(x + count - LANES) : load8_part(x, count, 0.0f);
        v8 g0 = back ? keep8(tail8(count), load8(dy + count - LANES)) : load8_part(dy, count, 0.0f);
        g0 = let_through(g0, x0, line, after);
        q += g0;
        z += g0 * (x0 - mean);
    }
    *plain += p + q;
    *weighted += w + z;
}

static struct slopes slice_slopes(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    v8 plain = all8(0.0f), weighted = plain;
    struct line line = line_at(norm, channel);
    float mean = norm->mean[channel];
    struct piece piece = first_piece(norm, channel, slice);
    do {
        const float *x = norm->x + piece.at, *dy = norm->dy + piece.at;
        if (norm->after == RELU6)
            add_slopes(x, dy, piece.count, mean, &line, RELU6, &plain, &weighted);
        else if (norm->after == RELU)
            add_slopes(x, dy, piece.count, mean, &line, RELU, &plain, &weighted);
        else
            add_slopes(x, dy, piece.count, mean, &line, NOTHING, &plain, &weighted);
    } while (next_piece(norm, &piece));
    return (struct slopes){(double)sum8(plain), (double)sum8(weighted)};
}

static void finish_slopes(const struct batch_norm *norm, int64_t channel,
                          const struct slopes *slopes) {
    norm->dshift[channel] = (float)slopes->plain;
    norm->dscale[channel] = (float)(slopes->weighted * (double)norm->rstd[channel]);
}

/* dx = slope dy + away (x - mean) + all: what x does through the mean and the deviation, too. */
struct back {
    v8 slope, away, all, mean;
};

__attribute__((always_inline)) static inline v8 back8(v8 x, v8 dy, const struct back *back,
                                                      const struct line *line, enum after after) {
    v8 through = let_through(dy, x, line, after);
    return through * back->slope + ((x - back->mean) * back->away + back->all);
}

__attribute__((always_inline)) static inline void back_row(const float *x, const float *dy,
                                                           float *dx, int64_t count,
                                                           const struct back *back,
                                                           const struct line *line,
                                                           enum after after) {
    if (count < LANES) {
        v8 all_x = load8_part(x, count, 0.0f), all_dy = load8_part(dy, count, 0.0f);
        store8_part(dx, back8(all_x, all_dy, back, line, after), count);
        return;
    }
    v8 end = back8(load8(x + count - LANES), load8(dy + count - LANES), back, line, after);
    for (int64_t i = 0; i + LANES <= count; i += LANES)
        store8(dx + i, back8(load8(x + i), load8(dy + i), back, line, after));
    store8(dx + count - LANES, end);
}

static struct back back_of(const struct batch_norm *norm, v8 scale, v8 mean, v8 rstd, v8 dscale,
                           v8 dshift) {
    v8 slope = scale * rstd, share = slope / (float)norm->values;
    return (struct back){slope, -share * rstd * dscale, -share * dshift, mean};
}

static void back_slice(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    struct back back = back_of(norm, all8(norm->scale[channel]), all8(norm->mean[channel]),
                               all8(norm->rstd[channel]), all8(norm->dscale[channel]),
                               all8(norm->dshift[channel]));
    struct line line = line_at(norm, channel);
    struct piece piece = first_piece(norm, channel, slice);
    do {
        const float *x = norm->x + piece.at, *dy = norm->dy + piece.at;
        float *dx = norm->y + piece.at;
        if (norm->after == RELU6)
            back_row(x, dy, dx, piece.count, &back, &line, RELU6);
        else if (norm->after == RELU)
            back_row(x, dy, dx, piece.count, &back, &line, RELU);
        else
            back_row(x, dy, dx, piece.count, &back, &line, NOTHING);
    } while (next_piece(norm, &piece));
}

static void gradient_channels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    share_of(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel++) {
        struct slopes all = {0.0, 0.0};
        for (int64_t slice = 0; slice < norm->slices; slice++) {
            struct slopes more = slice_slopes(norm, channel, slice);
            all.plain += more.plain;
            all.weighted += more.weighted;
        }
        finish_slopes(norm, channel, &all);
        for (int64_t slice = norm->slices - 1; slice >= 0 && norm->y; slice--)
            back_slice(norm, channel, slice);
    }
}

static v8 let_through_of(v8 dy, v8 x, const struct line *line, enum after after) {
    return after == RELU6  ? let_through(dy, x, line, RELU6)
           : after == RELU ? let_through(dy, x, line, RELU)
                           : dy;
}

/* Eight channels of one pixel each: their sums, and what goes back where it is asked for. */
static void gradient_eight(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    struct line line = lines_at(norm, channel, lanes);
    v8 plain = all8(0.0f), weighted = plain, mean = load8_up_to(norm->mean + channel, lanes);
    for (int64_t n = 0; n < norm->samples; n++) {
        int64_t at = n * norm->channels + channel;
        v8 x = load8_up_to(norm->x + at, lanes), dy = load8_up_to(norm->dy + at, lanes);
        dy = let_through_of(dy, x, &line, norm->after);
        plain += dy;
        weighted += dy * (x - mean);
    }
    v8 rstd = load8_up_to(norm->rstd + channel, lanes), dscale = weighted * rstd;
    store8_up_to(norm->dshift + channel, plain, lanes);
    store8_up_to(norm->dscale + channel, dscale, lanes);
    if (norm->y == NULL)
        return;
    v8 scale = load8_up_to(norm->scale + channel, lanes);
    struct back back = back_of(norm, scale, mean, rstd, dscale, plain);
    for (int64_t n = 0; n < norm->samples; n++) {
        int64_t at = n * norm->channels + channel;
        v8 x = load8_up_to(norm->x + at, lanes), dy = load8_up_to(norm->dy + at, lanes);
        dy = let_through_of(dy, x, &line, norm->after);
        store8_up_to(norm->y + at, back8(x, dy, &back, &line, NOTHING), lanes);
    }
}

static void gradient_single_pixels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    share_of_values(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel += LANES)
        gradient_eight(norm, channel, last - channel < LANES ? last - channel : LANES);
}

static void gradient_measure(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    share_of(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        struct slopes slopes = slice_slopes(norm, n / norm->slices, n % norm->slices);
        memcpy(norm->slice_sums + 3 * n, &slopes, sizeof slopes);
    }
}

static void back_slices(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    share_of(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++)
        back_slice(norm, n / norm->slices, n % norm->slices);
}

/* --- batch norm, as operations ------------------------------------------------------------- */

static struct batch_norm batch_norm_of(const struct op *op) {
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

/* Whether threads can have channels for themselves and still get about the same. */
static bool channels_suffice(const struct batch_norm *norm, int threads) {
    return norm->channels % threads == 0 || norm->channels >= 8 * threads;
}

static size_t slices_bytes(const struct op *op, int threads) {
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

/* Fills dscale and dshift, and dx where there is a place for it. */
static void gradient(struct batch_norm *norm, struct scene *scene) {
    norm->slice_sums = scene->workspace;
    int64_t work = norm->op->in[0]->count * 2, slices = norm->channels * norm->slices;
    int threads = spread_parts(scene, slices, work);
    if (norm->pixels == 1) {
        spread(scene, norm->channels, work, gradient_single_pixels, norm);
        return;
    }
    if (threads == 1 || channels_suffice(norm, pool_threads(scene->pool))) {
        spread(scene, norm->channels, work, gradient_channels, norm);
        return;
    }
    spread(scene, slices, work, gradient_measure, norm);
    for (int64_t channel = 0; channel < norm->channels; channel++) {
        struct slopes all = {0.0, 0.0}, more;
        for (int64_t slice = 0; slice < norm->slices; slice++) {
            memcpy(&more, norm->slice_sums + 3 * (channel * norm->slices + slice), sizeof more);
            all.plain += more.plain;
            all.weighted += more.weighted;
        }
        finish_slopes(norm, channel, &all);
    }
    if (norm->y)
        spread(scene, slices, work, back_slices, norm);
}

static void batch_norm_weight_gradient_run(const struct op *op, struct scene *scene) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.mean = floats(op->in[2]);
    norm.rstd = floats(op->in[3]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    gradient(&norm, scene);
}

static void batch_norm_input_gradient_run(const struct op *op, struct scene *scene) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.mean = floats(op->in[3]);
    norm.rstd = floats(op->in[4]);
    norm.dscale = floats(op->in[5]);
    norm.dshift = floats(op->in[6]);
    norm.y = floats(op->out[0]);
    spread(scene, norm.channels * norm.slices, op->in[0]->count * 2, back_slices, &norm);
}

static void whole_gradient(const struct op *op, struct scene *scene, enum after after) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.shift = floats(op->in[3]);
    norm.mean = floats(op->in[4]);
    norm.rstd = floats(op->in[5]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    norm.y = floats(op->out[2]);
    norm.after = after;
    gradient(&norm, scene);
}

static void batch_norm_gradient_run(const struct op *op, struct scene *scene) {
    whole_gradient(op, scene, NOTHING);
}

static void batch_norm_relu_gradient_run(const struct op *op, struct scene *scene) {
    whole_gradient(op, scene, RELU);
}

static void batch_norm_relu6_gradient_run(const struct op *op, struct scene *scene) {
    whole_gradient(op, scene, RELU6);
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

/* The first so many operands and the result number `whole` (-1: none) have the size of x; all
 * others have one value a channel. */
static const char *check_channels(const struct op *op, int like_x, int whole) {
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

static const char *check_batch_norm_weight_gradient(const struct op *op) {
    const char *fault = check_form(op, "ffff", "ff", 0, 0);
    return fault ? fault : check_channels(op, 2, -1);
}

static const char *check_batch_norm_input_gradient(const struct op *op) {
    const char *fault = check_form(op, "fffffff", "f", 0, 0);
    return fault ? fault : check_channels(op, 2, 0);
}

static const char *check_batch_norm_gradient(const struct op *op) {
    const char *fault = check_form(op, "ffffff", "fff", 0, 0);
    return fault ? fault : check_channels(op, 2, 2);
}

static const char *check_batch_norm_inference(const struct op *op) {
    const char *fault = check_form(op, "fffff", "f", 0, 1);
    return fault ? fault : check_channels(op, 1, 0);
}

/* --- layer norm ---------------------------------------------------------------------------- */

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
    share_of(norm->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = norm->x + row * norm->length;
        float *y = norm->y + row * norm->length;
        float mean = sum8(sum_of(x, norm->length)) / (float)norm->length;
        float variance = sum8(squares_of(x, norm->length, mean)) / (float)norm->length;
        float rstd = 1.0f / sqrtf(variance + norm->epsilon);
        norm->new_mean[row] = mean;
        norm->new_rstd[row] = rstd;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 scale = load8_up_to(norm->scale + i, count);
            v8 shift = load8_up_to(norm->shift + i, count);
            v8 away = (load8_up_to(x + i, count) - mean) * rstd;
            store8_up_to(y + i, away * scale + shift, count);
        }
    }
}

/* Each thread has columns of its own and walks down all rows. */
static void layer_norm_weight_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t i, last;
    share_of_values(norm->length, part, parts, &i, &last);
    for (; i < last; i += LANES) {
        v8 plain = all8(0.0f), weighted = plain;
        for (int64_t row = 0; row < norm->rows; row++) {
            int64_t at = row * norm->length + i;
            v8 dy = load8_up_to(norm->dy + at, last - i);
            plain += dy;
            weighted +=
                dy * ((load8_up_to(norm->x + at, last - i) - norm->mean[row]) * norm->rstd[row]);
        }
        store8_up_to(norm->dshift + i, plain, last - i);
        store8_up_to(norm->dscale + i, weighted, last - i);
    }
}

static void layer_norm_input_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t row, last;
    share_of(norm->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = norm->x + row * norm->length, *dy = norm->dy + row * norm->length;
        float *dx = norm->y + row * norm->length;
        float mean = norm->mean[row], rstd = norm->rstd[row];
        v8 plain = all8(0.0f), weighted = plain;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 g = load8_up_to(dy + i, count) * load8_up_to(norm->scale + i, count);
            plain += g;
            weighted += g * (load8_up_to(x + i, count) - mean);
        }
        float all = sum8(plain) / (float)norm->length;
        float away = sum8(weighted) / (float)norm->length * rstd * rstd;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 g = load8_up_to(dy + i, count) * load8_up_to(norm->scale + i, count);
            v8 back = g - all - (load8_up_to(x + i, count) - mean) * away;
            store8_up_to(dx + i, back * rstd, count);
        }
    }
}

static struct layer_norm layer_norm_of(const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t length = x->dim[x->rank - 1];
    return (struct layer_norm){.x = floats(x), .rows = x->count / length, .length = length};
}

static void layer_norm_forward_run(const struct op *op, struct scene *scene) {
    struct layer_norm norm = layer_norm_of(op);
    norm.scale = floats(op->in[1]);
    norm.shift = floats(op->in[2]);
    norm.y = floats(op->out[0]);
    norm.new_mean = floats(op->out[1]);
    norm.new_rstd = floats(op->out[2]);
    norm.epsilon = op->f[0];
    spread(scene, norm.rows, op->in[0]->count * 2, layer_norm_forward_part, &norm);
}

static void layer_norm_weight_gradient_run(const struct op *op, struct scene *scene) {
    struct layer_norm norm = layer_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.mean = floats(op->in[2]);
    norm.rstd = floats(op->in[3]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    spread(scene, norm.length, op->in[0]->count * 2, layer_norm_weight_gradient_part, &norm);
}

static void layer_norm_input_gradient_run(const struct op *op, struct scene *scene) {
    struct layer_norm norm = layer_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.mean = floats(op->in[3]);
    norm.rstd = floats(op->in[4]);
    norm.y = floats(op->out[0]);
    spread(scene, norm.rows, op->in[0]->count * 3, layer_norm_input_gradient_part, &norm);
}

static bool has(const struct tensor *tensor, int64_t count) { return tensor->count == count; }

static const char *check_layer_norm_forward(const struct op *op) {
    const char *fault = check_form(op, "fff", "fff", 0, 1);
    if (fault || op->in[0]->rank < 1)
        return fault ? fault : "has an operand without an axis";
    struct layer_norm norm = layer_norm_of(op);
    bool fits = has(op->in[1], norm.length) && has(op->in[2], norm.length) &&
                has(op->out[0], op->in[0]->count) && has(op->out[1], norm.rows) &&
                has(op->out[2], norm.rows);
    return fits ? NULL : "has operands that do not fit its rows";
}

static const char *check_layer_norm_weight_gradient(const struct op *op) {
    const char *fault = check_form(op, "ffff", "ff", 0, 0);
    if (fault || op->in[0]->rank < 1)
        return fault ? fault : "has an operand without an axis";
    struct layer_norm norm = layer_norm_of(op);
    bool fits = has(op->in[1], op->in[0]->count) && has(op->in[2], norm.rows) &&
                has(op->in[3], norm.rows) && has(op->out[0], norm.length) &&
                has(op->out[1], norm.length);
    return fits ? NULL : "has operands that do not fit its rows";
}

static const char *check_layer_norm_input_gradient(const struct op *op) {
    const char *fault = check_form(op, "fffff", "f", 0, 0);
    if (fault || op->in[0]->rank < 1)
        return fault ? fault : "has an operand without an axis";
    struct layer_norm norm = layer_norm_of(op);
    bool fits = has(op->in[1], op->in[0]->count) && has(op->in[2], norm.length) &&
                has(op->in[3], norm.rows) && has(op->in[4], norm.rows) &&
                has(op->out[0], op->in[0]->count);
    return fits ? NULL : "has operands that do not fit its rows";
}

/* --- all ----------------------------------------------------------------------------------- */

static const struct op_kind batch_norm_forward = {"batch_norm_forward", check_batch_norm_forward,
                                                  slices_bytes, NULL, batch_norm_forward_run};
static const struct op_kind batch_norm_relu_forward = {
    "batch_norm_relu_forward", check_batch_norm_forward, slices_bytes, NULL,
    batch_norm_relu_forward_run};
static const struct op_kind batch_norm_relu6_forward = {
    "batch_norm_relu6_forward", check_batch_norm_forward, slices_bytes, NULL,
    batch_norm_relu6_forward_run};
static const struct op_kind batch_norm_weight_gradient = {
    "batch_norm_weight_gradient", check_batch_norm_weight_gradient, slices_bytes, NULL,
    batch_norm_weight_gradient_run};
static const struct op_kind batch_norm_input_gradient = {
    "batch_norm_input_gradient", check_batch_norm_input_gradient, NULL, NULL,
    batch_norm_input_gradient_run};
static const struct op_kind batch_norm_gradient = {"batch_norm_gradient", check_batch_norm_gradient,
                                                   slices_bytes, NULL, batch_norm_gradient_run};
static const struct op_kind batch_norm_relu_gradient = {
    "batch_norm_relu_gradient", check_batch_norm_gradient, slices_bytes, NULL,
    batch_norm_relu_gradient_run};
static const struct op_kind batch_norm_relu6_gradient = {
    "batch_norm_relu6_gradient", check_batch_norm_gradient, slices_bytes, NULL,
    batch_norm_relu6_gradient_run};
static const struct op_kind batch_norm_inference = {
    "batch_norm_inference", check_batch_norm_inference, NULL, NULL, batch_norm_inference_run};
static const struct op_kind batch_norm_relu_inference = {
    "batch_norm_relu_inference", check_batch_norm_inference, NULL, NULL,
    batch_norm_relu_inference_run};
static const struct op_kind batch_norm_relu6_inference = {
    "batch_norm_relu6_inference", check_batch_norm_inference, NULL, NULL,
    batch_norm_relu6_inference_run};
static const struct op_kind layer_norm_forward = {"layer_norm_forward", check_layer_norm_forward,
                                                  NULL, NULL, layer_norm_forward_run};
static const struct op_kind layer_norm_weight_gradient = {
    "layer_norm_weight_gradient", check_layer_norm_weight_gradient, NULL, NULL,
    layer_norm_weight_gradient_run};
static const struct op_kind layer_norm_input_gradient = {
    "layer_norm_input_gradient", check_layer_norm_input_gradient, NULL, NULL,
    layer_norm_input_gradient_run};

const struct op_kind *const norm_kinds[] = {
    &batch_norm_forward,         &batch_norm_relu_forward,    &batch_norm_relu6_forward,
    &batch_norm_weight_gradient, &batch_norm_input_gradient,  &batch_norm_gradient,
    &batch_norm_relu_gradient,   &batch_norm_relu6_gradient,  &batch_norm_inference,
    &batch_norm_relu_inference,  &batch_norm_relu6_inference, &layer_norm_forward,
    &layer_norm_weight_gradient, &layer_norm_input_gradient,  NULL,
};
