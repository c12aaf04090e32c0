/* conv.cl - convolution without a copy of the image: every window is read where it lies.
 *
 * Images are (N, C, H, W), weights (OUT, IN / groups, KH, KW). The shape is the same for forward
 * and both gradients, so it travels as one list of numbers; whoever reads a pixel outside the
 * image reads zero. Work items never share what they write.
 */
#define SHAPE                                                                                      \
    int images, int in_channels, int height, int width, int out_channels, int out_height,          \
        int out_width, int groups, int kh, int kw, int sh, int sw, int top, int left

/* Four neighbours in a row of the output, OUT_BLOCK channels of it at a time: a pixel is fetched
 * once for OUT_BLOCK products. */
#ifndef OUT_BLOCK
#define OUT_BLOCK 4
#endif
kernel void conv_forward(SHAPE, int has_bias, global const float *x, global const float *w,
                         global const float *bias, global float *y) {
    int out_x = 4 * (int)get_global_id(0), out_y = (int)get_global_id(1);
    int per_group = out_channels / groups, blocks = (per_group + OUT_BLOCK - 1) / OUT_BLOCK;
    int at = (int)get_global_id(2);
    int block = at % blocks, group = at / blocks % groups, image = at / blocks / groups;
    if (out_x >= out_width || out_y >= out_height || image >= images)
        return;
    int depth = in_channels / groups, first = group * per_group + block * OUT_BLOCK;
    int channels = min(OUT_BLOCK, per_group - block * OUT_BLOCK);
    float4 sum[OUT_BLOCK];
    for (int o = 0; o < OUT_BLOCK; ++o)
        sum[o] = has_bias && o < channels ? bias[first + o] : 0.0f;
    for (int c = 0; c < depth; ++c) {
        global const float *plane =
            x + ((size_t)image * in_channels + group * depth + c) * height * width;
        for (int ky = 0; ky < kh; ++ky) {
            int row = out_y * sh - top + ky;
            if (row < 0 || row >= height)
                continue;
            global const float *line = plane + (size_t)row * width;
            for (int kx = 0; kx < kw; ++kx) {
                int4 column = (out_x + (int4)(0, 1, 2, 3)) * sw - left + kx;
                float4 seen;
                seen.s0 = column.s0 >= 0 && column.s0 < width ? line[column.s0] : 0.0f;
                seen.s1 = column.s1 >= 0 && column.s1 < width ? line[column.s1] : 0.0f;
                seen.s2 = column.s2 >= 0 && column.s2 < width ? line[column.s2] : 0.0f;
                seen.s3 = column.s3 >= 0 && column.s3 < width ? line[column.s3] : 0.0f;
                for (int o = 0; o < channels; ++o)
                    sum[o] = w[(((size_t)(first + o) * depth + c) * kh + ky) * kw + kx] * seen +
                             sum[o];
            }
        }
    }
    for (int o = 0; o < channels; ++o) {
        global float *to =
            y + (((size_t)image * out_channels + first + o) * out_height + out_y) * out_width;
        float out[4] = {sum[o].s0, sum[o].s1, sum[o].s2, sum[o].s3};
        for (int j = 0; j < 4 && out_x + j < out_width; ++j)
            to[out_x + j] = out[j];
    }
}

/* Where a window stands that sees a pixel with its tap `at` steps in; -1: none does. */
int window_at(int at, int stride, int windows) {
    int found = stride == 1 ? at : at / stride;
    return at >= 0 && found * stride == at && found < windows ? found : -1;
}

/* One item a pixel of the image's gradient: it asks which windows it was seen through. Channels
 * come outermost, so that neighbours read neighbours. */
kernel void conv_input_gradient(SHAPE, global const float *w, global const float *dy,
                                global float *dx) {
    int column = (int)get_global_id(0), row = (int)get_global_id(1), at = (int)get_global_id(2);
    int channel = at % in_channels, image = at / in_channels;
    if (column >= width || row >= height || image >= images)
        return;
    int depth = in_channels / groups, per_group = out_channels / groups;
    int group = channel / depth, c = channel % depth;
    float sum = 0.0f;
    for (int o = group * per_group; o < (group + 1) * per_group; ++o) {
        global const float *back =
            dy + ((size_t)image * out_channels + o) * out_height * out_width;
        global const float *taps = w + ((size_t)o * depth + c) * kh * kw;
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
    }
    dx[((size_t)at * height + row) * width + column] = sum;
}

/* One item a weight: it walks over every window of the batch, eight in a row at a time where they
 * stand side by side. */
typedef float8 loose8 __attribute__((aligned(4)));
kernel void conv_weight_gradient(SHAPE, global const float *x, global const float *dy,
                                 global float *dw) {
    int tap = (int)get_global_id(0), c = (int)get_global_id(1), o = (int)get_global_id(2);
    int depth = in_channels / groups, per_group = out_channels / groups;
    if (tap >= kh * kw || c >= depth || o >= out_channels)
        return;
    int ky = tap / kw, kx = tap % kw, channel = o / per_group * depth + c;
    /* windows whose tap lies on the image: those from `first` to before `last` */
    int first = max(0, (left - kx + sw - 1) / sw);
    int last = width + left > kx ? min(out_width, (width - 1 + left - kx) / sw + 1) : 0;
    float8 eight = 0.0f;
    float sum = 0.0f;
    for (int image = 0; image < images; ++image) {
        global const float *plane = x + ((size_t)image * in_channels + channel) * height * width;
        global const float *back =
            dy + ((size_t)image * out_channels + o) * out_height * out_width;
        for (int out_y = 0; out_y < out_height; ++out_y) {
            int row = out_y * sh - top + ky, out_x = first;
            if (row < 0 || row >= height)
                continue;
            global const float *line = plane + (size_t)row * width - left + kx;
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
    dw[((size_t)o * depth + c) * kh * kw + tap] = sum + four.s0 + four.s1 + four.s2 + four.s3;
}
