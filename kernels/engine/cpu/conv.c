/* conv.c - the operations of a convolution, and which file computes each case (conv.h).
 *
 *   y[n,o,p,q] = b[o] + the sum of x[n,i,p SH - TOP + h,q SW - LEFT + w] w[o,i,h,w] over i, h, w
 *   dw and dx: the same products, summed over the pixels of dy and over the windows of a pixel
 *
 * SH and SW are strides; TOP and LEFT are the padding before the image, and the padding after it
 * follows from the shapes. A transposed convolution is the input gradient of a plain one.
 * channel_bias adds b[c] to every pixel of channel c, where an operation has no bias itself.
 *
 * The one rule: forward is a matrix product over the windows of x. The input gradient is the same
 * product over dy with transposed weights and taps in reverse order, once for each phase of the
 * stride. */
#include "conv.h"

#include <string.h>

#include "../thread_pool.h"
#include "conv_gemm.h"
#include "ops.h"
#include "reductions.h"

static op_run conv_forward_run, conv_weight_gradient_run, conv_input_gradient_run;
static op_run channel_bias_run, channel_bias_gradient_run;
static op_workspace conv_forward_workspace, conv_weight_gradient_workspace;
static op_workspace conv_input_gradient_workspace;
static op_macs conv_macs;
static op_check check_conv;

#define WINDOW " : GROUPS KH KW SH SW TOP LEFT"

const struct op_kind conv_kinds[] = {
    {"conv_forward",
     "x(N,I*GROUPS,H,W) w(O*GROUPS,I,KH,KW) b[O*GROUPS]? : y(N,O*GROUPS,P,Q)" WINDOW, check_conv,
     conv_forward_workspace, conv_macs, conv_forward_run},
    {"conv_weight_gradient", "x(N,I*GROUPS,H,W) dy(N,O*GROUPS,P,Q) : dw(O*GROUPS,I,KH,KW)" WINDOW,
     check_conv, conv_weight_gradient_workspace, conv_macs, conv_weight_gradient_run},
    {"conv_input_gradient", "w(O*GROUPS,I,KH,KW) dy(N,O*GROUPS,P,Q) : dx(N,I*GROUPS,H,W)" WINDOW,
     check_conv, conv_input_gradient_workspace, conv_macs, conv_input_gradient_run},
    {"channel_bias", "x(N,C,P..) b[C] : y(N,C,P..)=x", .run = channel_bias_run},
    {"channel_bias_gradient", "dy(N,C,P..) : db[C]", .run = channel_bias_gradient_run},
    {.name = NULL},
};

/* ---- operands ---- */

struct conv_tensors {
    const struct tensor *x, *w, *y; /* in a gradient, one of them is dx, dw or dy */
};

static struct conv_tensors tensors_of(const struct op *op) {
    if (op_is(op, "conv_forward")) {
        return (struct conv_tensors){op->in[0], op->in[1], op->out[0]};
    }
    if (op_is(op, "conv_input_gradient")) {
        return (struct conv_tensors){op->out[0], op->in[0], op->in[1]};
    }
    return (struct conv_tensors){op->in[0], op->out[0], op->in[1]};
}

static struct conv conv_of(const struct op *op) {
    struct conv_tensors of = tensors_of(op);
    return (struct conv){
        .window = {.height = of.x->dim[2],
                   .width = of.x->dim[3],
                   .rows = of.y->dim[2],
                   .columns = of.y->dim[3],
                   .kh = op->i[1],
                   .kw = op->i[2],
                   .sh = op->i[3],
                   .sw = op->i[4],
                   .top = op->i[5],
                   .left = op->i[6]},
        .images = of.x->dim[0],
        .in = of.x->dim[1],
        .out = of.w->dim[0],
        .groups = op->i[0],
    };
}

static const char *check_window(const struct window *window) {
    const int64_t limit = 4096;
    if (window->kh < 1 || window->kw < 1 || window->sh < 1 || window->sw < 1 ||
        window->kh > limit || window->kw > limit || window->sh > limit || window->sw > limit) {
        return "has a kernel or a stride that is out of range";
    }
    if (window->top < 0 || window->left < 0 || window->top > limit || window->left > limit) {
        return "has a padding that is out of range";
    }
    const int64_t side = 1 << 16;
    if (window->height > side || window->width > side || window->rows > side ||
        window->columns > side) {
        return "has an image that is too large";
    }
    int64_t bottom = (window->rows - 1) * window->sh + window->kh - window->top - window->height;
    int64_t right = (window->columns - 1) * window->sw + window->kw - window->left - window->width;
    if (bottom > limit || right > limit) {
        return "has an output that reaches beyond its input";
    }
    return NULL;
}

