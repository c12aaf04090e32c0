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

/* One item a pixel of the image's gradient: it asks which windows it was seen through. */
kernel void conv_input_gradient(SHAPE, global const float *w, global const float *dy,
                                global float *dx) {
    int column = (int)get_global_id(0), row = (int)get_global_id(1), at = (int)get_global_id(2);
    int channel = at % in_channels, image = at / in_channels;
    if (column >= width || row >= height || image >= images)
        return;
    int depth = in_channels / groups, per_group = out_channels / groups;
    int group = channel / depth, c = channel % depth;
    float sum = 0.0f;
    for (int ky = 0; ky < kh; ++ky) {
        int down = row + top - ky;
        if (down < 0 || down % sh != 0 || down / sh >= out_height)
            continue;
        for (int kx = 0; kx < kw; ++kx) {
            int across = column + left - kx;
            if (across < 0 || across % sw != 0 || across / sw >= out_width)
                continue;
            size_t pixel = (size_t)(down / sh) * out_width + across / sw;
            for (int o = group * per_group; o < (group + 1) * per_group; ++o)
                sum = dy[((size_t)image * out_channels + o) * out_height * out_width + pixel] *
                          w[(((size_t)o * depth + c) * kh + ky) * kw + kx] +
                      sum;
        }
    }
    dx[((size_t)at * height + row) * width + column] = sum;
}

/* One item a weight: it walks over every window of the batch. */
kernel void conv_weight_gradient(SHAPE, global const float *x, global const float *dy,
                                 global float *dw) {
    int tap = (int)get_global_id(0), c = (int)get_global_id(1), o = (int)get_global_id(2);
    int depth = in_channels / groups, per_group = out_channels / groups;
    if (tap >= kh * kw || c >= depth || o >= out_channels)
        return;
    int ky = tap / kw, kx = tap % kw, channel = o / per_group * depth + c;
    float sum = 0.0f;
    for (int image = 0; image < images; ++image) {
        global const float *plane = x + ((size_t)image * in_channels + channel) * height * width;
        global const float *back =
            dy + ((size_t)image * out_channels + o) * out_height * out_width;
        for (int out_y = 0; out_y < out_height; ++out_y) {
            int row = out_y * sh - top + ky;
            if (row < 0 || row >= height)
                continue;
            for (int out_x = 0; out_x < out_width; ++out_x) {
                int column = out_x * sw - left + kx;
                if (column >= 0 && column < width)
                    sum = plane[(size_t)row * width + column] * back[out_y * out_width + out_x] +
                          sum;
            }
        }
    }
    dw[((size_t)o * depth + c) * kh * kw + tap] = sum;
}
