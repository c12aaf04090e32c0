/* depthwise.cl - a convolution in which every channel has a window of its own.
 *
 * There is little arithmetic for every byte, so the only thing to save is fetching: an item makes
 * four neighbours of a row, and each line of the image that its window touches is read once for
 * all of them. The gradients are those of conv.cl with as many groups as channels.
 */
kernel void depthwise_forward(int planes, int channels, int height, int width, int out_height,
                              int out_width, int kh, int kw, int sh, int sw, int top, int left,
                              int has_bias, global const float *x, global const float *w,
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
