/* launch_conv.c - convolutions and their gradients (conv.cl, depthwise.cl).
 *
 * The image is packed first, with its padding as zeros, in rows of whole vectors, and split by the
 * phases of the stride; so are the weights, OUT_BLOCK output channels side by side. Then one kernel
 * computes a vector of windows for OUT_BLOCK output channels. A pointwise convolution reads its
 * image in place, as one long row. kernels/harness/conv_launches.py does the same for a
 * computer. */
#include "launch.h"

#ifndef RUNNER_STATIC

#define CONV "conv.cl"

/* Of conv.cl: windows and output channels per work item, and the weights whose gradients one item
 * computes. */
enum { WIDE = 8, OUT_BLOCK = 8, GRAD_OUTS = 4, GRAD_INS = 3 };
enum { DEPTHWISE_WINDOWS = 4 }; /* per work item of depthwise.cl */

/* A convolution over packed images. Pixels of the input are spread_y and spread_x apart in the
 * packed image, with zeros between them: in an input gradient, by the stride of the forward
 * convolution. */
struct conv_layout {
    int64_t images, ins, outs, groups;
    int64_t height, width, out_height, out_width;
    int64_t kh, kw, sh, sw, top, left, spread_y, spread_x;
    bool pointwise; /* the image is one long row and is not packed */
};

/* x is (N, C, H, W), y is (N, OUT, OH, OW). */
static struct conv_layout forward_layout(const struct op *op, const struct tensor *x,
                                         const struct tensor *y) {
    const int64_t *i = op->i;
    struct conv_layout layout = {
        .images = x->dim[0],
        .ins = x->dim[1],
        .outs = y->dim[1],
        .groups = i[0],
        .height = x->dim[2],
        .width = x->dim[3],
        .out_height = y->dim[2],
        .out_width = y->dim[3],
        .kh = i[1],
        .kw = i[2],
        .sh = i[3],
        .sw = i[4],
        .top = i[5],
        .left = i[6],
        .spread_y = 1,
        .spread_x = 1,
    };
    bool single = i[1] == 1 && i[2] == 1 && i[3] == 1 && i[4] == 1 && i[5] == 0 && i[6] == 0;
    bool same = x->dim[2] == y->dim[2] && x->dim[3] == y->dim[3];
    int64_t pixels = x->dim[2] * x->dim[3];
    if (single && same && pixels >= WIDE) {
        layout.pointwise = true;
        layout.height = layout.out_height = 1;
        layout.width = layout.out_width = pixels;
    }
    return layout;
}

/* The input gradient: a convolution of stride one over dy, through reversed windows. */
static struct conv_layout backward_layout(const struct conv_layout *forward) {
    struct conv_layout layout = *forward;
    layout.ins = forward->outs;
    layout.outs = forward->ins;
    layout.height = forward->out_height;
    layout.width = forward->out_width;
    layout.out_height = forward->height;
    layout.out_width = forward->width;
    layout.sh = layout.sw = 1;
    layout.top = forward->kh - 1 - forward->top;
    layout.left = forward->kw - 1 - forward->left;
    layout.spread_y = forward->sh;
    layout.spread_x = forward->sw;
    return layout;
}

/* dy itself in rows of whole vectors, for the weight gradient. */
static struct conv_layout gradient_layout(const struct conv_layout *forward) {
    return (struct conv_layout){
        .images = forward->images,
        .ins = forward->outs,
        .outs = forward->outs,
        .groups = 1,
        .height = forward->out_height,
        .width = forward->out_width,
        .out_height = forward->out_height,
        .out_width = forward->out_width,
        .kh = 1,
        .kw = 1,
        .sh = 1,
        .sw = 1,
        .spread_y = 1,
        .spread_x = 1,
        .pointwise = forward->pointwise,
    };
}

static int64_t packed_rows(const struct conv_layout *layout) {
    return (layout->out_height - 1) * layout->sh + layout->kh;
}

/* The length of a packed row of one phase: whole vectors for every tap. */
static int64_t packed_length(const struct conv_layout *layout) {
    if (layout->pointwise) {
        return layout->width;
    }
    return round_up(round_up(layout->out_width, WIDE) + div_up(layout->kw - 1, layout->sw), WIDE);
}

/* Packs images into a scratch slot unless they are read in place; *packed is the argument for
 * them. */
static bool pack_image(struct launcher *to, const struct conv_layout *layout,
                       const struct tensor *x, int slot, struct arg *packed) {
    if (layout->pointwise) {
        *packed = BUFFER(x);
        return true;
    }
    int64_t planes = layout->images * layout->ins, phases = layout->sw;
    int64_t rows = packed_rows(layout), length = packed_length(layout);
    *packed = SCRATCH(slot);
    return scratch(to, slot, mul_saturated(mul_saturated(planes, rows), phases * length)) &&
           LAUNCH(to, CONV, "pack_image", grid3(phases * length / WIDE, rows, planes), INT(planes),
                  INT(layout->height), INT(layout->width), INT(layout->spread_y),
                  INT(layout->spread_x), INT(layout->top), INT(layout->left), INT(phases),
                  INT(rows), INT(length), BUFFER(x), SCRATCH(slot));
}