static const char *check_conv(const struct op *op) {
    struct conv conv = conv_of(op);
    const char *fault = check_window(&conv.window);
    if (fault) {
        return fault;
    }
    struct band band = band_of(&conv.window, conv.window.rows, 1);
    int64_t padded, windows, parts;
    if (__builtin_mul_overflow(conv.images * conv.groups,
                               max_i64(conv.window.height, conv.window.rows), &parts) ||
        parts >= INT32_MAX) {
        return "has too many images";
    }
    if (__builtin_mul_overflow(band.floats, max_i64(conv.in, conv.out), &padded) ||
        padded >= INT32_MAX ||
        __builtin_mul_overflow(conv.in / conv.groups, conv_taps(&conv), &windows) ||
        windows >= INT32_MAX / 8) {
        return "is too large";
    }
    return NULL;
}

static int64_t conv_macs(const struct op *op) {
    struct conv_tensors of = tensors_of(op);
    return mul_saturated(of.y->count, of.w->count / of.w->dim[0]);
}

/* ---- forward ---- */

static struct conv_gemm forward_job(const struct conv *conv, int threads) {
    struct conv_gemm job = {.window = conv->window,
                            .images = conv->images,
                            .groups = conv->groups,
                            .in_channels = conv->in / conv->groups,
                            .out_channels = conv->out / conv->groups,
                            .output_plane = conv_out_area(conv),
                            .output_row = conv->window.columns,
                            .output_column = 1};
    conv_gemm_plan(&job, threads);
    return job;
}

static size_t conv_forward_workspace(const struct op *op, int threads) {
    struct conv conv = conv_of(op);
    if (is_depthwise(&conv)) {
        return depthwise_workspace(&conv, threads);
    }
    struct conv_gemm job = forward_job(&conv, threads);
    return conv_gemm_workspace(&job, threads);
}

struct packing {
    const struct conv_gemm *job;
    const struct conv *conv;
    const float *w;
    int64_t down, across; /* the phase of an input gradient */
};

/* Packs the weights of a range of row panels; w is (out_channels, depth) per group. */
static void pack_forward(void *context, int part, int parts, int worker) {
    (void)worker;
    struct packing *packing = context;
    const struct conv_gemm *job = packing->job;
    int64_t first, last;
    split_range(job->groups * job->panels.count, part, parts, &first, &last);
    for (int64_t p = first; p < last; p++) {
        int64_t group = p / job->panels.count, panel = p % job->panels.count;
        float *group_weights = (float *)packing->w + group * job->out_channels * job->depth;
        struct matrix w = {group_weights, job->depth, 1};
        pack_a(job->out_channels, job->depth, w, panel, panel + 1,
               job->packed_weights + group * job->panels.count * job->depth * MR, job->depth);
    }
}

static void run_packing(struct exec_context *exec, struct packing *packing,
                        thread_pool_task *task) {
    int64_t panels = packing->job->groups * packing->job->panels.count;
    thread_pool_run(exec->pool, thread_pool_parts(exec->pool, panels), task, packing);
}

static void conv_forward_run(const struct op *op, struct exec_context *exec) {
    struct conv conv = conv_of(op);
    const float *bias = has_bias(op) ? floats(op->in[2]) : NULL;
    if (is_depthwise(&conv)) {
        depthwise_forward(&conv, floats(op->in[0]), floats(op->in[1]), bias, floats(op->out[0]),
                          exec);
        return;
    }
    struct conv_gemm job = forward_job(&conv, thread_pool_size(exec->pool));
    job.input = floats(op->in[0]);
    job.output = floats(op->out[0]);
    job.bias = bias;
    conv_gemm_bind_workspace(&job, exec->workspace);
    struct packing packing = {&job, &conv, floats(op->in[1]), 0, 0};
    run_packing(exec, &packing, pack_forward);
    conv_gemm_run(&job, exec->pool);
}

/* ---- input gradient ---- */

