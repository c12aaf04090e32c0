/* depthwise.c - depthwise convolution: every channel has its own kernel, so there is no matrix
 * product.
 *
 * The one rule: a plane is packed as in window.h, small enough for the L1 or L2 cache, and then
 * every tap is applied to eight pixels at a time. The input gradient does the same over dy, each
 * phase of the stride with its own taps; the weight gradient keeps one sum per tap. */
#include <string.h>

#include "../thread_pool.h"
#include "conv.h"
#include "microkernel.h"

/* Pixels of the output that use the same taps: all of them in the forward direction, every
 * stride-th one in the input gradient. */
struct output_phase {
    int64_t rows, columns, first_h, first_w;
    int64_t taps, first_tap; /* positions in the lists of struct planes */
};

struct planes {
    const struct conv *conv;
    struct window window; /* what is packed of an input plane */
    struct band band;
    int64_t taps;                       /* of all phases */
    int32_t *tap_offsets, *tap_weights; /* where a tap reads; which weight it uses */
    int64_t phases_down, phases_across;
    struct output_phase *phases;
    const float *input, *w, *b, *dy;
    float *output;
    int64_t output_area, output_width, stride_down, stride_across;
    float *scratch;
    int64_t band_floats, row_floats, weight_floats; /* of the scratch of one worker */
};

static int64_t scratch_floats(const struct planes *planes) {
    return planes->band_floats + planes->row_floats + planes->weight_floats;
}

static int64_t phase_floats(int64_t phases) {
    return cache_line_floats(phases * (int64_t)(sizeof(struct output_phase) / sizeof(float)));
}

/* ---- planning ---- */

static struct planes plan_forward(const struct conv *conv) {
    struct planes planes = {.conv = conv,
                            .window = conv->window,
                            .taps = conv_taps(conv),
                            .phases_down = 1,
                            .phases_across = 1,
                            .stride_down = 1,
                            .stride_across = 1,
                            .output_area = conv_out_area(conv),
                            .output_width = conv->window.columns};
    planes.band = band_of(&planes.window, planes.window.rows, 1);
    planes.band_floats = cache_line_floats(planes.band.floats);
    planes.weight_floats = cache_line_floats(planes.taps) * 8;
    return planes;
}

/* One packed copy of dy serves all phases, with the largest padding that any of them needs. */
static struct planes plan_input_gradient(const struct conv *conv) {
    const struct window *whole = &conv->window;
    struct planes planes = {.conv = conv,
                            .taps = conv_taps(conv),
                            .phases_down = min_i64(whole->sh, whole->kh),
                            .phases_across = min_i64(whole->sw, whole->kw),
                            .stride_down = whole->sh,
                            .stride_across = whole->sw,
                            .output_area = conv_area(conv),
                            .output_width = whole->width};
    struct window copy = {.height = whole->rows,
                          .width = whole->columns,
                          .rows = 1,
                          .columns = 1,
                          .kh = 1,
                          .kw = 1,
                          .sh = 1,
                          .sw = 1,
                          .top = INT32_MIN,
                          .left = INT32_MIN};
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t down = 0; down < planes.phases_down; down++) {
            for (int64_t across = 0; across < planes.phases_across; across++) {
                struct window part = input_phase_of(whole, down, across).window;
                if (pass == 0) {
                    copy.top = max_i64(copy.top, part.top);
                    copy.left = max_i64(copy.left, part.left);
                    continue;
                }
                copy.rows = max_i64(copy.rows, part.rows);
                copy.columns = max_i64(copy.columns, part.columns);
                copy.kh = max_i64(copy.kh, part.kh + copy.top - part.top);
                copy.kw = max_i64(copy.kw, part.kw + copy.left - part.left);
            }
        }
    }
    planes.window = copy;
    planes.band = band_of(&copy, copy.rows, 1);
    planes.band_floats = cache_line_floats(planes.band.floats);
    planes.row_floats = cache_line_floats(whole->width / whole->sw + 16) * planes.phases_across;
    planes.weight_floats = cache_line_floats(planes.taps) * 8;
    return planes;
}

