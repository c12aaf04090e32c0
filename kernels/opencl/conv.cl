/* conv.cl - convolution: forward, and the gradients of image and weights.
 *
 * Images are (N, C, H, W), weights (OUT, IN / groups, KH, KW). What a tap of WIDE windows side by
 * side sees should be one vector in memory. So an image is first laid out: with its margins, as
 * zeros; every row in whole vectors; and where windows stand `sw` apart, the columns 0, sw, 2 sw ..
 * of a row first, then 1, sw + 1 .. and so on. That is one copy of the image, not one for every tap.
 * Then each tap is one vector of pixels times BLOCK weights, and all sums stay in registers.
 *
 * A window of one pixel needs none of it: its image is one long row, and its convolution a product.
 * Work items never share what they write.
 */
#ifndef WIDE
#define WIDE 8
#endif
#ifndef BLOCK
#define BLOCK 8 /* channels of the output that an item makes at once */
#endif
#define UNROLL _Pragma("unroll")
#define JOIN(left, right) left##right
#define JOINED(left, right) JOIN(left, right)
typedef JOINED(float, WIDE) wide;
/* The same where a row may begin anywhere: it promises no more than the alignment of a float. */
typedef wide loose __attribute__((aligned(4)));
typedef union {
    wide vector;
    float values[WIDE];
} parts;

/* Lays images out. A row of `laid` is `phases` times `length` values, and there are `rows` of them;
 * `top` and `left` are the margins before the image. On the way back the pixels of a gradient are
 * `apart` from each other, as the windows were, with zeros between them. */
kernel void lay_out(int planes, int height, int width, int apart_y, int apart_x, int top, int left,
                    int phases, int rows, int length, global const float *restrict x,
                    global float *restrict laid) {
    int at = WIDE * (int)get_global_id(0), row = (int)get_global_id(1);
    int plane = (int)get_global_id(2);
    if (at >= phases * length || row >= rows || plane >= planes)
        return;
    int seen = (row - top) / apart_y;
    bool empty = row < top || seen >= height || seen * apart_y != row - top;
    global const float *from = x + ((size_t)plane * height + seen) * width;
    int column = at % length * phases + at / length - left;
    global float *to = laid + ((size_t)plane * rows + row) * phases * length + at;
    if (!empty && phases * apart_x == 1 && column >= 0 && column + WIDE <= width) {
        *(global loose *)to = *(global const loose *)(from + column);
        return;
    }
    for (int j = 0; j < WIDE; ++j, column += phases) {
        int pixel = column / apart_x;
        bool there = !empty && column >= 0 && pixel < width && pixel * apart_x == column;
        to[j] = there ? from[pixel] : 0.0f;
    }
}

/* Lays weights out: BLOCK channels of the output side by side for every input and tap, filled up
 * with zeros. `outs` and `ins` are those of one group. On the way back the two change places, and
 * the window is turned round (`turned`): what a window saw with its first tap comes back by it. */
kernel void lay_out_weights(int groups, int outs, int ins, int taps, int turned,
                            global const float *restrict w, global float *restrict laid) {
    int tap = (int)get_global_id(0) % taps, in = (int)get_global_id(0) / taps;
    int blocks = (outs + BLOCK - 1) / BLOCK;
    int block = (int)get_global_id(1) % blocks, group = (int)get_global_id(1) / blocks;
    if (in >= ins || group >= groups)
        return;
    size_t place = (((size_t)group * blocks + block) * ins + in) * taps + tap;
    global float *to = laid + place * BLOCK;
    for (int j = 0; j < BLOCK; ++j) {
        int out = block * BLOCK + j;
        size_t straight = (((size_t)group * outs + out) * ins + in) * taps + tap;
        size_t back = (((size_t)group * ins + in) * outs + out) * taps + taps - 1 - tap;
        to[j] = out < outs ? w[turned ? back : straight] : 0.0f;
    }
}

/* One item: WIDE windows in a row, BLOCK channels of the output. A tile that would hang over the
 * end of a long row begins earlier and writes only its own. Forward, and the image's gradient. */
