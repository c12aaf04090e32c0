/* shape_ops.cl - add, bias, concat, split, dropout and others that move values: one work item per
 * value.
 *
 * These kernels are bound by memory bandwidth. */

kernel void add(int count, global const float *x, global const float *z, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] = x[i] + z[i];
    }
}

/* y += x, or y = x for the first of several terms. */
kernel void accumulate(int count, int accumulates, global const float *x, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] = accumulates ? y[i] + x[i] : x[i];
    }
}

kernel void fill(int count, float value, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] = value;
    }
}

kernel void copy_scaled(int count, float scale, global const float *x, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] = x[i] * scale;
    }
}

/* A bias per channel, over rows (inner = 1) or images (inner = pixels per channel). */
kernel void add_bias(int count, int channels, int inner, global const float *bias,
                     global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] += bias[i / inner % channels];
    }
}

/* A joined tensor has rows of `row` values, of which `run` values from `offset` on are this
 * piece. */
kernel void concat_piece(int count, int run, int row, int offset, global const float *piece,
                         global float *joined) {
    int i = (int)get_global_id(0);
    if (i < count) {
        joined[(size_t)(i / run) * row + offset + i % run] = piece[i];
    }
}

kernel void split_piece(int count, int run, int row, int offset, global const float *joined,
                        global float *piece) {
    int i = (int)get_global_id(0);
    if (i < count) {
        piece[i] = joined[(size_t)(i / run) * row + offset + i % run];
    }
}

/* y is (samples, steps, values): x (samples, values) at every time step. */
kernel void repeat_moment(int count, int steps, int values, global const float *x,
                          global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] = x[(size_t)(i / values / steps) * values + i % values];
    }
}

/* dx is (samples, values): the sum of dy over the time steps. */
kernel void repeat_moment_gradient(int count, int steps, int values, global const float *dy,
                                   global float *dx) {
    int i = (int)get_global_id(0);
    if (i >= count) {
        return;
    }
    global const float *from = dy + (size_t)(i / values) * steps * values + i % values;
    float sum = 0.0f;
    for (int t = 0; t < steps; ++t) {
        sum += from[(size_t)t * values];
    }
    dx[i] = sum;
}

/* Each pixel of rows of `width` becomes factor x factor pixels. */
kernel void upsample_forward(int count, int width, int factor, global const float *x,
                             global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        int row = i / (width * factor) / factor, column = i % (width * factor) / factor;
        y[i] = x[(size_t)row * width + column];
    }
}

kernel void upsample_gradient(int count, int width, int factor, global const float *dy,
                              global float *dx) {
    int i = (int)get_global_id(0);
    if (i >= count) {
        return;
    }
    size_t row = (size_t)width * factor;
    global const float *from = dy + (size_t)(i / width) * factor * row + i % width * factor;
    float sum = 0.0f;
    for (int y = 0; y < factor; ++y) {
        for (int x = 0; x < factor; ++x) {
            sum += from[y * row + x];
        }
    }
    dx[i] = sum;
}

/* The hash of kernels/engine/random.h: each input bit flips about half of the output bits. */
ulong mix_bits(ulong x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93UL;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93UL;
    return x ^ (x >> 32);
}

/* Drops `threshold` of 65536 values and scales the others. Random numbers are counter-based, four
 * values per number, so that all backends drop the same; the mask is kept for the gradient. */
kernel void dropout_forward(int count, float scale, uint threshold, ulong key,
                            global const float *x, global float *y, global uchar *mask) {
    int i = (int)get_global_id(0);
    if (i >= count) {
        return;
    }
    ulong bits = mix_bits(key + (ulong)(i / 4) * 0x9e3779b97f4a7c15UL) >> (16 * (i % 4));
    uchar kept = (bits & 0xffff) >= threshold;
    mask[i] = kept;
    y[i] = kept ? x[i] * scale : 0.0f;
}