static size_t workspace_bytes(const struct planes *planes, int threads) {
    int64_t floats = 2 * cache_line_floats(planes->taps) +
                     phase_floats(planes->phases_down * planes->phases_across) +
                     threads * scratch_floats(planes);
    return sizeof(float) * (size_t)floats;
}

static void bind_workspace(struct planes *planes, void *workspace) {
    float *at = workspace;
    planes->tap_offsets = (int32_t *)at;
    at += cache_line_floats(planes->taps);
    planes->tap_weights = (int32_t *)at;
    at += cache_line_floats(planes->taps);
    planes->phases = (struct output_phase *)at;
    at += phase_floats(planes->phases_down * planes->phases_across);
    planes->scratch = at;
}

static void list_forward_taps(struct planes *planes) {
    const struct window *window = &planes->window;
    planes->phases[0] = (struct output_phase){window->rows, window->columns, 0, 0, planes->taps, 0};
    int32_t tap = 0;
    for (int64_t kh = 0; kh < window->kh; kh++) {
        for (int64_t kw = 0; kw < window->kw; kw++, tap++) {
            planes->tap_offsets[tap] = (int32_t)tap_offset(window, &planes->band, 0, kh, kw);
            planes->tap_weights[tap] = tap;
        }
    }
}

static void list_input_taps(struct planes *planes) {
    const struct window *whole = &planes->conv->window, *copy = &planes->window;
    struct output_phase *phase = planes->phases;
    int64_t tap = 0;
    for (int64_t down = 0; down < planes->phases_down; down++) {
        for (int64_t across = 0; across < planes->phases_across; across++, phase++) {
            struct input_phase part = input_phase_of(whole, down, across);
            const struct window *window = &part.window;
            *phase = (struct output_phase){window->rows, window->columns,         part.first_h,
                                           part.first_w, window->kh * window->kw, tap};
            for (int64_t th = 0; th < window->kh; th++) {
                for (int64_t tw = 0; tw < window->kw; tw++, tap++) {
                    int64_t kh = down + (window->kh - 1 - th) * whole->sh;
                    int64_t kw = across + (window->kw - 1 - tw) * whole->sw;
                    planes->tap_offsets[tap] =
                        (int32_t)((copy->top - window->top + th) * planes->band.pitch + copy->left -
                                  window->left + tw);
                    planes->tap_weights[tap] = (int32_t)(kh * whole->kw + kw);
                }
            }
        }
    }
}

/* ---- forward and input gradient ---- */

/* Stores up to eight pixels. With `may_overrun`, lanes after the last pixel are stored as well,
 * because they belong to a row that is computed later. */
ALWAYS_INLINE void store_pixels(float *to, v8 sum, int64_t count, bool may_overrun) {
    if (count >= 8 || may_overrun) {
        store8(to, sum);
        return;
    }
    for (int64_t lane = 0; lane < count; lane++) {
        to[lane] = sum[lane];
    }
}

/* Rows [first, last) of an output phase: where they are read and stored. */
struct rows {
    const struct output_phase *phase;
    const float *band, *w;
    const int32_t *tap_offsets;
    float bias;
    int64_t first, last, pitch;
    float *to;
    int64_t row_stride;
    bool may_overrun;
};

#if defined(__aarch64__)
/* Sixteen pixels are four sums; a tap is loaded while the tap before is multiplied. */
ALWAYS_INLINE void convolve_16_pixels(const v8 weight[9], const float *const at[9], int taps,
                                      int64_t first, v8 start, float *to) {
    v4 sum[4], x[2][4];
    UNROLL
    for (int n = 0; n < 4; n++) {
        sum[n] = low4(start);
        x[0][n] = load4_ordered(at[0], first * 4 + n * 16);
    }
    UNROLL
    for (int tap = 0; tap < taps; tap++) {
        UNROLL
        for (int n = 0; n < 4; n++) {
            add_product4_ordered(&sum[n], x[tap % 2][n], low4(weight[tap]));
            if (tap + 1 < taps) {
                x[(tap + 1) % 2][n] = load4_ordered(at[tap + 1], first * 4 + n * 16);
            }
        }
    }
    store8(to, join4(sum[0], sum[1]));
    store8(to + 8, join4(sum[2], sum[3]));
}
#endif

