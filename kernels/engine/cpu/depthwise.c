/* depthwise.c - convolutions of one channel by its own kernel: no product, only memory and sums.
 *
 * The one rule: a plane is copied into the order of window.h, small enough to stay in the first
 * caches, and then eight pixels at a time meet every tap. The input gradient is the same over dy,
 * phase by phase; the weight gradient keeps one sum a tap. */
#include <string.h>

#include "../pool.h"
#include "products.h"
#include "tile.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

/* Planes of a convolution, or of one phase of its input gradient. */
struct planes {
    const struct conv *conv;
    struct window window;
    struct band band;
    int64_t taps;
    int32_t *offsets, *picks; /* where a tap reads; which weight it is */
    const float *source, *w, *b, *dy;
    float *target;
    int64_t target_plane, row_step, column_step;
    float *scratch;
    int64_t scratch_floats, plane_floats, dy_floats;
};

static int64_t scratch_of(const struct planes *planes) {
    return planes->plane_floats + planes->dy_floats + whole_lines(planes->taps) * 9;
}

static void measure(struct planes *planes, bool with_dy) {
    planes->band = band_of(&planes->window, planes->window.rows, 1);
    planes->taps = planes->window.kh * planes->window.kw;
    planes->plane_floats = whole_lines(planes->band.floats);
    planes->dy_floats =
        with_dy ? whole_lines(planes->band.rows * planes->band.pitch + WINDOW_SLACK) : 0;
    planes->scratch_floats = scratch_of(planes);
}

static void settle(struct planes *planes, void *workspace) {
    planes->offsets = workspace;
    planes->picks = planes->offsets + whole_lines(planes->taps);
    planes->scratch = (float *)(planes->picks + whole_lines(planes->taps));
    int64_t tap = 0;
    for (int64_t kh = 0; kh < planes->window.kh; kh++)
        for (int64_t kw = 0; kw < planes->window.kw; kw++)
            planes->offsets[tap++] =
                (int32_t)tap_offset(&planes->window, &planes->band, 0, kh, kw);
}

size_t depthwise_workspace(const struct conv *conv, int threads) {
    struct planes planes = {.conv = conv, .window = conv->window};
    measure(&planes, true);
    int64_t floats = planes.scratch_floats, taps = planes.taps;
    const struct window *window = &conv->window;
    for (int64_t down = 0; down < least(window->sh, window->kh); down++)
        for (int64_t across = 0; across < least(window->sw, window->kw); across++) {
            planes.window = phase_of_input(window, down, across).window;
            if (planes.window.rows < 1 || planes.window.columns < 1)
                continue;
            measure(&planes, false);
            floats = most(floats, planes.scratch_floats);
        }
    return sizeof(float) * (size_t)(2 * whole_lines(taps) + threads * floats);
}

/* ---- forward, and input gradient by phases ---- */

static void put_eight(const struct planes *planes, float *to, v8 sum, int64_t count) {
    if (count >= 8 && planes->column_step == 1) {
        store8(to, sum);
        return;
    }
    float lane[8];
    store8(lane, sum);
    for (int64_t j = 0; j < least(8, count); j++)
        to[j * planes->column_step] = lane[j];
}

/* Thirty-two pixels where the row is long enough, so that sums need not wait for one another. */
ALWAYS_INLINE void one_row(const struct planes *planes, int64_t taps, const float *band,
                           const float *w, float b, float *to) {
    int64_t columns = planes->window.columns, j = 0;
    for (; j + 24 < columns; j += 32) {
        v8 sum[4] = {all8(b), all8(b), all8(b), all8(b)};
        for (int64_t tap = 0; tap < taps; tap++) {
            const float *x = band + j + planes->offsets[tap];
            for (int n = 0; n < 4; n++)
                sum[n] += w[tap] * load8(x + 8 * n);
        }
        for (int n = 0; n < 4; n++)
            put_eight(planes, to + (j + 8 * n) * planes->column_step, sum[n], columns - j - 8 * n);
    }
    for (; j < columns; j += 8) {
        v8 sum = all8(b);
        for (int64_t tap = 0; tap < taps; tap++)
            sum += w[tap] * load8(band + j + planes->offsets[tap]);
        put_eight(planes, to + j * planes->column_step, sum, columns - j);
    }
}

static void one_plane(const struct planes *planes, const float *band, const float *w, float b,
                      float *to) {
    for (int64_t row = 0; row < planes->window.rows; row++) {
        if (planes->taps == 9)
            one_row(planes, 9, band, w, b, to);
        else
            one_row(planes, planes->taps, band, w, b, to);
        band += planes->band.pitch;
        to += planes->row_step;
    }
}

static void plane_part(void *context, int part, int parts, int worker) {
    const struct planes *planes = context;
    int64_t channels = planes->conv->in, first, last;
    share_of(planes->conv->images * channels, part, parts, &first, &last);
    float *band = planes->scratch + worker * planes->scratch_floats;
    float *w = band + planes->plane_floats + planes->dy_floats;
    int64_t area = planes->window.height * planes->window.width;
    for (int64_t plane = first; plane < last; plane++) {
        int64_t c = plane % channels;
        for (int64_t tap = 0; tap < planes->taps; tap++)
            w[tap] = planes->w[c * conv_taps(planes->conv) + planes->picks[tap]];
        band_copy(&planes->window, &planes->band, 0, 1, planes->source + plane * area, band);
        one_plane(planes, band, w, planes->b ? planes->b[c] : 0.0f,
                  planes->target + plane * planes->target_plane);
    }
}

