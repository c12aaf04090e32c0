/* pooling.c - maximum and mean pooling over windows, and mean pooling over whole channels.
 *
 *   y[p,q] = the largest value, or the mean, of x in the window from row p SH - TOP and column
 *            q SW - LEFT on, KH x KW pixels without the padding; where: the index of the largest
 *   dx = the sum over windows: dy at the index of the largest, or dy / pixels at every pixel
 *
 * A row of windows is computed in two passes: first down every column of the image, into a strip
 * with room for the padding at both ends; then across the strip, eight windows at a time, lane j
 * being window j. So no pixel is read more often than needed, and edges need no special case. */
#include <math.h>

#include "ops.h"
#include "parallel_for.h"
#include "vector.h"
#include "window.h"

static op_run max_pool_forward_run, max_pool_gradient_run, avg_pool_forward_run;
static op_run avg_pool_gradient_run, global_avg_pool_forward_run, global_avg_pool_gradient_run;
static op_workspace forward_workspace, gradient_workspace;
static op_check check_forward, check_gradient;

#define WINDOW " : KH KW SH SW TOP LEFT"

const struct op_kind pooling_kinds[] = {
    {"max_pool_forward", "x(N,C,H,W) : y(N,C,P,Q) where(N,C,P,Q)" WINDOW, check_forward,
     forward_workspace, NULL, max_pool_forward_run},
    {"max_pool_gradient", "where(N,C,P,Q) dy(N,C,P,Q) : dx(N,C,H,W)" WINDOW, check_gradient,
     .run = max_pool_gradient_run},
    {"avg_pool_forward", "x(N,C,H,W) : y(N,C,P,Q)" WINDOW, check_forward, forward_workspace, NULL,
     avg_pool_forward_run},
    {"avg_pool_gradient", "dy(N,C,P,Q) : dx(N,C,H,W)" WINDOW, check_gradient, gradient_workspace,
     NULL, avg_pool_gradient_run},
    {"global_avg_pool_forward", "x(N,C,P..) : y[N*C]", .run = global_avg_pool_forward_run},
    {"global_avg_pool_gradient", "dy[N*C] : dx(N,C,P..)", .run = global_avg_pool_gradient_run},
    {.name = NULL},
};

struct pooling {
    const float *x, *x_end; /* x or dy; x_end: the end of all images */
    float *y;               /* y or dx */
    int32_t *where;
    int64_t planes;
    struct window window;
    uint8_t *strips; /* one per worker */
};

/* One row of the image after the first pass. Padding has a value that never wins a maximum, or that
 * adds nothing to a mean. */
struct strip {
    float *value, *weight; /* weight: 1 / the columns that a window covers */
    int32_t *index;
};

/* Rows or columns [first, last) of the image that a window covers. */
struct range {
    int64_t first, last;
};

static struct range rows_of_window(const struct window *window, int64_t row) {
    int64_t first = row * window->sh - window->top;
    return (struct range){max_i64(first, 0), min_i64(first + window->kh, window->height)};
}

static struct range columns_of_window(const struct window *window, int64_t column) {
    int64_t first = column * window->sw - window->left;
    return (struct range){max_i64(first, 0), min_i64(first + window->kw, window->width)};
}

/* Loads eight values that are `step` apart; nothing after the last of them is read. */
ALWAYS_INLINE v8 load8_strided(const float *from, int64_t step) {
    if (step == 1) {
        return load8(from);
    }
    if (step == 2) {
        return __builtin_shufflevector(load8(from), load8(from + 7), 0, 2, 4, 6, 9, 11, 13, 15);
    }
    v8 x;
    for (int lane = 0; lane < LANES; lane++) {
        x[lane] = from[lane * step];
    }
    return x;
}

ALWAYS_INLINE v8i load8i_strided(const int32_t *from, int64_t step) {
    return (v8i)load8_strided((const float *)from, step); /* a copy of bits, whatever they mean */
}

static inline v8 load8_before(const float *from, const float *end) {
    return end - from >= LANES ? load8(from) : load8_part(from, end - from, 0.0f);
}