/* For few taps: their weights stay in registers. */
ALWAYS_INLINE void convolve_rows_unrolled(const struct rows *rows, int taps) {
    v8 weight[9];
    const float *at[9];
    UNROLL
    for (int tap = 0; tap < taps; tap++) {
        weight[tap] = splat8(rows->w[tap]);
        at[tap] = rows->band + rows->tap_offsets[tap] + rows->first * rows->pitch;
    }
    int64_t columns = rows->phase->columns, pitch = rows->pitch, step = rows->row_stride;
    int64_t count = rows->last - rows->first, writable = rows->may_overrun ? count * step : 0;
    v8 start = splat8(rows->bias);
    float *to = rows->to;
    for (int64_t p = 0; p < count * pitch; p += pitch, to += step, writable -= step) {
        int64_t j = 0;
#if defined(__aarch64__)
        for (; j + 16 <= columns; j += 16) {
            convolve_16_pixels(weight, at, taps, p + j, start, to + j);
        }
#endif
        for (; j < columns; j += 8) {
            v8 sum = start;
            UNROLL
            for (int tap = 0; tap < taps; tap++) {
                sum += weight[tap] * load8(at[tap] + p + j);
            }
            store_pixels(to + j, sum, columns - j, j + 8 <= writable);
        }
    }
}

static void convolve_rows_generic(const struct rows *rows, int64_t taps) {
    int64_t columns = rows->phase->columns;
    float *to = rows->to;
    for (int64_t row = rows->first; row < rows->last; row++, to += rows->row_stride) {
        const float *band = rows->band + row * rows->pitch;
        for (int64_t j = 0; j < columns; j += 16) {
            v8 left = splat8(rows->bias), right = left;
            for (int64_t tap = 0; tap < taps; tap++) {
                const float *x = band + rows->tap_offsets[tap] + j;
                left += rows->w[tap] * load8(x);
                right += rows->w[tap] * load8(x + 8);
            }
            store_pixels(to + j, left, columns - j, false);
            store_pixels(to + j + 8, right, columns - j - 8, false);
        }
    }
}

static void convolve_rows(const struct rows *rows) {
    switch (rows->phase->taps) {
    case 1:
        convolve_rows_unrolled(rows, 1);
        break;
    case 2:
        convolve_rows_unrolled(rows, 2);
        break;
    case 4:
        convolve_rows_unrolled(rows, 4);
        break;
    case 9:
        convolve_rows_unrolled(rows, 9);
        break;
    default:
        convolve_rows_generic(rows, rows->phase->taps);
    }
}