/* y = x convolved with w; transposed: with exchanged channels and reversed windows. */
static bool convolve(struct launcher *to, const struct conv_layout *layout, const struct tensor *x,
                     const struct tensor *w, const struct tensor *bias, const struct tensor *y,
                     bool transposed) {
    int64_t groups = layout->groups, outs = layout->outs / groups, ins = layout->ins / groups;
    int64_t taps = layout->kh * layout->kw, blocks = div_up(outs, OUT_BLOCK) * groups;
    struct grid grid = grid3(div_up(layout->out_width, WIDE), layout->out_height,
                             mul_saturated(blocks, layout->images));
    if (layout->pointwise) {
        grid = in_groups(grid, to->group / 8, 1, to->group / 8);
    }
    struct arg image;
    return pack_image(to, layout, x, SLOT_A, &image) &&
           scratch(to, SLOT_B, mul_saturated(blocks * OUT_BLOCK, ins * taps)) &&
           LAUNCH(to, CONV, "pack_weights", grid2(ins * taps, blocks), INT(groups), INT(outs),
                  INT(ins), INT(taps), INT(transposed), BUFFER(w), SCRATCH(SLOT_B)) &&
           LAUNCH(to, CONV, "conv_packed", grid, INT(layout->images), INT(layout->ins),
                  INT(layout->outs), INT(groups), INT(layout->out_height), INT(layout->out_width),
                  INT(layout->kh), INT(layout->kw), INT(layout->sh), INT(layout->sw),
                  INT(packed_rows(layout)), INT(packed_length(layout)), INT(bias != NULL), image,
                  SCRATCH(SLOT_B), BUFFER(bias), BUFFER(y));
}

/* ---- depthwise: every channel has its own kernel ---- */

static bool is_depthwise(const struct op *op, const struct tensor *x, const struct tensor *y) {
    return op->i[0] == x->dim[1] && op->i[0] == y->dim[1];
}

/* The arguments that all kernels of depthwise.cl begin with. */
#define DEPTHWISE_SHAPE(op, x, y)                                                                  \
    INT((x)->dim[0] * (x)->dim[1]), INT((x)->dim[1]), INT((x)->dim[2]), INT((x)->dim[3]),          \
        INT((y)->dim[2]), INT((y)->dim[3]), INT((op)->i[1]), INT((op)->i[2]), INT((op)->i[3]),     \
        INT((op)->i[4]), INT((op)->i[5]), INT((op)->i[6])

/* ---- operations ---- */

static bool conv_forward(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *w = op->in[1], *y = op->out[0];
    const struct tensor *bias = op->ins > 2 ? op->in[2] : NULL;
    if (is_depthwise(op, x, y)) {
        return LAUNCH(to, "depthwise.cl", "depthwise_forward",
                      grid3(div_up(y->dim[3], DEPTHWISE_WINDOWS), y->dim[2], y->dim[0] * y->dim[1]),
                      DEPTHWISE_SHAPE(op, x, y), INT(bias != NULL), BUFFER(x), BUFFER(w),
                      BUFFER(bias), BUFFER(y));
    }
    struct conv_layout layout = forward_layout(op, x, y);
    return convolve(to, &layout, x, w, bias, y, false);
}

static bool conv_input_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *w = op->in[0], *dy = op->in[1], *dx = op->out[0];
    if (is_depthwise(op, dx, dy)) {
        return LAUNCH(to, "depthwise.cl", "depthwise_input_gradient",
                      grid3(dx->dim[3], dx->dim[2], dx->dim[0] * dx->dim[1]),
                      DEPTHWISE_SHAPE(op, dx, dy), BUFFER(w), BUFFER(dy), BUFFER(dx));
    }
    struct conv_layout forward = forward_layout(op, dx, dy), layout = backward_layout(&forward);
    return convolve(to, &layout, dy, w, NULL, dx, true);
}

static bool conv_weight_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *dy = op->in[1], *dw = op->out[0];
    if (is_depthwise(op, x, dy)) {
        return LAUNCH(to, "depthwise.cl", "depthwise_weight_gradient",
                      grid2(op->i[1] * op->i[2], x->dim[1]), DEPTHWISE_SHAPE(op, x, dy), BUFFER(x),
                      BUFFER(dy), BUFFER(dw));
    }
    struct conv_layout layout = forward_layout(op, x, dy), rows = gradient_layout(&layout);
    int64_t outs = layout.outs / layout.groups, ins = layout.ins / layout.groups;
    struct grid grid = grid3(layout.kh * layout.kw, div_up(ins, GRAD_INS),
                             div_up(outs, GRAD_OUTS) * layout.groups);
    struct arg image, gradient;
    return pack_image(to, &layout, x, SLOT_A, &image) &&
           pack_image(to, &rows, dy, SLOT_B, &gradient) &&
           LAUNCH(to, CONV, "conv_weight_gradient", in_groups(grid, 1, to->group / 8, 1),
                  INT(layout.images), INT(layout.ins), INT(layout.outs), INT(layout.groups),
                  INT(layout.out_height), INT(packed_length(&rows)), INT(layout.kh), INT(layout.kw),
                  INT(layout.sh), INT(layout.sw), INT(packed_rows(&layout)),
                  INT(packed_length(&layout)), image, gradient, BUFFER(dw));
}

const struct launch_entry conv_launches[] = {
    {"conv_forward", conv_forward, 0},
    {"conv_input_gradient", conv_input_gradient, 0},
    {"conv_weight_gradient", conv_weight_gradient, 0},
    {"", NULL, 0},
};

#endif
