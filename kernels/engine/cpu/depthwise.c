/* depthwise.c - convolutions of one channel by its own kernel: no product, only memory and sums.
 *
 * The one rule: a plane is copied into the order of window.h, small enough to stay in the first
 * caches, and then eight pixels at a time meet every tap. The input gradient is the same over dy,
 * each phase of the stride with the taps that it meets; the weight gradient keeps one sum a tap. */
#include <string.h>

#include "../pool.h"
#include "products.h"
#include "tile.h"

static int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

/* Pixels of the target that meet the same taps: all of them in the forward direction, every
 * stride-th one in the input gradient. */
struct comb {
    int64_t rows, columns, first_h, first_w;
    int64_t taps, first_tap; /* within the lists of planes */
};

struct planes {
    const struct conv *conv;
    struct window window; /* what is copied of a source plane */
    struct band band;
    int64_t taps; /* of all phases */
    int32_t *offsets, *picks; /* where a tap reads; which weight it is */
    int64_t phases_down, phases_across;
    struct comb *combs;
    const float *source, *w, *b, *dy;
    float *target;
    int64_t target_area, target_width, step_down, step_across;
    float *scratch;
    int64_t band_floats, row_floats, weight_floats; /* of one worker's scratch */
};

static int64_t scratch_floats(const struct planes *planes) {
    return planes->band_floats + planes->row_floats + planes->weight_floats;
}

static int64_t comb_floats(int64_t phases) {
    return whole_lines(phases * (int64_t)(sizeof(struct comb) / sizeof(float)));
}

/* ---- what is to be done ---- */

static struct planes forward_planes(const struct conv *conv) {
    struct planes planes = {.conv = conv, .window = conv->window, .taps = conv_taps(conv),
                            .phases_down = 1, .phases_across = 1, .step_down = 1, .step_across = 1,
                            .target_area = conv_out_area(conv),
                            .target_width = conv->window.columns};
    planes.band = band_of(&planes.window, planes.window.rows, 1);
    planes.band_floats = whole_lines(planes.band.floats);
    planes.weight_floats = whole_lines(planes.taps) * 8;
    return planes;
}

/* One copy of dy serves all phases: its padding is the greatest that any of them wants. */
static struct planes input_planes(const struct conv *conv) {
    const struct window *whole = &conv->window;
    struct planes planes = {.conv = conv, .taps = conv_taps(conv),
                            .phases_down = least(whole->sh, whole->kh),
                            .phases_across = least(whole->sw, whole->kw), .step_down = whole->sh,
                            .step_across = whole->sw, .target_area = conv_area(conv),
                            .target_width = whole->width};
    struct window copy = {.height = whole->rows, .width = whole->columns, .rows = 1, .columns = 1,
                          .kh = 1, .kw = 1, .sh = 1, .sw = 1, .top = INT32_MIN, .left = INT32_MIN};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t down = 0; down < planes.phases_down; down++)
            for (int64_t across = 0; across < planes.phases_across; across++) {
                struct window part = phase_of_input(whole, down, across).window;
                if (pass == 0) {
                    copy.top = most(copy.top, part.top), copy.left = most(copy.left, part.left);
                    continue;
                }
                copy.rows = most(copy.rows, part.rows);
                copy.columns = most(copy.columns, part.columns);
                copy.kh = most(copy.kh, part.kh + copy.top - part.top);
                copy.kw = most(copy.kw, part.kw + copy.left - part.left);
            }
    planes.window = copy;
    planes.band = band_of(&copy, copy.rows, 1);
    planes.band_floats = whole_lines(planes.band.floats);
    planes.row_floats = whole_lines(whole->width / whole->sw + 16) * planes.phases_across;
    planes.weight_floats = whole_lines(planes.taps) * 8;
    return planes;
}

static size_t bytes_of(const struct planes *planes, int threads) {
    int64_t floats = 2 * whole_lines(planes->taps) +
                     comb_floats(planes->phases_down * planes->phases_across) +
                     threads * scratch_floats(planes);
    return sizeof(float) * (size_t)floats;
}

static void lay_out(struct planes *planes, void *workspace) {
    float *at = workspace;
    planes->offsets = (int32_t *)at, at += whole_lines(planes->taps);
    planes->picks = (int32_t *)at, at += whole_lines(planes->taps);
    planes->combs = (struct comb *)at;
    at += comb_floats(planes->phases_down * planes->phases_across);
    planes->scratch = at;
}

