/* pooling.cl - maximum and mean pooling, and their gradients.
 *
 * Planes are the channels of all images, one after another. Padding never wins a maximum and never
 * counts in a mean. A gradient has one work item per pixel of the image, which sums over the
 * windows that cover it: no two items write to the same place. */
#define SHAPE                                                                                      \
    int planes, int height, int width, int out_height, int out_width, int kh, int kw, int sh,      \
        int sw, int top, int left

/* `where` keeps the pixel of each maximum within its plane, for the gradient. */
kernel void max_pool_forward(SHAPE, global const float *x, global float *y, global int *where) {
    int out_x = (int)get_global_id(0), out_y = (int)get_global_id(1), plane = (int)get_global_id(2);
    if (out_x >= out_width || out_y >= out_height || plane >= planes) {
        return;
    }
    global const float *from = x + (size_t)plane * height * width;
    int first_y = max(out_y * sh - top, 0), last_y = min(out_y * sh - top + kh, height);
    int first_x = max(out_x * sw - left, 0), last_x = min(out_x * sw - left + kw, width);
    float max_value = -INFINITY;
    int max_pixel = -1;
    for (int row = first_y; row < last_y; ++row) {
        for (int column = first_x; column < last_x; ++column) {
            float value = from[row * width + column];
            if (max_pixel < 0 || value > max_value) {
                max_value = value;
                max_pixel = row * width + column;
            }
        }
    }
    size_t to = ((size_t)plane * out_height + out_y) * out_width + out_x;
    y[to] = max_value;
    where[to] = max_pixel;
}

/* The windows [first, last) that cover a pixel, along one axis. */
int first_window(int at, int stride, int kernel_size) {
    return at < kernel_size ? 0 : (at - kernel_size) / stride + 1;
}

int last_window(int at, int stride, int windows) { return min(at / stride + 1, windows); }

kernel void max_pool_gradient(SHAPE, global const int *where, global const float *dy,
                              global float *dx) {
    int column = (int)get_global_id(0), row = (int)get_global_id(1), plane = (int)get_global_id(2);
    if (column >= width || row >= height || plane >= planes) {
        return;
    }
    int pixel = row * width + column;
    int first_y = first_window(row + top, sh, kh), last_y = last_window(row + top, sh, out_height);
    int first_x = first_window(column + left, sw, kw);
    int last_x = last_window(column + left, sw, out_width);
    float sum = 0.0f;
    for (int out_y = first_y; out_y < last_y; ++out_y) {
        for (int out_x = first_x; out_x < last_x; ++out_x) {
            size_t window = ((size_t)plane * out_height + out_y) * out_width + out_x;
            sum += where[window] == pixel ? dy[window] : 0.0f;
        }
    }
    dx[(size_t)plane * height * width + pixel] = sum;
}

/* How many pixels of the image a window covers, along one axis. */
int pixels_covered(int out_at, int stride, int padding, int kernel_size, int length) {
    int first = max(out_at * stride - padding, 0);
    int last = min(out_at * stride - padding + kernel_size, length);
    return last - first;
}

kernel void avg_pool_forward(SHAPE, global const float *x, global float *y) {
    int out_x = (int)get_global_id(0), out_y = (int)get_global_id(1), plane = (int)get_global_id(2);
    if (out_x >= out_width || out_y >= out_height || plane >= planes) {
        return;
    }
    global const float *from = x + (size_t)plane * height * width;
    float sum = 0.0f;
    for (int ky = 0; ky < kh; ++ky) {
        for (int kx = 0; kx < kw; ++kx) {
            int row = out_y * sh - top + ky, column = out_x * sw - left + kx;
            if (row >= 0 && row < height && column >= 0 && column < width) {
                sum += from[(size_t)row * width + column];
            }
        }
    }
    int count =
        pixels_covered(out_y, sh, top, kh, height) * pixels_covered(out_x, sw, left, kw, width);
    y[((size_t)plane * out_height + out_y) * out_width + out_x] = sum / (float)count;
}

kernel void avg_pool_gradient(SHAPE, global const float *dy, global float *dx) {
    int column = (int)get_global_id(0), row = (int)get_global_id(1), plane = (int)get_global_id(2);
    if (column >= width || row >= height || plane >= planes) {
        return;
    }
    int first_y = first_window(row + top, sh, kh), last_y = last_window(row + top, sh, out_height);
    int first_x = first_window(column + left, sw, kw);
    int last_x = last_window(column + left, sw, out_width);
    float sum = 0.0f;
    for (int out_y = first_y; out_y < last_y; ++out_y) {
        for (int out_x = first_x; out_x < last_x; ++out_x) {
            int count = pixels_covered(out_y, sh, top, kh, height) *
                        pixels_covered(out_x, sw, left, kw, width);
            sum += dy[((size_t)plane * out_height + out_y) * out_width + out_x] / (float)count;
        }
    }
    dx[((size_t)plane * height + row) * width + column] = sum;
}

/* The mean of a whole plane, and its gradient. */
kernel void global_avg_pool_forward(int planes, int pixels, global const float *x,
                                    global float *y) {
    int plane = (int)get_global_id(0);
    if (plane >= planes) {
        return;
    }
    float sum = 0.0f;
    for (int i = 0; i < pixels; ++i) {
        sum += x[(size_t)plane * pixels + i];
    }
    y[plane] = sum / (float)pixels;
}

kernel void global_avg_pool_gradient(int planes, int pixels, global const float *dy,
                                     global float *dx) {
    int i = (int)get_global_id(0), plane = (int)get_global_id(1);
    if (i < pixels && plane < planes) {
        dx[(size_t)plane * pixels + i] = dy[plane] / (float)pixels;
    }
}
