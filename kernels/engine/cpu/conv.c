/* conv.c - convolutions: what their operands say, and which way each direction is computed.
 *
 * The one rule: forward is a sweep (sweep.h) of the windows over x. The input gradient is the same
 * sweep over dy with the weights turned round, once for each phase of the stride; the weight
 * gradient is a product along the pixels (harvest.c); what has one channel a group goes its own
 * way (depthwise.c). */
#include "../pool.h"
#include "check.h"
#include "gemm.h"
#include "ops.h"
#include "products.h"
#include "sweep.h"
#include "vector.h"

/* ---- what the operands say ---- */

static struct conv conv_of(const struct op *op, const struct tensor *x, const struct tensor *w,
                           const struct tensor *y) {
    return (struct conv){
        .window = {x->dim[2], x->dim[3], y->dim[2], y->dim[3], op->i[1], op->i[2], op->i[3],
                   op->i[4], op->i[5], op->i[6]},
        .images = x->dim[0],
        .in = x->dim[1],
        .out = w->dim[0],
        .groups = op->i[0],
    };
}

static const char *check_window(const struct window *window) {
    const int64_t limit = 4096;
    if (window->kh < 1 || window->kw < 1 || window->sh < 1 || window->sw < 1 ||
        window->kh > limit || window->kw > limit || window->sh > limit || window->sw > limit)
        return "has a kernel or a stride that is out of range";
    if (window->top < 0 || window->left < 0 || window->top > limit || window->left > limit)
        return "has a padding that is out of range";
    const int64_t side = 1 << 16;
    if (window->height > side || window->width > side || window->rows > side ||
        window->columns > side)
        return "has an image that is too large";
    int64_t bottom = (window->rows - 1) * window->sh + window->kh - window->top - window->height;
    int64_t right = (window->columns - 1) * window->sw + window->kw - window->left - window->width;
    if (bottom > limit || right > limit)
        return "has an output that reaches beyond its input";
    return NULL;
}

static const char *check_conv(const struct op *op, const struct tensor *x, const struct tensor *w,
                              const struct tensor *y) {
    if (x->rank != 4 || w->rank != 4 || y->rank != 4)
        return "wants images and a weight of four axes";
    struct conv conv = conv_of(op, x, w, y);
    if (conv.groups < 1 || conv.in % conv.groups || conv.out % conv.groups)
        return "has groups that do not divide the channels";
    if (w->dim[1] != conv.in / conv.groups || w->dim[2] != conv.window.kh ||
        w->dim[3] != conv.window.kw)
        return "has a weight that does not fit";
    if (y->dim[0] != conv.images || y->dim[1] != conv.out)
        return "has an output that does not fit";
    const char *fault = check_window(&conv.window);
    if (fault)
        return fault;
    struct band band = band_of(&conv.window, conv.window.rows, 1);
    int64_t padded, windows, parts;
    if (__builtin_mul_overflow(conv.images * conv.groups, most(x->dim[2], y->dim[2]), &parts) ||
        parts >= INT32_MAX)
        return "has too many images";
    if (__builtin_mul_overflow(band.floats, most(conv.in, conv.out), &padded) ||
        padded >= INT32_MAX || !product_fits(y->count, w->dim[1], conv_taps(&conv)) ||
        __builtin_mul_overflow(w->dim[1], conv_taps(&conv), &windows) || windows >= INT32_MAX / 8)
        return "is too large";
    return NULL;
}

static int64_t conv_macs(const struct conv *conv) {
    return conv->images * conv->out * conv_out_area(conv) * (conv->in / conv->groups) *
           conv_taps(conv);
}

/* ---- forward ---- */

static const char *forward_check(const struct op *op) {
    if (op->ins != 2 && op->ins != 3)
        return "has too few or too many operands";
    bool biased = op->ins == 3 && op->in[2];
    struct op form = *op;
    form.ins = biased ? 3 : 2;
    const char *fault = check_form(&form, biased ? "fff" : "ff", "f", 7, 0);
    if (!fault)
        fault = check_conv(op, op->in[0], op->in[1], op->out[0]);
    if (!fault && biased && op->in[2]->count != op->out[0]->dim[1])
        fault = "has a bias that does not fit";
    return fault;
}

static struct conv forward_conv(const struct op *op) {
    return conv_of(op, op->in[0], op->in[1], op->out[0]);
}

