/* pooling.c - the greatest or the mean of every window, and of whole channels.
 *
 * Eight neighbouring windows of one row are looked at together: lane j of a vector belongs to
 * window j. Windows that reach over the left or right edge are few and done one by one; those that
 * reach over the upper or lower edge only have fewer rows. */
#include "check.h"
#include "ops.h"
#include "spread.h"
#include "vector.h"
#include "window.h"

#include <math.h>

struct pooling {
    const float *x; /* or dy */
    float *y;       /* or dx */
    int32_t *where;
    int64_t planes;
    struct window window;
    int64_t inside_first, inside_last; /* columns whose windows are within the width */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Rows [first, last) of the image that windows of one output row see. */
struct rows {
    int64_t first, last;
};

static struct rows rows_of(const struct window *window, int64_t row) {
    int64_t first = row * window->sh - window->top;
    return (struct rows){most(first, 0), least(first + window->kh, window->height)};
}

static struct rows columns_of(const struct window *window, int64_t column) {
    int64_t first = column * window->sw - window->left;
    return (struct rows){most(first, 0), least(first + window->kw, window->width)};
}

/* Eight values, one `step` from the next; nothing behind the last of them is read. */
__attribute__((always_inline)) static inline v8 load8_apart(const float *from, int64_t step) {
    if (step == 1)
        return load8(from);
    if (step == 2)
        return __builtin_shufflevector(load8(from), load8(from + 7), 0, 2, 4, 6, 9, 11, 13, 15);
    v8 x;
    for (int lane = 0; lane < LANES; lane++)
        x[lane] = from[lane * step];
    return x;
}

static inline v8i number8(int64_t first, int64_t step) {
    int32_t f = (int32_t)first, s = (int32_t)step;
    return (v8i){f, f + s, f + 2 * s, f + 3 * s, f + 4 * s, f + 5 * s, f + 6 * s, f + 7 * s};
}

/* --- greatest ------------------------------------------------------------------------------ */

static void greatest_of_one(const struct window *window, const float *x, int64_t row,
                            int64_t column, float *y, int32_t *where) {
    struct rows down = rows_of(window, row), across = columns_of(window, column);
    float best = x[down.first * window->width + across.first];
    int64_t at = down.first * window->width + across.first;
    for (int64_t h = down.first; h < down.last; h++)
        for (int64_t w = across.first; w < across.last; w++) {
            float value = x[h * window->width + w];
            if (value > best || value != value) {
                best = value;
                at = h * window->width + w;
            }
        }
    *y = best;
    *where = (int32_t)at;
}

/* Windows column .. column + 7 of one row; constants for kw and sw make the common ones fast. */
__attribute__((always_inline)) static inline void
greatest_of_eight(const struct window *window, const float *x, struct rows down, int64_t column,
                  int64_t kw, int64_t sw, float *y, int32_t *where) {
    int64_t at = down.first * window->width + column * sw - window->left;
    v8 best = load8_apart(x + at, sw);
    v8i place = number8(at, sw);
    for (int64_t h = down.first; h < down.last; h++, at += window->width)
        for (int64_t w = 0; w < kw; w++) {
            v8 value = load8_apart(x + at + w, sw);
            v8i better = (value > best) | (value != value);
            best = select8(better, value, best);
            place = (better & number8(at + w, sw)) | (~better & place);
        }
    store8(y, best);
    store8i(where, place);
}

__attribute__((always_inline)) static inline void
greatest_of_row(const struct pooling *pooling, const float *x, int64_t row, int64_t kw, int64_t sw,
                float *y, int32_t *where) {
    const struct window *window = &pooling->window;
    struct rows down = rows_of(window, row);
    int64_t first = pooling->inside_first, last = pooling->inside_last;
    for (int64_t j = 0; j < first; j++)
        greatest_of_one(window, x, row, j, y + j, where + j);
    int64_t j = first;
    for (; j + LANES <= last; j += LANES)
        greatest_of_eight(window, x, down, j, kw, sw, y + j, where + j);
    if (j < last && last - first >= LANES) {
        greatest_of_eight(window, x, down, last - LANES, kw, sw, y + last - LANES,
                          where + last - LANES);
        j = last;
    }
    for (; j < window->columns; j++)
        greatest_of_one(window, x, row, j, y + j, where + j);
}

static void max_pool_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    int64_t row, last;
    share_of(pooling->planes * window->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = pooling->x + row / window->rows * window->height * window->width;
        float *y = pooling->y + row * window->columns;
        int32_t *where = pooling->where + row * window->columns;
        int64_t i = row % window->rows;
        if (window->kw == 2 && window->sw == 2)
            greatest_of_row(pooling, x, i, 2, 2, y, where);
        else if (window->kw == 3 && window->sw == 2)
            greatest_of_row(pooling, x, i, 3, 2, y, where);
        else if (window->kw == 3 && window->sw == 1)
            greatest_of_row(pooling, x, i, 3, 1, y, where);
        else
            greatest_of_row(pooling, x, i, window->kw, window->sw, y, where);
    }
}