static inline v8i iota8(int64_t first) {
    return splat8i((int32_t)first) + (v8i){0, 1, 2, 3, 4, 5, 6, 7};
}

/* ---- strips ---- */

/* Enough for the padding and for the lanes after the last window. */
static int64_t strip_values(const struct window *window) {
    int64_t windows = (window->columns + LANES) * window->sw + window->kw;
    int64_t image = window->left + window->width + LANES;
    return (max_i64(windows, image) + 15) / 16 * 16;
}

static struct strip strip_of(const struct pooling *pooling, int worker) {
    int64_t values = strip_values(&pooling->window);
    float *first = (float *)(pooling->strips + (size_t)worker * (size_t)values * 3 * sizeof(float));
    return (struct strip){first, first + values, (int32_t *)(first + 2 * values)};
}

static void fill_padding(const struct strip *strip, int64_t first, int64_t last, float padding) {
    for (int64_t i = first; i < last; i++) {
        strip->value[i] = padding;
        strip->index[i] = INT32_MAX;
    }
}

static void set_weights(const struct strip *strip, const struct window *window) {
    for (int64_t j = 0; j < window->columns + LANES; j++) {
        struct range across = columns_of_window(window, min_i64(j, window->columns - 1));
        strip->weight[j] = 1.0f / (float)(across.last - across.first);
    }
}

/* Stores eight lanes where at least eight are `writable` because the excess is overwritten
 * later. */
static void store8_overrun(void *to, v8 value, int64_t count, int64_t writable) {
    if (writable >= LANES) {
        store8(to, value);
    } else {
        store8_part(to, value, min_i64(count, LANES));
    }
}

/* ---- maximum ---- */

static void max_down(const struct pooling *pooling, const float *x, struct range down,
                     const struct strip *strip) {
    const struct window *window = &pooling->window;
    float *values = strip->value + window->left;
    int32_t *indices_row = strip->index + window->left;
    for (int64_t w = 0; w < window->width; w += LANES) {
        int64_t at = down.first * window->width + w;
        v8 best = load8_before(x + at, pooling->x_end);
        v8i index = iota8(at);
        for (int64_t h = down.first + 1; h < down.last; h++) {
            at += window->width;
            v8 value = load8_before(x + at, pooling->x_end);
            v8i wins = (value > best) | (value != value);
            best = select8(wins, value, best);
            index = (wins & iota8(at)) | (~wins & index);
        }
        store8(values + w, best);
        store8i(indices_row + w, index);
    }
    store8(values + window->width, splat8(-INFINITY)); /* over lanes that were read after the row */
    store8i(indices_row + window->width, splat8i(INT32_MAX));
}

/* Among equal values the first in row-major order wins, as in every framework. */
ALWAYS_INLINE void max_across(const struct window *window, const struct strip *strip, int64_t kw,
                              int64_t sw, float *y, int32_t *where, int64_t writable) {
    for (int64_t j = 0; j < window->columns; j += LANES) {
        v8 best = load8_strided(strip->value + j * sw, sw);
        v8i index = load8i_strided(strip->index + j * sw, sw);
        for (int64_t w = 1; w < kw; w++) {
            v8 value = load8_strided(strip->value + j * sw + w, sw);
            v8i candidate = load8i_strided(strip->index + j * sw + w, sw);
            v8i wins = (value > best) | ((value == best) & (candidate < index)) |
                       ((value != value) & (best == best));
            best = select8(wins, value, best);
            index = (wins & candidate) | (~wins & index);
        }
        store8_overrun(y + j, best, window->columns - j, writable - j);
        store8_overrun(where + j, (v8)index, window->columns - j, writable - j);
    }
}