static struct sweep forward_sweep(const struct conv *conv, int threads) {
    struct sweep sweep = {.window = conv->window,
                          .images = conv->images,
                          .groups = conv->groups,
                          .channels = conv->in / conv->groups,
                          .targets = conv->out / conv->groups,
                          .target_plane = conv_out_area(conv),
                          .row_step = conv->window.columns,
                          .column_step = 1};
    sweep_plan(&sweep, threads);
    return sweep;
}

static size_t forward_workspace(const struct op *op, int threads) {
    struct conv conv = forward_conv(op);
    if (is_depthwise(&conv))
        return depthwise_workspace(&conv, threads);
    struct sweep sweep = forward_sweep(&conv, threads);
    return sweep_workspace(&sweep, threads);
}

static int64_t forward_macs(const struct op *op) {
    struct conv conv = forward_conv(op);
    return conv_macs(&conv);
}

struct packing {
    const struct sweep *sweep;
    const struct conv *conv;
    const float *w;
    int64_t down, across; /* of the phase, for the input gradient */
};

static void pack_forward(void *context, int part, int parts, int worker) {
    (void)worker;
    struct packing *job = context;
    const struct sweep *sweep = job->sweep;
    int64_t first, last;
    share_of(sweep->groups * sweep->cut.count, part, parts, &first, &last);
    for (int64_t s = first; s < last; s++) {
        int64_t group = s / sweep->cut.count, sliver = s % sweep->cut.count;
        float *w_of_group = (float *)job->w + group * sweep->targets * sweep->depth;
        struct matrix w = {w_of_group, sweep->depth, 1};
        pack_rows(sweep->targets, sweep->depth, w, sliver, sliver + 1,
                  sweep->packed + group * sweep->cut.count * sweep->depth * 6, sweep->depth);
    }
}

static void forward_run(const struct op *op, struct scene *scene) {
    struct conv conv = forward_conv(op);
    const float *bias = op->ins == 3 && op->in[2] ? floats(op->in[2]) : NULL;
    if (is_depthwise(&conv)) {
        depthwise_forward(&conv, floats(op->in[0]), floats(op->in[1]), bias, floats(op->out[0]),
                          scene);
        return;
    }
    struct sweep sweep = forward_sweep(&conv, pool_threads(scene->pool));
    sweep.source = floats(op->in[0]);
    sweep.target = floats(op->out[0]);
    sweep.bias = bias;
    sweep_settle(&sweep, scene->workspace);
    struct packing packing = {&sweep, &conv, floats(op->in[1]), 0, 0};
    pool_run(scene->pool, pool_threads(scene->pool), pack_forward, &packing);
    sweep_run(&sweep, scene->pool);
}

const struct op_kind conv_forward = {"conv_forward", forward_check, forward_workspace, forward_macs,
                                     forward_run};

/* ---- input gradient ---- */

/* Along one axis: the pixels h of dx, 0 <= h < size, with (h + pad) % stride == phase. */
static void phase_along(int64_t size, int64_t pad, int64_t stride, int64_t phase, int64_t kernel,
                        int64_t *taps, int64_t *count, int64_t *first, int64_t *new_pad) {
    int64_t start = phase >= pad ? 0 : (pad - phase + stride - 1) / stride;
    *taps = phase < kernel ? (kernel - phase + stride - 1) / stride : 0;
    *first = start * stride + phase - pad;
    *count = *first < size ? (size - *first + stride - 1) / stride : 0;
    *new_pad = *taps - 1 - start;
}

struct phase_of_input phase_of_input(const struct window *window, int64_t down, int64_t across) {
    struct phase_of_input phase = {
        .window = {.height = window->rows, .width = window->columns, .sh = 1, .sw = 1}};
    phase_along(window->height, window->top, window->sh, down, window->kh, &phase.window.kh,
                &phase.window.rows, &phase.first_h, &phase.window.top);
    phase_along(window->width, window->left, window->sw, across, window->kw, &phase.window.kw,
                &phase.window.columns, &phase.first_w, &phase.window.left);
    return phase;
}

static bool has_pixels(const struct phase_of_input *phase) {
    return phase->window.rows > 0 && phase->window.columns > 0;
}

static struct conv input_conv(const struct op *op) {
    return conv_of(op, op->out[0], op->in[0], op->in[1]);
}

static const char *input_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 7, 0);
    return fault ? fault : check_conv(op, op->out[0], op->in[0], op->in[1]);
}

static int64_t input_macs(const struct op *op) {
    struct conv conv = input_conv(op);
    return conv_macs(&conv);
}

