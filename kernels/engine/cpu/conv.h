/* conv.h - convolutions: their shapes, and which file computes which case.
 *
 *   conv.c              checks the operands and chooses among the others; the operations themselves
 *   conv_gemm.c         forward and input gradient, as a matrix product over implicit im2col
 *   conv_weight_grad.c  weight gradient, as a matrix product along the pixels
 *   depthwise.c         all three for one channel per group */
#ifndef FARMHAND_CONV_H
#define FARMHAND_CONV_H

#include "../engine.h"
#include "window.h"

/* x is (images, in, height, width), w is (out, in / groups, kh, kw), y is (images, out, rows,
 * columns); the sizes of images and kernel are in `window`. */
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

/* A 1x1 kernel with stride 1 and no padding: the input is read in place, nothing is packed. */
static inline bool is_pointwise(const struct window *window) {
    return window->kh == 1 && window->kw == 1 && window->sh == 1 && window->sw == 1 &&
           window->top == 0 && window->left == 0 && window->rows == window->height &&
           window->columns == window->width;
}

/* dw of a convolution that is not depthwise. */
size_t conv_weight_grad_workspace(const struct conv *conv, int threads);
void conv_weight_grad(const struct conv *conv, const float *x, const float *dy, float *dw,
                      struct exec_context *exec);

/* One input channel and one output channel per group, in many groups. */
static inline bool is_depthwise(const struct conv *conv) {
    return conv->groups > 1 && conv->in == conv->groups && conv->out == conv->groups;
}
size_t depthwise_workspace(const struct conv *conv, int threads);
void depthwise_forward(const struct conv *conv, const float *x, const float *w, const float *b,
                       float *y, struct exec_context *exec);
void depthwise_weight_gradient(const struct conv *conv, const float *x, const float *dy, float *dw,
                               struct exec_context *exec);
void depthwise_input_gradient(const struct conv *conv, const float *w, const float *dy, float *dx,
                              struct exec_context *exec);

/* One phase of an input gradient: the pixels h of dx with (h + top) % sh == down are the output of
 * a convolution of stride one over dy, with the taps down, down + sh, ... in reverse order (and the
 * same across). */
struct input_phase {
    struct window window;     /* over dy; rows and columns count the pixels of this phase */
    int64_t first_h, first_w; /* the first pixel of dx */
};
struct input_phase input_phase_of(const struct window *window, int64_t down, int64_t across);

#endif