static void max_pool_part(void *context, int part, int parts, int worker) {
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    struct strip strip = strip_of(pooling, worker);
    fill_padding(&strip, 0, strip_values(window), -INFINITY);
    int64_t row, last;
    split_range(pooling->planes * window->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = pooling->x + row / window->rows * window->height * window->width;
        float *y = pooling->y + row * window->columns;
        int32_t *where = pooling->where + row * window->columns;
        int64_t writable = (last - row) * window->columns;
        max_down(pooling, x, rows_of_window(window, row % window->rows), &strip);
        if (window->kw == 2 && window->sw == 2) {
            max_across(window, &strip, 2, 2, y, where, writable);
        } else if (window->kw == 3 && window->sw == 2) {
            max_across(window, &strip, 3, 2, y, where, writable);
        } else if (window->kw == 3 && window->sw == 1) {
            max_across(window, &strip, 3, 1, y, where, writable);
        } else {
            max_across(window, &strip, window->kw, window->sw, y, where, writable);
        }
    }
}

static void max_pool_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    int64_t pixels = window->height * window->width, windows = window->rows * window->columns;
    int64_t plane, last;
    split_range(pooling->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        const float *dy = pooling->x + plane * windows;
        const int32_t *where = pooling->where + plane * windows;
        float *dx = pooling->y + plane * pixels;
        memset(dx, 0, (size_t)pixels * sizeof *dx);
        for (int64_t n = 0; n < windows; n++) {
            if ((uint32_t)where[n] <
                (uint32_t)pixels) { /* a plan may have overlaid it with anything */
                dx[where[n]] += dy[n];
            }
        }
    }
}

/* ---- mean ---- */

static void sum_down(const struct pooling *pooling, const float *x, struct range down,
                     const struct strip *strip) {
    const struct window *window = &pooling->window;
    float *values = strip->value + window->left;
    for (int64_t w = 0; w < window->width; w += LANES) {
        v8 sum = splat8(0.0f);
        for (int64_t h = down.first; h < down.last; h++) {
            sum += load8_before(x + h * window->width + w, pooling->x_end);
        }
        store8(values + w, sum);
    }
    store8(values + window->width, splat8(0.0f));
}

ALWAYS_INLINE void mean_across(const struct window *window, const struct strip *strip, int64_t kw,
                               int64_t sw, float weight, float *y, int64_t writable) {
    for (int64_t j = 0; j < window->columns; j += LANES) {
        v8 sum = load8_strided(strip->value + j * sw, sw);
        for (int64_t w = 1; w < kw; w++) {
            sum += load8_strided(strip->value + j * sw + w, sw);
        }
        store8_overrun(y + j, sum * (load8(strip->weight + j) * weight), window->columns - j,
                       writable - j);
    }
}

static void avg_pool_part(void *context, int part, int parts, int worker) {
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    struct strip strip = strip_of(pooling, worker);
    fill_padding(&strip, 0, strip_values(window), 0.0f);
    set_weights(&strip, window);
    int64_t row, last;
    split_range(pooling->planes * window->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = pooling->x + row / window->rows * window->height * window->width;
        float *y = pooling->y + row * window->columns;
        int64_t writable = (last - row) * window->columns;
        struct range down = rows_of_window(window, row % window->rows);
        float weight = 1.0f / (float)(down.last - down.first);
        sum_down(pooling, x, down, &strip);
        if (window->kw == 2 && window->sw == 2) {
            mean_across(window, &strip, 2, 2, weight, y, writable);
        } else if (window->kw == 3 && window->sw == 1) {
            mean_across(window, &strip, 3, 1, weight, y, writable);
        } else {
            mean_across(window, &strip, window->kw, window->sw, weight, y, writable);
        }
    }
}

/* Adds the gradients of a row of windows to the strip, each to all columns of its window. */
static void scatter_across(const struct window *window, const struct strip *strip, const float *dy,
                           float weight) {
    memset(strip->value, 0, (size_t)strip_values(window) * sizeof *strip->value);
    for (int64_t w = 0; w < window->kw; w++) {
        float *to = strip->value + w;
        int64_t j = 0;
        for (; window->sw == 1 && j + LANES <= window->columns; j += LANES) {
            store8(to + j, load8(to + j) + load8(dy + j) * (load8(strip->weight + j) * weight));
        }
        for (; j < window->columns; j++) {
            to[j * window->sw] += dy[j] * (strip->weight[j] * weight);
        }
    }
}