kernel void convolve(int images, int in_channels, int out_channels, int groups, int out_height,
                     int out_width, int kh, int kw, int sh, int sw, int rows, int length,
                     int has_bias, global const float *restrict laid,
                     global const float *restrict weights, global const float *restrict bias,
                     global float *restrict y) {
    int out_x = WIDE * (int)get_global_id(0), out_y = (int)get_global_id(1);
    int outs = out_channels / groups, ins = in_channels / groups;
    int blocks = (outs + BLOCK - 1) / BLOCK, at = (int)get_global_id(2);
    int block = at % blocks, group = at / blocks % groups, image = at / blocks / groups;
    if (out_x >= out_width || out_y >= out_height || image >= images)
        return;
    int first = min(out_x, length - (kw - 1) / sw - WIDE);
    int channels = min(BLOCK, outs - block * BLOCK), channel = group * outs + block * BLOCK;
    wide sum[BLOCK];
    UNROLL
    for (int o = 0; o < BLOCK; ++o)
        sum[o] = has_bias && o < channels ? bias[channel + o] : 0.0f;
    global const float *restrict taps =
        weights + ((size_t)group * blocks + block) * ins * kh * kw * BLOCK;
    for (int c = 0; c < ins; ++c)
        for (int ky = 0; ky < kh; ++ky) {
            size_t row = ((size_t)image * in_channels + group * ins + c) * rows + out_y * sh + ky;
            global const float *line = laid + row * sw * length + first;
            for (int kx = 0, phase = 0; kx < kw; ++kx) {
                wide seen = *(global const loose *)(line + phase * length);
                UNROLL
                for (int o = 0; o < BLOCK; ++o)
                    sum[o] = taps[o] * seen + sum[o];
                taps += BLOCK;
                if (++phase == sw) {
                    phase = 0;
                    ++line;
                }
            }
        }
    UNROLL
    for (int o = 0; o < BLOCK; ++o) {
        if (o >= channels)
            continue;
        size_t row = ((size_t)image * out_channels + channel + o) * out_height + out_y;
        global float *to = y + row * out_width;
        if (first == out_x && out_x + WIDE <= out_width) {
            *(global loose *)(to + out_x) = sum[o];
            continue;
        }
        parts some;
        some.vector = sum[o];
        UNROLL
        for (int j = 0; j < WIDE; ++j)
            if (first + j >= out_x && first + j < out_width)
                to[first + j] = some.values[j];
    }
}

/* WIDE values of a row; those behind its end are zero. */
wide take(global const float *row, int column, int columns) {
    parts some;
    UNROLL
    for (int j = 0; j < WIDE; ++j)
        some.values[j] = column + j < columns ? row[column + j] : 0.0f;
    return some.vector;
}

float sum_of(wide values) {
    parts all;
    all.vector = values;
    float sum = 0.0f;
    UNROLL
    for (int j = 0; j < WIDE; ++j)
        sum += all.values[j];
    return sum;
}

/* One item: one tap of OUTS x INS weights; it walks over all windows of the batch, WIDE at a time.
 * The gradient `dy` is laid out as well, in rows of `long_y`. */
#define OUTS 4
#define INS 3
kernel void conv_weight_gradient(int images, int in_channels, int out_channels, int groups,
                                 int out_height, int long_y, int kh, int kw, int sh, int sw,
                                 int rows, int length, global const float *restrict laid,
                                 global const float *restrict dy, global float *restrict dw) {
    int outs = out_channels / groups, ins = in_channels / groups, blocks = (outs + OUTS - 1) / OUTS;
    int tap = (int)get_global_id(0), in = INS * (int)get_global_id(1);
    int out = (int)get_global_id(2) % blocks * OUTS, group = (int)get_global_id(2) / blocks;
    if (tap >= kh * kw || in >= ins || group >= groups)
        return;
    int ky = tap / kw, kx = tap % kw, whole = long_y / WIDE * WIDE;
    wide sum[OUTS][INS];
    UNROLL
    for (int o = 0; o < OUTS; ++o)
        UNROLL
        for (int c = 0; c < INS; ++c)
            sum[o][c] = 0.0f;
    for (int image = 0; image < images; ++image)
        for (int out_y = 0; out_y < out_height; ++out_y) {
            global const float *seen[INS], *back[OUTS];
            UNROLL
            for (int c = 0; c < INS; ++c) {
                size_t plane = (size_t)image * in_channels + group * ins + min(in + c, ins - 1);
                size_t row = plane * rows + out_y * sh + ky;
                seen[c] = laid + (row * sw + kx % sw) * length + kx / sw;
            }
            UNROLL
            for (int o = 0; o < OUTS; ++o) {
                size_t plane = (size_t)image * out_channels + group * outs + min(out + o, outs - 1);
                back[o] = dy + (plane * out_height + out_y) * long_y;
            }
            for (int x = 0; x < whole; x += WIDE) {
                wide left[INS];
                UNROLL
                for (int c = 0; c < INS; ++c)
                    left[c] = *(global const loose *)(seen[c] + x);
                UNROLL
                for (int o = 0; o < OUTS; ++o) {
                    wide right = *(global const loose *)(back[o] + x);
                    UNROLL
                    for (int c = 0; c < INS; ++c)
                        sum[o][c] = left[c] * right + sum[o][c];
                }
            }
            if (whole < long_y) { /* one long row may end anywhere */
                UNROLL
                for (int o = 0; o < OUTS; ++o) {
                    wide right = take(back[o], whole, long_y);
                    UNROLL
                    for (int c = 0; c < INS; ++c)
                        sum[o][c] = take(seen[c], whole, long_y) * right + sum[o][c];
                }
            }
        }
    UNROLL
    for (int o = 0; o < OUTS; ++o)
        UNROLL
        for (int c = 0; c < INS; ++c)
            if (out + o < outs && in + c < ins)
                dw[(((size_t)group * outs + out + o) * ins + in + c) * kh * kw + tap] =
                    sum_of(sum[o][c]);
}