/* Along one axis: the pixels h of dx, 0 <= h < size, with (h + pad) % stride == phase. */
static void phase_along_axis(int64_t size, int64_t pad, int64_t stride, int64_t phase,
                             int64_t kernel, int64_t *taps, int64_t *count, int64_t *first,
                             int64_t *new_pad) {
    int64_t start = phase >= pad ? 0 : div_up(pad - phase, stride);
    *taps = phase < kernel ? div_up(kernel - phase, stride) : 0;
    *first = start * stride + phase - pad;
    *count = *first < size ? div_up(size - *first, stride) : 0;
    *new_pad = *taps - 1 - start;
}

struct input_phase input_phase_of(const struct window *window, int64_t down, int64_t across) {
    struct input_phase phase = {
        .window = {.height = window->rows, .width = window->columns, .sh = 1, .sw = 1}};
    phase_along_axis(window->height, window->top, window->sh, down, window->kh, &phase.window.kh,
                     &phase.window.rows, &phase.first_h, &phase.window.top);
    phase_along_axis(window->width, window->left, window->sw, across, window->kw, &phase.window.kw,
                     &phase.window.columns, &phase.first_w, &phase.window.left);
    return phase;
}

static bool has_pixels(const struct input_phase *phase) {
    return phase->window.rows > 0 && phase->window.columns > 0;
}

static struct conv_gemm input_job(const struct conv *conv, const struct input_phase *phase,
                                  int threads) {
    struct conv_gemm job = {.window = phase->window,
                            .images = conv->images,
                            .groups = conv->groups,
                            .in_channels = conv->out / conv->groups,
                            .out_channels = conv->in / conv->groups,
                            .output_plane = conv_area(conv),
                            .output_row = conv->window.width * conv->window.sh,
                            .output_column = conv->window.sw};
    conv_gemm_plan(&job, threads);
    return job;
}