/* Adds the strip to every row that the windows cover. */
static void scatter_down(const struct window *window, const struct strip *strip, struct range down,
                         float *dx) {
    const float *values = strip->value + window->left;
    for (int64_t h = down.first; h < down.last; h++) {
        float *row = dx + h * window->width;
        int64_t w = 0;
        for (; w + LANES <= window->width; w += LANES) {
            store8(row + w, load8(row + w) + load8(values + w));
        }
        for (; w < window->width; w++) {
            row[w] += values[w];
        }
    }
}

/* 2x2 windows that do not overlap: each pixel is written once. */
static void scatter_pairs(const struct window *window, const float *dy, float *dx) {
    for (int64_t i = 0; i < window->rows; i++, dy += window->columns) {
        float *upper = dx + 2 * i * window->width, *lower = upper + window->width;
        for (int64_t j = 0; j < window->columns; j++) {
            float weight = dy[j] * 0.25f;
            upper[2 * j] = upper[2 * j + 1] = weight;
            lower[2 * j] = lower[2 * j + 1] = weight;
        }
    }
}

static bool is_2x2_without_overlap(const struct window *window) {
    return window->kh == 2 && window->kw == 2 && window->sh == 2 && window->sw == 2 &&
           window->top == 0 && window->left == 0 && window->height == 2 * window->rows &&
           window->width == 2 * window->columns;
}

static void avg_pool_gradient_part(void *context, int part, int parts, int worker) {
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    struct strip strip = strip_of(pooling, worker);
    set_weights(&strip, window);
    int64_t pixels = window->height * window->width, windows = window->rows * window->columns;
    int64_t plane, last;
    split_range(pooling->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        const float *dy = pooling->x + plane * windows;
        float *dx = pooling->y + plane * pixels;
        if (is_2x2_without_overlap(window)) {
            scatter_pairs(window, dy, dx);
            continue;
        }
        memset(dx, 0, (size_t)pixels * sizeof *dx);
        for (int64_t row = 0; row < window->rows; row++) {
            struct range down = rows_of_window(window, row);
            float weight = 1.0f / (float)(down.last - down.first);
            scatter_across(window, &strip, dy + row * window->columns, weight);
            scatter_down(window, &strip, down, dx);
        }
    }
}

/* ---- operations over windows ---- */

static struct window window_of(const struct op *op, const struct tensor *image,
                               const struct tensor *pooled) {
    return (struct window){.height = image->dim[2],
                           .width = image->dim[3],
                           .rows = pooled->dim[2],
                           .columns = pooled->dim[3],
                           .kh = op->i[0],
                           .kw = op->i[1],
                           .sh = op->i[2],
                           .sw = op->i[3],
                           .top = op->i[4],
                           .left = op->i[5]};
}

static struct pooling pooling_of(const struct op *op, const struct exec_context *exec,
                                 const struct tensor *image, const struct tensor *pooled) {
    return (struct pooling){.planes = image->dim[0] * image->dim[1],
                            .window = window_of(op, image, pooled),
                            .strips = exec->workspace};
}

static size_t strip_bytes(const struct window *window, int threads) {
    return (size_t)threads * (size_t)strip_values(window) * 3 * sizeof(float);
}

static size_t forward_workspace(const struct op *op, int threads) {
    struct window window = window_of(op, op->in[0], op->out[0]);
    return strip_bytes(&window, threads);
}

static size_t gradient_workspace(const struct op *op, int threads) {
    struct window window = window_of(op, op->out[0], op->in[0]);
    return strip_bytes(&window, threads);
}

static void forward(const struct op *op, struct exec_context *exec, thread_pool_task *task) {
    struct pooling pooling = pooling_of(op, exec, op->in[0], op->out[0]);
    pooling.x = floats(op->in[0]);
    pooling.x_end = pooling.x + op->in[0]->count;
    pooling.y = floats(op->out[0]);
    pooling.where = op->outs > 1 ? indices(op->out[1]) : NULL;
    parallel_for(exec, pooling.planes * pooling.window.rows, op->in[0]->count * 2, task, &pooling);
}

static void max_pool_forward_run(const struct op *op, struct exec_context *exec) {
    forward(op, exec, max_pool_part);
}