static void max_pool_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    int64_t pixels = window->height * window->width, windows = window->rows * window->columns;
    int64_t plane, last;
    share_of(pooling->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        const float *dy = pooling->x + plane * windows;
        const int32_t *where = pooling->where + plane * windows;
        float *dx = pooling->y + plane * pixels;
        memset(dx, 0, (size_t)pixels * sizeof *dx);
        for (int64_t n = 0; n < windows; n++)
            if ((uint32_t)where[n] < (uint32_t)pixels) /* a plan may have laid anything over it */
                dx[where[n]] += dy[n];
    }
}

/* --- mean ---------------------------------------------------------------------------------- */

static float mean_of_one(const struct window *window, const float *x, int64_t row, int64_t column) {
    struct rows down = rows_of(window, row), across = columns_of(window, column);
    float sum = 0.0f;
    for (int64_t h = down.first; h < down.last; h++)
        for (int64_t w = across.first; w < across.last; w++)
            sum += x[h * window->width + w];
    return sum / (float)((down.last - down.first) * (across.last - across.first));
}

__attribute__((always_inline)) static inline v8 mean_of_eight(const struct window *window,
                                                              const float *x, struct rows down,
                                                              int64_t column, int64_t kw,
                                                              int64_t sw) {
    const float *at = x + down.first * window->width + column * sw - window->left;
    v8 sum = all8(0.0f);
    for (int64_t h = down.first; h < down.last; h++, at += window->width)
        for (int64_t w = 0; w < kw; w++)
            sum += load8_apart(at + w, sw);
    return sum / (float)((down.last - down.first) * kw);
}

__attribute__((always_inline)) static inline void means_of_row(const struct pooling *pooling,
                                                               const float *x, int64_t row,
                                                               int64_t kw, int64_t sw, float *y) {
    const struct window *window = &pooling->window;
    struct rows down = rows_of(window, row);
    int64_t j = 0;
    for (; j < pooling->inside_first; j++)
        y[j] = mean_of_one(window, x, row, j);
    for (; j + LANES <= pooling->inside_last; j += LANES)
        store8(y + j, mean_of_eight(window, x, down, j, kw, sw));
    for (; j < window->columns; j++)
        y[j] = mean_of_one(window, x, row, j);
}

static void avg_pool_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    int64_t row, last;
    share_of(pooling->planes * window->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = pooling->x + row / window->rows * window->height * window->width;
        float *y = pooling->y + row * window->columns;
        if (window->kw == 2 && window->sw == 2)
            means_of_row(pooling, x, row % window->rows, 2, 2, y);
        else if (window->kw == 3 && window->sw == 1)
            means_of_row(pooling, x, row % window->rows, 3, 1, y);
        else
            means_of_row(pooling, x, row % window->rows, window->kw, window->sw, y);
    }
}

/* Adds one window's share to all pixels that it saw. */
static void give_back(const struct window *window, float dy, int64_t row, int64_t column,
                      float *dx) {
    struct rows down = rows_of(window, row), across = columns_of(window, column);
    float share = dy / (float)((down.last - down.first) * (across.last - across.first));
    for (int64_t h = down.first; h < down.last; h++)
        for (int64_t w = across.first; w < across.last; w++)
            dx[h * window->width + w] += share;
}

/* Windows of two by two that do not overlap: each pixel is written once. */
static void give_back_pairs(const struct window *window, const float *dy, float *dx) {
    for (int64_t i = 0; i < window->rows; i++, dy += window->columns) {
        float *upper = dx + 2 * i * window->width, *lower = upper + window->width;
        for (int64_t j = 0; j < window->columns; j++) {
            float share = dy[j] * 0.25f;
            upper[2 * j] = upper[2 * j + 1] = share;
            lower[2 * j] = lower[2 * j + 1] = share;
        }
    }
}