static size_t conv_input_gradient_workspace(const struct op *op, int threads) {
    struct conv conv = conv_of(op);
    if (is_depthwise(&conv)) {
        return depthwise_workspace(&conv, threads);
    }
    size_t largest = 0;
    for (int64_t down = 0; down < min_i64(conv.window.sh, conv.window.kh); down++) {
        for (int64_t across = 0; across < min_i64(conv.window.sw, conv.window.kw); across++) {
            struct input_phase phase = input_phase_of(&conv.window, down, across);
            if (!has_pixels(&phase)) {
                continue;
            }
            struct conv_gemm job = input_job(&conv, &phase, threads);
            size_t bytes = conv_gemm_workspace(&job, threads);
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

/* Packs one tap of up to MR input channels. */
static void pack_tap(const float *tap, int64_t taps, int64_t count, float *to) {
    if (count == MR) {
        for (int n = 0; n < MR; n++) {
            to[n] = tap[n * taps];
        }
        return;
    }
    for (int64_t n = 0; n < count; n++) {
        to[n] = tap[n * taps];
    }
    for (int64_t n = count; n < MR; n++) {
        to[n] = 0.0f;
    }
}

/* Packs a row panel of the transposed weights: rows are input channels, the depth is output
 * channels by taps of this phase, the last tap first. */
static void pack_transposed_panel(const struct packing *packing, int64_t group, int64_t panel,
                                  float *to) {
    const struct conv_gemm *job = packing->job;
    const struct window *whole = &packing->conv->window, *window = &job->window;
    int64_t first = panel_first_row(&job->panels, panel), count = panel_rows(&job->panels, panel);
    int64_t taps = conv_taps(packing->conv);
    const float *w = packing->w + (group * job->in_channels * job->out_channels + first) * taps;
    for (int64_t o = 0; o < job->in_channels; o++, w += job->out_channels * taps) {
        for (int64_t th = window->kh - 1; th >= 0; th--) {
            const float *row = w + (packing->down + th * whole->sh) * whole->kw + packing->across;
            for (int64_t tw = window->kw - 1; tw >= 0; tw--, to += MR) {
                pack_tap(row + tw * whole->sw, taps, count, to);
            }
        }
    }
}

static void pack_transposed(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct packing *packing = context;
    const struct conv_gemm *job = packing->job;
    int64_t first, last;
    split_range(job->groups * job->panels.count, part, parts, &first, &last);
    for (int64_t p = first; p < last; p++) {
        int64_t group = p / job->panels.count, panel = p % job->panels.count;
        float *to = job->packed_weights + group * job->panels.count * job->depth * MR;
        struct matrix w = {(float *)packing->w + group * job->in_channels * job->out_channels, 1,
                           job->out_channels};
        if (conv_taps(packing->conv) == 1) {
            pack_a(job->out_channels, job->depth, w, panel, panel + 1, to, job->depth);
        } else {
            pack_transposed_panel(packing, group, panel, to + panel * job->depth * MR);
        }
    }
}

static void zero_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct tensor *x = context;
    int64_t first, last;
    split_range(x->count, part, parts, &first, &last);
    memset(floats(x) + first, 0, (size_t)(last - first) * sizeof(float));
}

static void conv_input_gradient_run(const struct op *op, struct exec_context *exec) {
    struct conv conv = conv_of(op);
    int threads = thread_pool_size(exec->pool);
    if (is_depthwise(&conv)) {
        depthwise_input_gradient(&conv, floats(op->in[0]), floats(op->in[1]), floats(op->out[0]),
                                 exec);
        return;
    }
    if (conv.window.sh > conv.window.kh || conv.window.sw > conv.window.kw) {
        thread_pool_run(exec->pool, threads, zero_part, (void *)op->out[0]);
    }
    for (int64_t down = 0; down < min_i64(conv.window.sh, conv.window.kh); down++) {
        for (int64_t across = 0; across < min_i64(conv.window.sw, conv.window.kw); across++) {
            struct input_phase phase = input_phase_of(&conv.window, down, across);
            if (!has_pixels(&phase)) {
                continue;
            }
            struct conv_gemm job = input_job(&conv, &phase, threads);
            job.input = floats(op->in[1]);
            job.output = floats(op->out[0]) + phase.first_h * conv.window.width + phase.first_w;
            conv_gemm_bind_workspace(&job, exec->workspace);
            struct packing packing = {&job, &conv, floats(op->in[0]), down, across};
            run_packing(exec, &packing, pack_transposed);
            conv_gemm_run(&job, exec->pool);
        }
    }
}

/* ---- weight gradient ---- */

static size_t conv_weight_gradient_workspace(const struct op *op, int threads) {
    struct conv conv = conv_of(op);
    return is_depthwise(&conv) ? depthwise_workspace(&conv, threads)
                               : conv_weight_grad_workspace(&conv, threads);
}

static void conv_weight_gradient_run(const struct op *op, struct exec_context *exec) {
    struct conv conv = conv_of(op);
    const float *x = floats(op->in[0]), *dy = floats(op->in[1]);
    if (is_depthwise(&conv)) {
        depthwise_weight_gradient(&conv, x, dy, floats(op->out[0]), exec);
    } else {
        conv_weight_grad(&conv, x, dy, floats(op->out[0]), exec);
    }
}

/* ---- bias per channel ---- */

static void bias_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *y = op->in[0];
    int64_t channels = y->dim[1], planes = y->dim[0] * channels, area = y->count / planes;
    int64_t first, last;
    split_range(planes, part, parts, &first, &last);
    for (int64_t plane = first; plane < last; plane++) {
        float b = floats(op->in[1])[plane % channels];
        const float *from = floats(y) + plane * area;
        float *to = floats(op->out[0]) + plane * area;
        for (int64_t at = 0; at < area; at++) {
            to[at] = from[at] + b;
        }
    }
}

static void channel_bias_run(const struct op *op, struct exec_context *exec) {
    thread_pool_run(exec->pool, thread_pool_size(exec->pool), bias_part, (void *)op);
}

static void bias_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *dy = op->in[0];
    int64_t channels = dy->dim[1], area = dy->count / (dy->dim[0] * channels), first, last;
    split_range(channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c++) {
        float sum = 0.0f;
        for (int64_t n = 0; n < dy->dim[0]; n++) {
            sum += hsum8(sum_lanes(floats(dy) + (n * channels + c) * area, area));
        }
        floats(op->out[0])[c] = sum;
    }
}

static void channel_bias_gradient_run(const struct op *op, struct exec_context *exec) {
    thread_pool_run(exec->pool, thread_pool_size(exec->pool), bias_gradient_part, (void *)op);
}
