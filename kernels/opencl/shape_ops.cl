/* shape_ops.cl - add, bias, concat, split and dropout: one work item per value.
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