static bool are_pairs(const struct window *window) {
    return window->kh == 2 && window->kw == 2 && window->sh == 2 && window->sw == 2 &&
           window->top == 0 && window->left == 0 && window->height == 2 * window->rows &&
           window->width == 2 * window->columns;
}

static void avg_pool_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct pooling *pooling = context;
    const struct window *window = &pooling->window;
    int64_t pixels = window->height * window->width, windows = window->rows * window->columns;
    int64_t plane, last;
    share_of(pooling->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        const float *dy = pooling->x + plane * windows;
        float *dx = pooling->y + plane * pixels;
        if (are_pairs(window)) {
            give_back_pairs(window, dy, dx);
            continue;
        }
        memset(dx, 0, (size_t)pixels * sizeof *dx);
        for (int64_t n = 0; n < windows; n++)
            give_back(window, dy[n], n / window->columns, n % window->columns, dx);
    }
}

/* --- windows, as operations ---------------------------------------------------------------- */

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

static struct pooling pooling_of(const struct op *op, const struct tensor *image,
                                 const struct tensor *pooled) {
    struct pooling pooling = {.planes = image->dim[0] * image->dim[1],
                              .window = window_of(op, image, pooled)};
    const struct window *window = &pooling.window;
    int64_t right = window->width + window->left - window->kw; /* where the last one inside begins */
    pooling.inside_first = least((window->left + window->sw - 1) / window->sw, window->columns);
    pooling.inside_last =
        right < 0 ? 0 : least(right / window->sw + 1, window->columns);
    pooling.inside_last = most(pooling.inside_last, pooling.inside_first);
    return pooling;
}

static void max_pool_forward_run(const struct op *op, struct scene *scene) {
    struct pooling pooling = pooling_of(op, op->in[0], op->out[0]);
    pooling.x = floats(op->in[0]);
    pooling.y = floats(op->out[0]);
    pooling.where = indices(op->out[1]);
    spread(scene, pooling.planes * pooling.window.rows, op->in[0]->count, max_pool_part, &pooling);
}

static void max_pool_gradient_run(const struct op *op, struct scene *scene) {
    struct pooling pooling = pooling_of(op, op->out[0], op->in[1]);
    pooling.where = indices(op->in[0]);
    pooling.x = floats(op->in[1]);
    pooling.y = floats(op->out[0]);
    spread(scene, pooling.planes, op->out[0]->count, max_pool_gradient_part, &pooling);
}

static void avg_pool_forward_run(const struct op *op, struct scene *scene) {
    struct pooling pooling = pooling_of(op, op->in[0], op->out[0]);
    pooling.x = floats(op->in[0]);
    pooling.y = floats(op->out[0]);
    spread(scene, pooling.planes * pooling.window.rows, op->in[0]->count, avg_pool_part, &pooling);
}

static void avg_pool_gradient_run(const struct op *op, struct scene *scene) {
    struct pooling pooling = pooling_of(op, op->out[0], op->in[0]);
    pooling.x = floats(op->in[0]);
    pooling.y = floats(op->out[0]);
    spread(scene, pooling.planes, op->out[0]->count, avg_pool_gradient_part, &pooling);
}

/* Every window has to see at least one pixel, and every pixel has to have a number. */
static const char *check_window(const struct op *op, const struct tensor *image,
                                const struct tensor *pooled) {
    if (image->rank != 4 || pooled->rank != 4 || image->dim[0] != pooled->dim[0] ||
        image->dim[1] != pooled->dim[1])
        return "has images that do not fit each other";
    if (image->dim[2] > INT32_MAX / image->dim[3])
        return "has images that are too large";
    struct window window = window_of(op, image, pooled);
    const int64_t limit = 1 << 20;
    if (window.kh < 1 || window.kw < 1 || window.sh < 1 || window.sw < 1 || window.kh > limit ||
        window.kw > limit || window.sh > limit || window.sw > limit)
        return "has a window that cannot be";
    if (window.top < 0 || window.left < 0 || window.top >= window.kh || window.left >= window.kw)
        return "has padding that is not within its window";
    if (window.rows - 1 > (window.height - 1 + window.top) / window.sh ||
        window.columns - 1 > (window.width - 1 + window.left) / window.sw)
        return "has windows behind the end of its images";
    return NULL;
}

