/* products.h - the kinds that make up the family of products, file by file. */
#ifndef FARMHAND_PRODUCTS_H
#define FARMHAND_PRODUCTS_H

#include "../engine.h"
#include "window.h"

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }
/* Bytes of so many floats, in whole cache lines. */
static inline size_t lines(int64_t floats) { return (size_t)pieces(floats, 16) * 64; }

extern const struct op_kind conv_forward, conv_weight_gradient, conv_input_gradient;
extern const struct op_kind channel_bias, channel_bias_gradient;

/* A convolution as its operands say: x (images, in, height, width), w (out, in / groups, kh, kw),
 * y (images, out, rows, columns). */
struct conv {
    struct window window;
    int64_t images, in, out, groups;
};

static inline int64_t conv_area(const struct conv *conv) {
    return conv->window.height * conv->window.width;
}
static inline int64_t conv_out_area(const struct conv *conv) {
    return conv->window.rows * conv->window.columns;
}
static inline int64_t conv_taps(const struct conv *conv) {
    return conv->window.kh * conv->window.kw;
}

/* Every window is one pixel and every pixel has one: nothing needs to be copied. */
static inline bool reads_in_place(const struct window *window) {
    return window->kh == 1 && window->kw == 1 && window->sh == 1 && window->sw == 1 &&
           window->top == 0 && window->left == 0 && window->rows == window->height &&
           window->columns == window->width;
}

/* The weight gradient of all other convolutions. */
size_t harvest_workspace(const struct conv *conv, int threads);
void harvest_run(const struct conv *conv, const float *x, const float *dy, float *dw,
                 struct scene *scene);

/* One channel in, one channel out, many groups: depthwise.c does these, without any product. */
static inline bool is_depthwise(const struct conv *conv) {
    return conv->groups > 1 && conv->in == conv->groups && conv->out == conv->groups;
}
size_t depthwise_workspace(const struct conv *conv, int threads);
void depthwise_forward(const struct conv *conv, const float *x, const float *w, const float *b,
                       float *y, struct scene *scene);
void depthwise_weight_gradient(const struct conv *conv, const float *x, const float *dy, float *dw,
                               struct scene *scene);
void depthwise_input_gradient(const struct conv *conv, const float *w, const float *dy, float *dx,
                              struct scene *scene);

/* The windows of one phase of the input gradient: the pixels h of dx with (h + top) % sh == down
 * are windows of stride one over dy. The taps they meet are down, down + sh, ..., last first. */
struct phase_of_input {
    struct window window;      /* over dy; rows and columns count the pixels of this phase */
    int64_t first_h, first_w;  /* of dx */
};
struct phase_of_input phase_of_input(const struct window *window, int64_t down, int64_t across);

#endif