static void write_forward_taps(struct planes *planes) {
    const struct window *window = &planes->window;
    planes->combs[0] = (struct comb){window->rows, window->columns, 0, 0, planes->taps, 0};
    int32_t tap = 0;
    for (int64_t kh = 0; kh < window->kh; kh++)
        for (int64_t kw = 0; kw < window->kw; kw++, tap++) {
            planes->offsets[tap] = (int32_t)tap_offset(window, &planes->band, 0, kh, kw);
            planes->picks[tap] = tap;
        }
}

static void write_input_taps(struct planes *planes) {
    const struct window *whole = &planes->conv->window, *copy = &planes->window;
    struct comb *comb = planes->combs;
    int64_t tap = 0;
    for (int64_t down = 0; down < planes->phases_down; down++)
        for (int64_t across = 0; across < planes->phases_across; across++, comb++) {
            struct phase_of_input part = phase_of_input(whole, down, across);
            const struct window *window = &part.window;
            *comb = (struct comb){window->rows, window->columns, part.first_h, part.first_w,
                                    window->kh * window->kw, tap};
            for (int64_t th = 0; th < window->kh; th++)
                for (int64_t tw = 0; tw < window->kw; tw++, tap++) {
                    int64_t kh = down + (window->kh - 1 - th) * whole->sh;
                    int64_t kw = across + (window->kw - 1 - tw) * whole->sw;
                    planes->offsets[tap] = (int32_t)((copy->top - window->top + th) *
                                                         planes->band.pitch +
                                                     copy->left - window->left + tw);
                    planes->picks[tap] = (int32_t)(kh * whole->kw + kw);
                }
        }
}

/* ---- forward, and input gradient ---- */

/* Eight pixels, or fewer; pixels behind the last may be written where `loose` says so, because they
 * are those of a row that comes later. */
ALWAYS_INLINE void put_eight(float *to, v8 sum, int64_t count, bool loose) {
    if (count >= 8 || loose) {
        store8(to, sum);
        return;
    }
    for (int64_t lane = 0; lane < count; lane++)
        to[lane] = sum[lane];
}

/* Where rows of a comb come from and go to. */
struct rows {
    const struct comb *comb;
    const float *band, *w;
    const int32_t *offsets;
    float b;
    int64_t first, last, pitch;
    float *to;
    int64_t step;
    bool loose;
};

/* Few taps: their weights stay in registers. */
ALWAYS_INLINE void rows_of_few(const struct rows *rows, int taps) {
    v8 weight[9];
    const float *at[9];
    UNROLL for (int tap = 0; tap < taps; tap++) {
        weight[tap] = all8(rows->w[tap]);
        at[tap] = rows->band + rows->offsets[tap] + rows->first * rows->pitch;
    }
    int64_t columns = rows->comb->columns, pitch = rows->pitch, step = rows->step;
    int64_t count = rows->last - rows->first, room = rows->loose ? count * step : 0;
    v8 start = all8(rows->b);
    float *to = rows->to;
    for (int64_t p = 0; p < count * pitch; p += pitch, to += step, room -= step)
        for (int64_t j = 0; j < columns; j += 8) {
            v8 sum = start;
            UNROLL for (int tap = 0; tap < taps; tap++)
                sum += weight[tap] * load8(at[tap] + p + j);
            put_eight(to + j, sum, columns - j, j + 8 <= room);
        }
}

static void rows_of_many(const struct rows *rows, int64_t taps) {
    int64_t columns = rows->comb->columns;
    float *to = rows->to;
    for (int64_t row = rows->first; row < rows->last; row++, to += rows->step) {
        const float *band = rows->band + row * rows->pitch;
        for (int64_t j = 0; j < columns; j += 16) {
            v8 left = all8(rows->b), right = left;
            for (int64_t tap = 0; tap < taps; tap++) {
                const float *x = band + rows->offsets[tap] + j;
                left += rows->w[tap] * load8(x);
                right += rows->w[tap] * load8(x + 8);
            }
            put_eight(to + j, left, columns - j, false);
            put_eight(to + j + 8, right, columns - j - 8, false);
        }
    }
}