static struct sweep input_sweep(const struct conv *conv, const struct phase_of_input *phase,
                                int threads) {
    struct sweep sweep = {.window = phase->window,
                          .images = conv->images,
                          .groups = conv->groups,
                          .channels = conv->out / conv->groups,
                          .targets = conv->in / conv->groups,
                          .target_plane = conv_area(conv),
                          .row_step = conv->window.width * conv->window.sh,
                          .column_step = conv->window.sw};
    sweep_plan(&sweep, threads);
    return sweep;
}

static size_t input_workspace(const struct op *op, int threads) {
    struct conv conv = input_conv(op);
    if (is_depthwise(&conv))
        return depthwise_workspace(&conv, threads);
    size_t largest = 0;
    for (int64_t down = 0; down < least(conv.window.sh, conv.window.kh); down++)
        for (int64_t across = 0; across < least(conv.window.sw, conv.window.kw); across++) {
            struct phase_of_input phase = phase_of_input(&conv.window, down, across);
            if (!has_pixels(&phase))
                continue;
            struct sweep sweep = input_sweep(&conv, &phase, threads);
            size_t bytes = sweep_workspace(&sweep, threads);
            largest = bytes > largest ? bytes : largest;
        }
    return largest;
}

/* One tap of up to six channels of the input. */
static void pack_tap(const float *tap, int64_t taps, int64_t count, float *to) {
    if (count == 6) {
        for (int n = 0; n < 6; n++)
            to[n] = tap[n * taps];
        return;
    }
    for (int64_t n = 0; n < count; n++)
        to[n] = tap[n * taps];
    for (int64_t n = count; n < 6; n++)
        to[n] = 0.0f;
}

/* Weights turned: targets are the input's channels, the depth is output channels by taps, the last
 * tap first. */
static void pack_turned_sliver(const struct packing *job, int64_t group, int64_t sliver,
                               float *to) {
    const struct sweep *sweep = job->sweep;
    const struct window *whole = &job->conv->window, *window = &sweep->window;
    int64_t top = sliver_top(&sweep->cut, sliver), count = sliver_height(&sweep->cut, sliver);
    int64_t taps = conv_taps(job->conv);
    const float *w = job->w + (group * sweep->channels * sweep->targets + top) * taps;
    for (int64_t o = 0; o < sweep->channels; o++, w += sweep->targets * taps)
        for (int64_t th = window->kh - 1; th >= 0; th--) {
            const float *row = w + (job->down + th * whole->sh) * whole->kw + job->across;
            for (int64_t tw = window->kw - 1; tw >= 0; tw--, to += 6)
                pack_tap(row + tw * whole->sw, taps, count, to);
        }
}

static void pack_turned(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct packing *job = context;
    const struct sweep *sweep = job->sweep;
    int64_t first, last;
    share_of(sweep->groups * sweep->cut.count, part, parts, &first, &last);
    for (int64_t s = first; s < last; s++) {
        int64_t group = s / sweep->cut.count, sliver = s % sweep->cut.count;
        float *to = sweep->packed + group * sweep->cut.count * sweep->depth * 6;
        struct matrix w = {(float *)job->w + group * sweep->channels * sweep->targets, 1,
                           sweep->targets};
        if (conv_taps(job->conv) == 1)
            pack_rows(sweep->targets, sweep->depth, w, sliver, sliver + 1, to, sweep->depth);
        else
            pack_turned_sliver(job, group, sliver, to + sliver * sweep->depth * 6);
    }
}

struct clearing {
    float *data;
    int64_t count;
};

static void clear_part(void *context, int part, int parts, int worker) {
    (void)worker;
    struct clearing *job = context;
    int64_t first, last;
    share_of(job->count, part, parts, &first, &last);
    memset(job->data + first, 0, (size_t)(last - first) * sizeof(float));
}

static void input_run(const struct op *op, struct scene *scene) {
    struct conv conv = input_conv(op);
    int threads = pool_threads(scene->pool);
    if (is_depthwise(&conv)) {
        depthwise_input_gradient(&conv, floats(op->in[0]), floats(op->in[1]), floats(op->out[0]),
                                 scene);
        return;
    }
    if (conv.window.sh > conv.window.kh || conv.window.sw > conv.window.kw) {
        struct clearing all = {floats(op->out[0]), op->out[0]->count};
        pool_run(scene->pool, threads, clear_part, &all);
    }
    for (int64_t down = 0; down < least(conv.window.sh, conv.window.kh); down++)
        for (int64_t across = 0; across < least(conv.window.sw, conv.window.kw); across++) {
            struct phase_of_input phase = phase_of_input(&conv.window, down, across);
            if (!has_pixels(&phase))
                continue;
            struct sweep sweep = input_sweep(&conv, &phase, threads);
            sweep.source = floats(op->in[1]);
            sweep.target =
                floats(op->out[0]) + phase.first_h * conv.window.width + phase.first_w;
            sweep_settle(&sweep, scene->workspace);
            struct packing packing = {&sweep, &conv, floats(op->in[0]), down, across};
            pool_run(scene->pool, threads, pack_turned, &packing);
            sweep_run(&sweep, scene->pool);
        }
}