/* to[2 j] = even[j], to[2 j + 1] = odd[j]. */
static void interleave_two(const float *even, const float *odd, int64_t width, float *to) {
    int64_t j = 0;
    for (; j + 16 <= width; j += 16) {
        v8 a = load8(even + j / 2), b = load8(odd + j / 2);
        store8(to + j, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
        store8(to + j + 8, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
    }
    for (; j < width; j++) {
        to[j] = j & 1 ? odd[j / 2] : even[j / 2];
    }
}

static void interleave(const struct planes *planes, const struct output_phase *phases,
                       const float *rows, int64_t row_floats, float *to) {
    if (planes->stride_across == 2 && planes->phases_across == 2) {
        const float *first = rows, *second = rows + row_floats;
        bool swapped = phases[0].first_w == 1;
        interleave_two(swapped ? second : first, swapped ? first : second, planes->output_width,
                       to);
        return;
    }
    for (int64_t across = 0; across < planes->phases_across; across++) {
        for (int64_t j = 0; j < phases[across].columns; j++) {
            to[phases[across].first_w + j * planes->stride_across] = rows[across * row_floats + j];
        }
    }
}

/* For a stride across: each phase computes its row into scratch, then the rows are interleaved. */
static void convolve_interleaved_rows(const struct planes *planes,
                                      const struct output_phase *phases, const float *band,
                                      const float *w, float *row_scratch, float *output) {
    int64_t row_floats = planes->row_floats / planes->phases_across;
    for (int64_t row = 0; row < phases[0].rows; row++) {
        for (int64_t across = 0; across < planes->phases_across; across++) {
            const struct output_phase *phase = &phases[across];
            convolve_rows(&(struct rows){.phase = phase,
                                         .band = band,
                                         .w = w + phase->first_tap,
                                         .tap_offsets = planes->tap_offsets + phase->first_tap,
                                         .first = row,
                                         .last = row + 1,
                                         .pitch = planes->band.pitch,
                                         .to = row_scratch + across * row_floats});
        }
        interleave(planes, phases, row_scratch, row_floats,
                   output + (phases[0].first_h + row * planes->stride_down) * planes->output_width);
    }
}

static void convolve_plane(const struct planes *planes, const float *band, const float *w, float b,
                           float *row_scratch, float *output) {
    for (int64_t down = 0; down < planes->phases_down; down++) {
        const struct output_phase *phases = planes->phases + down * planes->phases_across;
        if (planes->stride_across > 1) {
            convolve_interleaved_rows(planes, phases, band, w, row_scratch, output);
        } else {
            convolve_rows(&(struct rows){.phase = phases,
                                         .band = band,
                                         .w = w + phases->first_tap,
                                         .tap_offsets = planes->tap_offsets + phases->first_tap,
                                         .bias = b,
                                         .last = phases->rows,
                                         .pitch = planes->band.pitch,
                                         .to = output + phases->first_h * planes->output_width,
                                         .row_stride = planes->output_width * planes->stride_down,
                                         .may_overrun = planes->stride_down == 1});
        }
    }
}

static void plane_part(void *context, int part, int parts, int worker) {
    const struct planes *planes = context;
    int64_t channels = planes->conv->in, first, last;
    split_range(planes->conv->images * channels, part, parts, &first, &last);
    float *band = planes->scratch + worker * scratch_floats(planes);
    float *rows = band + planes->band_floats, *w = rows + planes->row_floats;
    int64_t area = planes->window.height * planes->window.width;
    bool gaps =
        planes->stride_down > planes->phases_down || planes->stride_across > planes->phases_across;
    memset(band, 0, (size_t)planes->band_floats * sizeof(float));
    for (int64_t plane = first; plane < last; plane++) {
        int64_t c = plane % channels;
        float *output = planes->output + plane * planes->output_area;
        for (int64_t tap = 0; tap < planes->taps; tap++) {
            w[tap] = planes->w[c * planes->taps + planes->tap_weights[tap]];
        }
        repack_band(&planes->window, &planes->band, planes->input + plane * area, band);
        if (gaps) {
            memset(output, 0, (size_t)planes->output_area * sizeof(float));
        }
        convolve_plane(planes, band, w, planes->b ? planes->b[c] : 0.0f, rows, output);
    }
}

/* A part clears its scratch memory first, which only pays for several planes. */
static void run_planes(struct planes *planes, struct exec_context *exec, int64_t most,
                       thread_pool_task *task) {
    int64_t planes_in_all = planes->conv->images * planes->conv->in;
    int64_t parts = max_i64(thread_pool_size(exec->pool), planes_in_all / 8);
    thread_pool_run(exec->pool, thread_pool_parts(exec->pool, min_i64(most, parts)), task, planes);
}

void depthwise_forward(const struct conv *conv, const float *x, const float *w, const float *b,
                       float *y, struct exec_context *exec) {
    struct planes planes = plan_forward(conv);
    planes.input = x;
    planes.w = w;
    planes.b = b;
    planes.output = y;
    bind_workspace(&planes, exec->workspace);
    list_forward_taps(&planes);
    run_planes(&planes, exec, conv->images * conv->in, plane_part);
}

void depthwise_input_gradient(const struct conv *conv, const float *w, const float *dy, float *dx,
                              struct exec_context *exec) {
    struct planes planes = plan_input_gradient(conv);
    planes.input = dy;
    planes.w = w;
    planes.output = dx;
    bind_workspace(&planes, exec->workspace);
    list_input_taps(&planes);
    run_planes(&planes, exec, conv->images * conv->in, plane_part);
}

/* ---- weight gradient ---- */

static struct planes plan_weight_gradient(const struct conv *conv) {
    struct planes planes = plan_forward(conv);
    planes.row_floats = cache_line_floats(planes.band.rows * planes.band.pitch + WINDOW_SLACK);
    return planes;
}

ALWAYS_INLINE void accumulate_taps(const struct planes *planes, int64_t first, int taps,
                                   int64_t pixels, const float *band, const float *dy, v8 *sums) {
    v8 sum[9];
    const float *at[9];
    UNROLL
    for (int tap = 0; tap < taps; tap++) {
        sum[tap] = sums[first + tap];
        at[tap] = band + planes->tap_offsets[first + tap];
    }
    for (int64_t p = 0; p < pixels; p += 8) {
        v8 one = load8(dy + p);
        UNROLL
        for (int tap = 0; tap < taps; tap++) {
            sum[tap] += one * load8(at[tap] + p);
        }
    }
    UNROLL
    for (int tap = 0; tap < taps; tap++) {
        sums[first + tap] = sum[tap];
    }
}

static void accumulate_plane(const struct planes *planes, const float *band, const float *dy,
                             v8 *sums) {
    int64_t tap = 0, pixels = planes->window.rows * planes->band.pitch;
    for (; tap + 9 <= planes->taps; tap += 9) {
        accumulate_taps(planes, tap, 9, pixels, band, dy, sums);
    }
    for (; tap + 4 <= planes->taps; tap += 4) {
        accumulate_taps(planes, tap, 4, pixels, band, dy, sums);
    }
    for (; tap < planes->taps; tap++) {
        accumulate_taps(planes, tap, 1, pixels, band, dy, sums);
    }
}

static void weight_part(void *context, int part, int parts, int worker) {
    const struct planes *planes = context;
    const struct conv *conv = planes->conv;
    int64_t first, last;
    split_range(conv->in, part, parts, &first, &last);
    float *band = planes->scratch + worker * scratch_floats(planes);
    float *dy = band + planes->band_floats;
    v8 *sums = (v8 *)(dy + planes->row_floats);
    /* dy is packed with the pitch of the band; the gaps between its rows stay zero. */
    struct window dy_window = {.height = conv->window.rows,
                               .width = conv->window.columns,
                               .rows = conv->window.rows,
                               .columns = conv->window.columns,
                               .kh = 1,
                               .kw = 1,
                               .sh = 1,
                               .sw = 1};
    struct band dy_band = {.rows = dy_window.rows,
                           .pitch = planes->band.pitch,
                           .phases_down = 1,
                           .phases_across = 1,
                           .input_rows = dy_window.rows};
    memset(band, 0, (size_t)(planes->band_floats + planes->row_floats) * sizeof(float));
    for (int64_t c = first; c < last; c++) {
        for (int64_t tap = 0; tap < planes->taps; tap++) {
            sums[tap] = splat8(0.0f);
        }
        for (int64_t n = 0; n < conv->images; n++) {
            int64_t plane = n * conv->in + c;
            repack_band(&planes->window, &planes->band, planes->input + plane * conv_area(conv),
                        band);
            repack_band(&dy_window, &dy_band, planes->dy + plane * conv_out_area(conv), dy);
            accumulate_plane(planes, band, dy, sums);
        }
        for (int64_t tap = 0; tap < planes->taps; tap++) {
            planes->output[c * planes->taps + tap] = hsum8(sums[tap]);
        }
    }
}

void depthwise_weight_gradient(const struct conv *conv, const float *x, const float *dy, float *dw,
                               struct exec_context *exec) {
    struct planes planes = plan_weight_gradient(conv);
    planes.input = x;
    planes.dy = dy;
    planes.output = dw;
    bind_workspace(&planes, exec->workspace);
    list_forward_taps(&planes);
    run_planes(&planes, exec, conv->in, weight_part);
}

size_t depthwise_workspace(const struct conv *conv, int threads) {
    struct planes weight = plan_weight_gradient(conv), input = plan_input_gradient(conv);
    size_t for_weight = workspace_bytes(&weight, threads);
    size_t for_input = workspace_bytes(&input, threads);
    return for_weight > for_input ? for_weight : for_input;
}
