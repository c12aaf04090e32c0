/* depthwise.cl - a convolution in which every channel has a window of its own, and its gradients.
 *
 * There is little arithmetic for every byte, so the only thing to save is fetching: forward, an
 * item makes four neighbours of a row, and each line of the image that its window touches is read
 * once for all of them. Planes are the channels of all images, one after another. Whoever reads a
 * pixel outside the image reads zero; work items never share what they write.
 */
#define SHAPE                                                                                      \
    int planes, int channels, int height, int width, int out_height, int out_width, int kh,        \
        int kw, int sh, int sw, int top, int left

kernel void depthwise_forward(SHAPE, int has_bias, global const float *x, global const float *w,
                              global const float *bias, global float *y) {
    int out_x = 4 * (int)get_global_id(0), out_y = (int)get_global_id(1);
    int plane = (int)get_global_id(2);
    if (out_x >= out_width || out_y >= out_height || plane >= planes)
        return;
    int channel = plane % channels;
    global const float *from = x + (size_t)plane * height * width;
    global const float *window = w + (size_t)channel * kh * kw;
    float sum[4];
    for (int j = 0; j < 4; ++j)
        sum[j] = has_bias ? bias[channel] : 0.0f;
    for (int ky = 0; ky < kh; ++ky) {
        int row = out_y * sh - top + ky;
        if (row < 0 || row >= height)
            continue;
        global const float *line = from + (size_t)row * width;
        for (int kx = 0; kx < kw; ++kx) {
            float tap = window[ky * kw + kx];
            for (int j = 0; j < 4; ++j) {
                int column = (out_x + j) * sw - left + kx;
                if (column >= 0 && column < width)
                    sum[j] = tap * line[column] + sum[j];
            }
        }
    }
    for (int j = 0; j < 4 && out_x + j < out_width; ++j)
        y[((size_t)plane * out_height + out_y) * out_width + out_x + j] = sum[j];
}

/* Where a window stands that sees a pixel with its tap `at` steps in; -1: none does. */
int window_at(int at, int stride, int windows) {
    int found = stride == 1 ? at : at / stride;
    return at >= 0 && found * stride == at && found < windows ? found : -1;
}

/* One item a pixel of the image's gradient: it asks which windows it was seen through. */
kernel void depthwise_input_gradient(SHAPE, global const float *w, global const float *dy,
                                     global float *dx) {
    int column = (int)get_global_id(0), row = (int)get_global_id(1), plane = (int)get_global_id(2);
    if (column >= width || row >= height || plane >= planes)
        return;
    global const float *back = dy + (size_t)plane * out_height * out_width;
    global const float *taps = w + (size_t)(plane % channels) * kh * kw;
    float sum = 0.0f;
    for (int ky = 0; ky < kh; ++ky) {
        int down = window_at(row + top - ky, sh, out_height);
        if (down < 0)
            continue;
        for (int kx = 0; kx < kw; ++kx) {
            int across = window_at(column + left - kx, sw, out_width);
            if (across >= 0)
                sum = back[(size_t)down * out_width + across] * taps[ky * kw + kx] + sum;
        }
    }
    dx[((size_t)plane * height + row) * width + column] = sum;
}

/* One item a weight: it walks over every window of the batch, eight in a row at a time where they
 * stand side by side. */
typedef float8 loose8 __attribute__((aligned(4)));
kernel void depthwise_weight_gradient(SHAPE, global const float *x, global const float *dy,
                                      global float *dw) {
    int tap = (int)get_global_id(0), channel = (int)get_global_id(1);
    if (tap >= kh * kw || channel >= channels)
        return;
    int ky = tap / kw, kx = tap % kw;
    /* windows whose tap lies on the image: those from `first` to before `last` */
    int first = max(0, (left - kx + sw - 1) / sw);
    int last = width + left > kx ? min(out_width, (width - 1 + left - kx) / sw + 1) : 0;
    float8 eight = 0.0f;
    float sum = 0.0f;
    for (int plane = channel; plane < planes; plane += channels) {
        global const float *from = x + (size_t)plane * height * width;
        global const float *back = dy + (size_t)plane * out_height * out_width;
        for (int out_y = 0; out_y < out_height; ++out_y) {
            int row = out_y * sh - top + ky, out_x = first;
            if (row < 0 || row >= height)
                continue;
            global const float *line = from + (size_t)row * width - left + kx;
            global const float *sent = back + (size_t)out_y * out_width;
            for (; sw == 1 && out_x + 8 <= last; out_x += 8)
                eight = *(global const loose8 *)(line + out_x) *
                            *(global const loose8 *)(sent + out_x) +
                        eight;
            for (; out_x < last; ++out_x)
                sum = line[out_x * sw] * sent[out_x] + sum;
        }
    }
    float4 four = eight.lo + eight.hi;
    dw[channel * kh * kw + tap] = sum + four.s0 + four.s1 + four.s2 + four.s3;
}