const struct op_kind conv_input_gradient = {"conv_input_gradient", input_check, input_workspace,
                                            input_macs, input_run};

/* ---- weight gradient ---- */

static struct conv weight_conv(const struct op *op) {
    return conv_of(op, op->in[0], op->out[0], op->in[1]);
}

static const char *weight_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 7, 0);
    return fault ? fault : check_conv(op, op->in[0], op->out[0], op->in[1]);
}

static int64_t weight_macs(const struct op *op) {
    struct conv conv = weight_conv(op);
    return conv_macs(&conv);
}

static size_t weight_workspace(const struct op *op, int threads) {
    struct conv conv = weight_conv(op);
    if (is_depthwise(&conv))
        return depthwise_workspace(&conv, threads);
    return harvest_workspace(&conv, threads);
}

static void weight_run(const struct op *op, struct scene *scene) {
    struct conv conv = weight_conv(op);
    if (is_depthwise(&conv)) {
        depthwise_weight_gradient(&conv, floats(op->in[0]), floats(op->in[1]), floats(op->out[0]),
                                  scene);
        return;
    }
    harvest_run(&conv, floats(op->in[0]), floats(op->in[1]), floats(op->out[0]), scene);
}

const struct op_kind conv_weight_gradient = {"conv_weight_gradient", weight_check, weight_workspace,
                                             weight_macs, weight_run};

/* ---- bias of channels ---- */

static const char *channels_check(const struct tensor *y, const struct tensor *b) {
    if (y->rank < 2)
        return "wants channels on its second axis";
    return b->count == y->dim[1] ? NULL : "has a bias that does not fit";
}

static const char *bias_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 0);
    if (!fault && !same_shape(op->in[0], op->out[0]))
        fault = "has an output that does not fit";
    return fault ? fault : channels_check(op->in[0], op->in[1]);
}

static void bias_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *y = op->in[0];
    int64_t channels = y->dim[1], planes = y->dim[0] * channels, area = y->count / planes;
    int64_t first, last;
    share_of(planes, part, parts, &first, &last);
    for (int64_t plane = first; plane < last; plane++) {
        float b = floats(op->in[1])[plane % channels];
        const float *from = floats(y) + plane * area;
        float *to = floats(op->out[0]) + plane * area;
        for (int64_t at = 0; at < area; at++)
            to[at] = from[at] + b;
    }
}

static void bias_run(const struct op *op, struct scene *scene) {
    pool_run(scene->pool, pool_threads(scene->pool), bias_part, (void *)op);
}

const struct op_kind channel_bias = {"channel_bias", bias_check, NULL, NULL, bias_run};

static const char *bias_gradient_check(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 0, 0);
    return fault ? fault : channels_check(op->in[0], op->out[0]);
}

static float sum_of(const float *x, int64_t count) {
    v8 sums[4] = {all8(0), all8(0), all8(0), all8(0)};
    int64_t at = 0;
    for (; at + 32 <= count; at += 32)
        for (int n = 0; n < 4; n++)
            sums[n] += load8(x + at + 8 * n);
    float rest = 0.0f;
    for (; at < count; at++)
        rest += x[at];
    return sum8((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

static void bias_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *dy = op->in[0];
    int64_t channels = dy->dim[1], area = dy->count / (dy->dim[0] * channels), first, last;
    share_of(channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c++) {
        float sum = 0.0f;
        for (int64_t n = 0; n < dy->dim[0]; n++)
            sum += sum_of(floats(dy) + (n * channels + c) * area, area);
        floats(op->out[0])[c] = sum;
    }
}

static void bias_gradient_run(const struct op *op, struct scene *scene) {
    pool_run(scene->pool, pool_threads(scene->pool), bias_gradient_part, (void *)op);
}

const struct op_kind channel_bias_gradient = {"channel_bias_gradient", bias_gradient_check, NULL,
                                              NULL, bias_gradient_run};