void depthwise_forward(const struct conv *conv, const float *x, const float *w, const float *b,
                       float *y, struct scene *scene) {
    struct planes planes = {.conv = conv, .window = conv->window, .source = x, .w = w, .b = b,
                            .target = y, .target_plane = conv_out_area(conv),
                            .row_step = conv->window.columns, .column_step = 1};
    measure(&planes, false);
    settle(&planes, scene->workspace);
    for (int64_t tap = 0; tap < planes.taps; tap++)
        planes.picks[tap] = (int32_t)tap;
    pool_run(scene->pool, pool_threads(scene->pool), plane_part, &planes);
}

static void input_phase(const struct conv *conv, const float *w, const float *dy, float *dx,
                        struct scene *scene, int64_t down, int64_t across) {
    const struct window *whole = &conv->window;
    struct phase_of_input phase = phase_of_input(whole, down, across);
    if (phase.window.rows < 1 || phase.window.columns < 1)
        return;
    struct planes planes = {.conv = conv, .window = phase.window, .source = dy, .w = w,
                            .target = dx + phase.first_h * whole->width + phase.first_w,
                            .target_plane = conv_area(conv), .row_step = whole->width * whole->sh,
                            .column_step = whole->sw};
    measure(&planes, false);
    settle(&planes, scene->workspace);
    int32_t *pick = planes.picks;
    for (int64_t th = phase.window.kh - 1; th >= 0; th--)
        for (int64_t tw = phase.window.kw - 1; tw >= 0; tw--)
            *pick++ = (int32_t)((down + th * whole->sh) * whole->kw + across + tw * whole->sw);
    pool_run(scene->pool, pool_threads(scene->pool), plane_part, &planes);
}

void depthwise_input_gradient(const struct conv *conv, const float *w, const float *dy, float *dx,
                              struct scene *scene) {
    const struct window *window = &conv->window;
    if (window->sh > window->kh || window->sw > window->kw)
        memset(dx, 0, (size_t)(conv->images * conv->in * conv_area(conv)) * sizeof(float));
    for (int64_t down = 0; down < least(window->sh, window->kh); down++)
        for (int64_t across = 0; across < least(window->sw, window->kw); across++)
            input_phase(conv, w, dy, dx, scene, down, across);
}

/* ---- weight gradient ---- */

ALWAYS_INLINE void gather_taps(const struct planes *planes, int64_t first, int taps, int64_t pixels,
                               const float *band, const float *dy, v8 *sums) {
    v8 sum[9];
    const float *at[9];
    for (int tap = 0; tap < taps; tap++) {
        sum[tap] = sums[first + tap];
        at[tap] = band + planes->offsets[first + tap];
    }
    for (int64_t p = 0; p < pixels; p += 8) {
        v8 one = load8(dy + p);
        for (int tap = 0; tap < taps; tap++)
            sum[tap] += one * load8(at[tap] + p);
    }
    for (int tap = 0; tap < taps; tap++)
        sums[first + tap] = sum[tap];
}

static void copy_dy(const struct planes *planes, const float *dy, float *to) {
    int64_t columns = planes->window.columns, pitch = planes->band.pitch;
    for (int64_t row = 0; row < planes->window.rows; row++, dy += columns, to += pitch) {
        memcpy(to, dy, (size_t)columns * sizeof *to);
        for (int64_t j = columns; j < pitch; j++)
            to[j] = 0.0f;
    }
    memset(to, 0, WINDOW_SLACK * sizeof *to);
}

static void weight_part(void *context, int part, int parts, int worker) {
    const struct planes *planes = context;
    const struct conv *conv = planes->conv;
    int64_t first, last, pixels = planes->window.rows * planes->band.pitch;
    share_of(conv->in, part, parts, &first, &last);
    float *band = planes->scratch + worker * planes->scratch_floats;
    float *dy = band + planes->plane_floats;
    v8 *sums = (v8 *)(dy + planes->dy_floats);
    for (int64_t c = first; c < last; c++) {
        for (int64_t tap = 0; tap < planes->taps; tap++)
            sums[tap] = all8(0.0f);
        for (int64_t n = 0; n < conv->images; n++) {
            int64_t plane = n * conv->in + c, tap = 0;
            band_copy(&planes->window, &planes->band, 0, 1,
                      planes->source + plane * conv_area(conv), band);
            copy_dy(planes, planes->dy + plane * conv_out_area(conv), dy);
            for (; tap + 9 <= planes->taps; tap += 9)
                gather_taps(planes, tap, 9, pixels, band, dy, sums);
            for (; tap + 4 <= planes->taps; tap += 4)
                gather_taps(planes, tap, 4, pixels, band, dy, sums);
            for (; tap < planes->taps; tap++)
                gather_taps(planes, tap, 1, pixels, band, dy, sums);
        }
        for (int64_t tap = 0; tap < planes->taps; tap++)
            planes->target[c * planes->taps + tap] = sum8(sums[tap]);
    }
}

void depthwise_weight_gradient(const struct conv *conv, const float *x, const float *dy, float *dw,
                               struct scene *scene) {
    struct planes planes = {.conv = conv, .window = conv->window, .source = x, .dy = dy,
                            .target = dw};
    measure(&planes, true);
    settle(&planes, scene->workspace);
    pool_run(scene->pool, pool_threads(scene->pool), weight_part, &planes);
}