static void rows_of(const struct rows *rows) {
    switch (rows->comb->taps) {
    case 1:
        rows_of_few(rows, 1);
        break;
    case 2:
        rows_of_few(rows, 2);
        break;
    case 4:
        rows_of_few(rows, 4);
        break;
    case 9:
        rows_of_few(rows, 9);
        break;
    default:
        rows_of_many(rows, rows->comb->taps);
    }
}

/* A row of the target from the rows of its phases, alternately. */
static void weave_two(const float *even, const float *odd, int64_t width, float *to) {
    int64_t j = 0;
    for (; j + 16 <= width; j += 16) {
        v8 a = load8(even + j / 2), b = load8(odd + j / 2);
        store8(to + j, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
        store8(to + j + 8, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
    }
    for (; j < width; j++)
        to[j] = j & 1 ? odd[j / 2] : even[j / 2];
}

static void weave(const struct planes *planes, const struct comb *combs, const float *rows,
                  int64_t row_floats, float *to) {
    if (planes->step_across == 2 && planes->phases_across == 2) {
        const float *first = rows, *second = rows + row_floats;
        bool swapped = combs[0].first_w == 1;
        weave_two(swapped ? second : first, swapped ? first : second, planes->target_width, to);
        return;
    }
    for (int64_t across = 0; across < planes->phases_across; across++)
        for (int64_t j = 0; j < combs[across].columns; j++)
            to[combs[across].first_w + j * planes->step_across] = rows[across * row_floats + j];
}

/* Rows of one residue: each phase across makes its row beside, then they are woven together. */
static void woven_rows(const struct planes *planes, const struct comb *combs, const float *band,
                       const float *w, float *beside, float *target) {
    int64_t row_floats = planes->row_floats / planes->phases_across;
    for (int64_t row = 0; row < combs[0].rows; row++) {
        for (int64_t across = 0; across < planes->phases_across; across++) {
            const struct comb *comb = &combs[across];
            rows_of(&(struct rows){comb, band, w + comb->first_tap,
                                   planes->offsets + comb->first_tap, 0.0f, row, row + 1,
                                   planes->band.pitch, beside + across * row_floats, 0, false});
        }
        weave(planes, combs, beside, row_floats,
              target + (combs[0].first_h + row * planes->step_down) * planes->target_width);
    }
}

static void one_plane(const struct planes *planes, const float *band, const float *w, float b,
                      float *beside, float *target) {
    for (int64_t down = 0; down < planes->phases_down; down++) {
        const struct comb *combs = planes->combs + down * planes->phases_across;
        if (planes->step_across > 1)
            woven_rows(planes, combs, band, w, beside, target);
        else
            rows_of(&(struct rows){combs, band, w + combs->first_tap,
                                   planes->offsets + combs->first_tap, b, 0, combs->rows,
                                   planes->band.pitch,
                                   target + combs->first_h * planes->target_width,
                                   planes->target_width * planes->step_down,
                                   planes->step_down == 1});
    }
}

static void plane_part(void *context, int part, int parts, int worker) {
    const struct planes *planes = context;
    int64_t channels = planes->conv->in, first, last;
    share_of(planes->conv->images * channels, part, parts, &first, &last);
    float *band = planes->scratch + worker * scratch_floats(planes);
    float *rows = band + planes->band_floats, *w = rows + planes->row_floats;
    int64_t area = planes->window.height * planes->window.width;
    bool gaps = planes->step_down > planes->phases_down ||
                planes->step_across > planes->phases_across;
    memset(band, 0, (size_t)planes->band_floats * sizeof(float));
    for (int64_t plane = first; plane < last; plane++) {
        int64_t c = plane % channels;
        float *target = planes->target + plane * planes->target_area;
        for (int64_t tap = 0; tap < planes->taps; tap++)
            w[tap] = planes->w[c * planes->taps + planes->picks[tap]];
        band_refill(&planes->window, &planes->band, planes->source + plane * area, band);
        if (gaps)
            memset(target, 0, (size_t)planes->target_area * sizeof(float));
        one_plane(planes, band, w, planes->b ? planes->b[c] : 0.0f, rows, target);
    }
}

void depthwise_forward(const struct conv *conv, const float *x, const float *w, const float *b,
                       float *y, struct scene *scene) {
    struct planes planes = forward_planes(conv);
    planes.source = x, planes.w = w, planes.b = b, planes.target = y;
    lay_out(&planes, scene->workspace);
    write_forward_taps(&planes);
    pool_run(scene->pool, pool_threads(scene->pool), plane_part, &planes);
}

void depthwise_input_gradient(const struct conv *conv, const float *w, const float *dy, float *dx,
                              struct scene *scene) {
    struct planes planes = input_planes(conv);
    planes.source = dy, planes.w = w, planes.target = dx;
    lay_out(&planes, scene->workspace);
    write_input_taps(&planes);
    pool_run(scene->pool, pool_threads(scene->pool), plane_part, &planes);
}

/* ---- weight gradient ---- */

static struct planes weight_planes(const struct conv *conv) {
    struct planes planes = forward_planes(conv);
    planes.row_floats = whole_lines(planes.band.rows * planes.band.pitch + WINDOW_SLACK);
    return planes;
}

ALWAYS_INLINE void gather_taps(const struct planes *planes, int64_t first, int taps, int64_t pixels,
                               const float *band, const float *dy, v8 *sums) {
    v8 sum[9];
    const float *at[9];
    UNROLL for (int tap = 0; tap < taps; tap++) {
        sum[tap] = sums[first + tap];
        at[tap] = band + planes->offsets[first + tap];
    }
    for (int64_t p = 0; p < pixels; p += 8) {
        v8 one = load8(dy + p);
        UNROLL for (int tap = 0; tap < taps; tap++)
            sum[tap] += one * load8(at[tap] + p);
    }
    UNROLL for (int tap = 0; tap < taps; tap++)
        sums[first + tap] = sum[tap];
}

static void gather_plane(const struct planes *planes, const float *band, const float *dy,
                         v8 *sums) {
    int64_t tap = 0, pixels = planes->window.rows * planes->band.pitch;
    for (; tap + 9 <= planes->taps; tap += 9)
        gather_taps(planes, tap, 9, pixels, band, dy, sums);
    for (; tap + 4 <= planes->taps; tap += 4)
        gather_taps(planes, tap, 4, pixels, band, dy, sums);
    for (; tap < planes->taps; tap++)
        gather_taps(planes, tap, 1, pixels, band, dy, sums);
}

static void weight_part(void *context, int part, int parts, int worker) {
    const struct planes *planes = context;
    const struct conv *conv = planes->conv;
    int64_t first, last;
    share_of(conv->in, part, parts, &first, &last);
    float *band = planes->scratch + worker * scratch_floats(planes);
    float *dy = band + planes->band_floats;
    v8 *sums = (v8 *)(dy + planes->row_floats);
    /* dy in rows as far apart as the band's; what lies between them stays zero. */
    struct window rows = {conv->window.rows, conv->window.columns, conv->window.rows,
                          conv->window.columns, 1, 1, 1, 1, 0, 0};
    struct band apart = {.rows = rows.rows, .pitch = planes->band.pitch, .phases_down = 1,
                         .phases_across = 1, .input_rows = rows.rows};
    memset(band, 0, (size_t)(planes->band_floats + planes->row_floats) * sizeof(float));
    for (int64_t c = first; c < last; c++) {
        for (int64_t tap = 0; tap < planes->taps; tap++)
            sums[tap] = all8(0.0f);
        for (int64_t n = 0; n < conv->images; n++) {
            int64_t plane = n * conv->in + c;
            band_refill(&planes->window, &planes->band, planes->source + plane * conv_area(conv),
                        band);
            band_refill(&rows, &apart, planes->dy + plane * conv_out_area(conv), dy);
            gather_plane(planes, band, dy, sums);
        }
        for (int64_t tap = 0; tap < planes->taps; tap++)
            planes->target[c * planes->taps + tap] = sum8(sums[tap]);
    }
}

void depthwise_weight_gradient(const struct conv *conv, const float *x, const float *dy, float *dw,
                               struct scene *scene) {
    struct planes planes = weight_planes(conv);
    planes.source = x, planes.dy = dy, planes.target = dw;
    lay_out(&planes, scene->workspace);
    write_forward_taps(&planes);
    pool_run(scene->pool, pool_threads(scene->pool), weight_part, &planes);
}

size_t depthwise_workspace(const struct conv *conv, int threads) {
    struct planes forward = weight_planes(conv), back = input_planes(conv);
    size_t there = bytes_of(&forward, threads), here = bytes_of(&back, threads);
    return there > here ? there : here;
}