static void avg_pool_forward_run(const struct op *op, struct exec_context *exec) {
    forward(op, exec, avg_pool_part);
}

static void max_pool_gradient_run(const struct op *op, struct exec_context *exec) {
    struct pooling pooling = pooling_of(op, exec, op->out[0], op->in[1]);
    pooling.where = indices(op->in[0]);
    pooling.x = floats(op->in[1]);
    pooling.y = floats(op->out[0]);
    parallel_for(exec, pooling.planes, op->out[0]->count, max_pool_gradient_part, &pooling);
}

static void avg_pool_gradient_run(const struct op *op, struct exec_context *exec) {
    struct pooling pooling = pooling_of(op, exec, op->out[0], op->in[0]);
    pooling.x = floats(op->in[0]);
    pooling.y = floats(op->out[0]);
    parallel_for(exec, pooling.planes, op->out[0]->count, avg_pool_gradient_part, &pooling);
}

/* Every window must cover at least one pixel, and every pixel must have an int32_t index. */
static const char *check_window(const struct op *op, const struct tensor *image,
                                const struct tensor *pooled) {
    if (image->dim[2] > INT32_MAX / image->dim[3]) {
        return "has images that are too large";
    }
    struct window window = window_of(op, image, pooled);
    const int64_t limit = 4096;
    if (window.kh < 1 || window.kw < 1 || window.sh < 1 || window.sw < 1 || window.kh > limit ||
        window.kw > limit || window.sh > limit || window.sw > limit) {
        return "has a kernel or a stride that is out of range";
    }
    if (window.top < 0 || window.left < 0 || window.top >= window.kh || window.left >= window.kw) {
        return "has padding larger than its kernel";
    }
    if (window.rows - 1 > (window.height - 1 + window.top) / window.sh ||
        window.columns - 1 > (window.width - 1 + window.left) / window.sw) {
        return "has windows beyond the end of its images";
    }
    return NULL;
}

static const char *check_forward(const struct op *op) {
    return check_window(op, op->in[0], op->out[0]);
}

static const char *check_gradient(const struct op *op) {
    return check_window(op, op->out[0], op->in[op->ins - 1]);
}

/* ---- whole channels ---- */

struct channels {
    const float *x;
    float *y;
    int64_t planes, pixels;
};

static void global_avg_pool_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct channels *channels = context;
    int64_t plane, last;
    split_range(channels->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        const float *x = channels->x + plane * channels->pixels;
        v8 a = splat8(0.0f), b = a;
        int64_t i = 0;
        for (; i + 2 * LANES <= channels->pixels; i += 2 * LANES) {
            a += load8(x + i);
            b += load8(x + i + LANES);
        }
        float sum = hsum8(a + b);
        for (; i < channels->pixels; i++) {
            sum += x[i];
        }
        channels->y[plane] = sum / (float)channels->pixels;
    }
}

static void global_avg_pool_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct channels *channels = context;
    int64_t plane, last;
    split_range(channels->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        float weight = channels->x[plane] / (float)channels->pixels;
        float *dx = channels->y + plane * channels->pixels;
        int64_t i = 0;
        for (; i + LANES <= channels->pixels; i += LANES) {
            store8(dx + i, splat8(weight));
        }
        for (; i < channels->pixels; i++) {
            dx[i] = weight;
        }
    }
}

static void global_avg_pool_forward_run(const struct op *op, struct exec_context *exec) {
    int64_t planes = op->out[0]->count;
    struct channels channels = {floats(op->in[0]), floats(op->out[0]), planes,
                                op->in[0]->count / planes};
    parallel_for(exec, planes, op->in[0]->count, global_avg_pool_part, &channels);
}

static void global_avg_pool_gradient_run(const struct op *op, struct exec_context *exec) {
    int64_t planes = op->in[0]->count;
    struct channels channels = {floats(op->in[0]), floats(op->out[0]), planes,
                                op->out[0]->count / planes};
    parallel_for(exec, planes, op->out[0]->count, global_avg_pool_gradient_part, &channels);
}
