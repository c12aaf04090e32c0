/* depthwise.cl - depthwise convolution: every channel has its own kernel; and its gradients.
 *
 * There is little arithmetic per byte, so loads decide the time: in the forward pass, an item
 * computes four adjacent outputs, and each row of the image under their windows is read once for
 * all four. Planes are the channels of all images, one after another. Pixels outside the image are
 * zero; no two work items write to the same place. */
#define SHAPE                                                                                      \
    int planes, int channels, int height, int width, int out_height, int out_width, int kh,        \
        int kw, int sh, int sw, int top, int left

kernel void depthwise_forward(SHAPE, int has_bias, global const float *x, global const float *w,
                              global const float *bias, global float *y) {
    int out_x = 4 * (int)get_global_id(0), out_y = (int)get_global_id(1);
    int plane = (int)get_global_id(2);
    if (out_x >= out_width || out_y >= out_height || plane >= planes) {
        return;
    }
    int channel = plane % channels;
    global const float *from = x + (size_t)plane * height * width;
    global const float *window = w + (size_t)channel * kh * kw;
    float sum[4];
    for (int j = 0; j < 4; ++j) {
        sum[j] = has_bias ? bias[channel] : 0.0f;
    }
    for (int ky = 0; ky < kh; ++ky) {
        int row = out_y * sh - top + ky;
        if (row < 0 || row >= height) {
            continue;
        }
        global const float *line = from + (size_t)row * width;
        for (int kx = 0; kx < kw; ++kx) {
            float tap = window[ky * kw + kx];
            for (int j = 0; j < 4; ++j) {
                int column = (out_x + j) * sw - left + kx;
                if (column >= 0 && column < width) {
                    sum[j] = tap * line[column] + sum[j];
                }
            }
        }
    }
    for (int j = 0; j < 4 && out_x + j < out_width; ++j) {
        y[((size_t)plane * out_height + out_y) * out_width + out_x + j] = sum[j];
    }
}

/* The window that covers a pixel with the tap `at` pixels into the window; -1: none. */
int window_at(int at, int stride, int windows) {
    int window = stride == 1 ? at : at / stride;
    return at >= 0 && window * stride == at && window < windows ? window : -1;
}

/* One work item per pixel of dx, which sums over the windows that cover it. */
kernel void depthwise_input_gradient(SHAPE, global const float *w, global const float *dy,
                                     global float *dx) {
    int column = (int)get_global_id(0), row = (int)get_global_id(1), plane = (int)get_global_id(2);
    if (column >= width || row >= height || plane >= planes) {
        return;
    }
    global const float *dy_plane = dy + (size_t)plane * out_height * out_width;
    global const float *taps = w + (size_t)(plane % channels) * kh * kw;
    float sum = 0.0f;
    for (int ky = 0; ky < kh; ++ky) {
        int down = window_at(row + top - ky, sh, out_height);
        if (down < 0) {
            continue;
        }
        for (int kx = 0; kx < kw; ++kx) {
            int across = window_at(column + left - kx, sw, out_width);
            if (across >= 0) {
                sum = dy_plane[(size_t)down * out_width + across] * taps[ky * kw + kx] + sum;
            }
        }
    }
    dx[((size_t)plane * height + row) * width + column] = sum;
}

/* One work item per weight, which sums over all windows of the batch, eight at a time where the
 * stride is one. */
typedef float8 float8_unaligned __attribute__((aligned(4)));
kernel void depthwise_weight_gradient(SHAPE, global const float *x, global const float *dy,
                                      global float *dw) {
    int tap = (int)get_global_id(0), channel = (int)get_global_id(1);
    if (tap >= kh * kw || channel >= channels) {
        return;
    }
    int ky = tap / kw, kx = tap % kw;
    /* the windows [first, last) whose tap lies inside the image */
    int first = max(0, (left - kx + sw - 1) / sw);
    int last = width + left > kx ? min(out_width, (width - 1 + left - kx) / sw + 1) : 0;
    float8 eight = 0.0f;
    float sum = 0.0f;
    for (int plane = channel; plane < planes; plane += channels) {
        global const float *from = x + (size_t)plane * height * width;
        global const float *dy_plane = dy + (size_t)plane * out_height * out_width;
        for (int out_y = 0; out_y < out_height; ++out_y) {
            int row = out_y * sh - top + ky, out_x = first;
            if (row < 0 || row >= height) {
                continue;
            }
            global const float *line = from + (size_t)row * width - left + kx;
            global const float *dy_row = dy_plane + (size_t)out_y * out_width;
            for (; sw == 1 && out_x + 8 <= last; out_x += 8) {
                eight = *(global const float8_unaligned *)(line + out_x) *
                            *(global const float8_unaligned *)(dy_row + out_x) +
                        eight;
            }
            for (; out_x < last; ++out_x) {
                sum = line[out_x * sw] * dy_row[out_x] + sum;
            }
        }
    }
    float4 four = eight.lo + eight.hi;
    dw[channel * kh * kw + tap] = sum + four.s0 + four.s1 + four.s2 + four.s3;
}