static const char *check_max_pool_forward(const struct op *op) {
    const char *fault = check_form(op, "f", "fx", 6, 0);
    if (!fault && !same_shape(op->out[0], op->out[1]))
        fault = "has places of another shape";
    return fault ? fault : check_window(op, op->in[0], op->out[0]);
}

static const char *check_max_pool_gradient(const struct op *op) {
    const char *fault = check_form(op, "xf", "f", 6, 0);
    if (!fault && !same_shape(op->in[0], op->in[1]))
        fault = "has places of another shape";
    return fault ? fault : check_window(op, op->out[0], op->in[1]);
}

static const char *check_avg_pool_forward(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 6, 0);
    return fault ? fault : check_window(op, op->in[0], op->out[0]);
}

static const char *check_avg_pool_gradient(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 6, 0);
    return fault ? fault : check_window(op, op->out[0], op->in[0]);
}

/* --- whole channels ------------------------------------------------------------------------ */

struct channels {
    const float *x;
    float *y;
    int64_t planes, pixels;
};

static void global_avg_pool_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct channels *channels = context;
    int64_t plane, last;
    share_of(channels->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        const float *x = channels->x + plane * channels->pixels;
        v8 a = all8(0.0f), b = a;
        int64_t i = 0;
        for (; i + 2 * LANES <= channels->pixels; i += 2 * LANES) {
            a += load8(x + i);
            b += load8(x + i + LANES);
        }
        float sum = sum8(a + b);
        for (; i < channels->pixels; i++)
            sum += x[i];
        channels->y[plane] = sum / (float)channels->pixels;
    }
}

static void global_avg_pool_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct channels *channels = context;
    int64_t plane, last;
    share_of(channels->planes, part, parts, &plane, &last);
    for (; plane < last; plane++) {
        float share = channels->x[plane] / (float)channels->pixels;
        float *dx = channels->y + plane * channels->pixels;
        int64_t i = 0;
        for (; i + LANES <= channels->pixels; i += LANES)
            store8(dx + i, all8(share));
        for (; i < channels->pixels; i++)
            dx[i] = share;
    }
}

static void global_avg_pool_forward_run(const struct op *op, struct scene *scene) {
    int64_t planes = op->out[0]->count;
    struct channels channels = {floats(op->in[0]), floats(op->out[0]), planes,
                                op->in[0]->count / planes};
    spread(scene, planes, op->in[0]->count, global_avg_pool_part, &channels);
}

static void global_avg_pool_gradient_run(const struct op *op, struct scene *scene) {
    int64_t planes = op->in[0]->count;
    struct channels channels = {floats(op->in[0]), floats(op->out[0]), planes,
                                op->out[0]->count / planes};
    spread(scene, planes, op->out[0]->count, global_avg_pool_gradient_part, &channels);
}

static const char *check_planes(const struct tensor *image, const struct tensor *means) {
    if (image->rank < 2 || means->count != image->dim[0] * image->dim[1])
        return "has means that do not fit its channels";
    return NULL;
}

static const char *check_global_avg_pool_forward(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 0, 0);
    return fault ? fault : check_planes(op->in[0], op->out[0]);
}

static const char *check_global_avg_pool_gradient(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 0, 0);
    return fault ? fault : check_planes(op->out[0], op->in[0]);
}

static const struct op_kind max_pool_forward = {"max_pool_forward", check_max_pool_forward, NULL,
                                                NULL, max_pool_forward_run};
static const struct op_kind max_pool_gradient = {"max_pool_gradient", check_max_pool_gradient, NULL,
                                                 NULL, max_pool_gradient_run};
static const struct op_kind avg_pool_forward = {"avg_pool_forward", check_avg_pool_forward, NULL,
                                                NULL, avg_pool_forward_run};
static const struct op_kind avg_pool_gradient = {"avg_pool_gradient", check_avg_pool_gradient, NULL,
                                                 NULL, avg_pool_gradient_run};
static const struct op_kind global_avg_pool_forward = {
    "global_avg_pool_forward", check_global_avg_pool_forward, NULL, NULL,
    global_avg_pool_forward_run};
static const struct op_kind global_avg_pool_gradient = {
    "global_avg_pool_gradient", check_global_avg_pool_gradient, NULL, NULL,
    global_avg_pool_gradient_run};

const struct op_kind *const pooling_kinds[] = {
    &max_pool_forward,        &max_pool_gradient,        &avg_pool_forward, &avg_pool_gradient,
    &global_avg_pool_forward, &global_avg_pool_gradient, NULL,
};
