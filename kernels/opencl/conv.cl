/* conv.cl - convolution: forward, input gradient and weight gradient.
 *
 * Images are (N, C, H, W), weights are (OUT, IN / groups, KH, KW). The input of one tap for WIDE
 * adjacent windows should be one vector in memory. So an image is packed first: with its padding as
 * zeros; every row in whole vectors; and for a stride `sw`, the columns 0, sw, 2 sw .. of a row
 * first, then 1, sw + 1 .. and so on (the phases). That is one copy of the image, where im2col
 * makes one per tap. Then each tap is one vector of pixels times OUT_BLOCK weights, and all sums
 * stay in registers.
 *
 * A pointwise convolution (1x1) needs no packing: its image is one long row, and its convolution a
 * matrix product. No two work items write to the same place. */
#ifndef OUT_BLOCK
#define OUT_BLOCK 8 /* output channels per work item */
#endif

/* Packs images. A packed row has `phases` times `length` values, and there are `rows` of them;
 * `top` and `left` are the padding before the image. In an input gradient, the pixels of dy are
 * `spread` apart, like the windows of the forward pass, with zeros between them. */
kernel void pack_image(int planes, int height, int width, int spread_y, int spread_x, int top,
                       int left, int phases, int rows, int length, global const float *restrict x,
                       global float *restrict packed) {
    int at = WIDE * (int)get_global_id(0), row = (int)get_global_id(1);
    int plane = (int)get_global_id(2);
    if (at >= phases * length || row >= rows || plane >= planes) {
        return;
    }
    int source_row = (row - top) / spread_y;
    bool is_zero = row < top || source_row >= height || source_row * spread_y != row - top;
    global const float *from = x + ((size_t)plane * height + source_row) * width;
    int column = at % length * phases + at / length - left;
    global float *to = packed + ((size_t)plane * rows + row) * phases * length + at;
    if (!is_zero && phases * spread_x == 1 && column >= 0 && column + WIDE <= width) {
        *(global wide_unaligned *)to = *(global const wide_unaligned *)(from + column);
        return;
    }
    for (int j = 0; j < WIDE; ++j, column += phases) {
        int pixel = column / spread_x;
        bool inside = !is_zero && column >= 0 && pixel < width && pixel * spread_x == column;
        to[j] = inside ? from[pixel] : 0.0f;
    }
}

/* Packs weights: OUT_BLOCK output channels side by side for every input channel and tap, padded
 * with zeros. `outs` and `ins` are per group. For an input gradient (`transposed`), input and
 * output channels change places, and the taps are reversed. */
kernel void pack_weights(int groups, int outs, int ins, int taps, int transposed,
                         global const float *restrict w, global float *restrict packed) {
    int tap = (int)get_global_id(0) % taps, in = (int)get_global_id(0) / taps;
    int blocks = (outs + OUT_BLOCK - 1) / OUT_BLOCK;
    int block = (int)get_global_id(1) % blocks, group = (int)get_global_id(1) / blocks;
    if (in >= ins || group >= groups) {
        return;
    }
    size_t block_at = (((size_t)group * blocks + block) * ins + in) * taps + tap;
    global float *to = packed + block_at * OUT_BLOCK;
    for (int j = 0; j < OUT_BLOCK; ++j) {
        int out = block * OUT_BLOCK + j;
        size_t forward_at = (((size_t)group * outs + out) * ins + in) * taps + tap;
        size_t transposed_at = (((size_t)group * ins + in) * outs + out) * taps + taps - 1 - tap;
        to[j] = out < outs ? w[transposed ? transposed_at : forward_at] : 0.0f;
    }
}

/* WIDE adjacent windows and OUT_BLOCK output channels per work item: forward and input gradient. A
 * tile that would exceed the end of a long row begins earlier and stores only its own values. */
kernel void conv_packed(int images, int in_channels, int out_channels, int groups, int out_height,
                        int out_width, int kh, int kw, int sh, int sw, int rows, int length,
                        int has_bias, global const float *restrict packed,
                        global const float *restrict weights, global const float *restrict bias,
                        global float *restrict y) {
    int out_x = WIDE * (int)get_global_id(0), out_y = (int)get_global_id(1);
    int outs = out_channels / groups, ins = in_channels / groups;
    int blocks = (outs + OUT_BLOCK - 1) / OUT_BLOCK, at = (int)get_global_id(2);
    int block = at % blocks, group = at / blocks % groups, image = at / blocks / groups;
    if (out_x >= out_width || out_y >= out_height || image >= images) {
        return;
    }
    int first = min(out_x, length - (kw - 1) / sw - WIDE);
    int channels = min(OUT_BLOCK, outs - block * OUT_BLOCK),
        channel = group * outs + block * OUT_BLOCK;
    wide sum[OUT_BLOCK];
    UNROLL
    for (int o = 0; o < OUT_BLOCK; ++o) {
        sum[o] = has_bias && o < channels ? bias[channel + o] : 0.0f;
    }
    global const float *restrict taps =
        weights + ((size_t)group * blocks + block) * ins * kh * kw * OUT_BLOCK;
    for (int c = 0; c < ins; ++c) {
        for (int ky = 0; ky < kh; ++ky) {
            size_t row = ((size_t)image * in_channels + group * ins + c) * rows + out_y * sh + ky;
            global const float *row_from = packed + row * sw * length + first;
            for (int kx = 0, phase = 0; kx < kw; ++kx) {
                wide input = *(global const wide_unaligned *)(row_from + phase * length);
                UNROLL
                for (int o = 0; o < OUT_BLOCK; ++o) {
                    sum[o] = taps[o] * input + sum[o];
                }
                taps += OUT_BLOCK;
                if (++phase == sw) {
                    phase = 0;
                    ++row_from;
                }
            }
        }
    }
    UNROLL
    for (int o = 0; o < OUT_BLOCK; ++o) {
        if (o >= channels) {
            continue;
        }
        size_t row = ((size_t)image * out_channels + channel + o) * out_height + out_y;
        global float *to = y + row * out_width;
        if (first == out_x && out_x + WIDE <= out_width) {
            *(global wide_unaligned *)(to + out_x) = sum[o];
            continue;
        }
        wide_lanes lanes;
        lanes.vector = sum[o];
        UNROLL
        for (int j = 0; j < WIDE; ++j) {
            if (first + j >= out_x && first + j < out_width) {
                to[first + j] = lanes.values[j];
            }
        }
    }
}

/* Loads WIDE values of a row; those after its end are zero. */
wide load_or_zero(global const float *row, int column, int columns) {
    wide_lanes lanes;
    UNROLL
    for (int j = 0; j < WIDE; ++j) {
        lanes.values[j] = column + j < columns ? row[column + j] : 0.0f;
    }
    return lanes.vector;
}

float sum_lanes(wide values) {
    wide_lanes lanes;
    lanes.vector = values;
    float sum = 0.0f;
    UNROLL
    for (int j = 0; j < WIDE; ++j) {
        sum += lanes.values[j];
    }
    return sum;
}

/* One tap of GRAD_OUTS x GRAD_INS weights per work item, summed over all windows of the batch, WIDE
 * at a time. dy is packed as well, in rows of `dy_length`. */
#define GRAD_OUTS 4
#define GRAD_INS 3
kernel void conv_weight_gradient(int images, int in_channels, int out_channels, int groups,
                                 int out_height, int dy_length, int kh, int kw, int sh, int sw,
                                 int rows, int length, global const float *restrict packed,
                                 global const float *restrict dy, global float *restrict dw) {
    int outs = out_channels / groups, ins = in_channels / groups,
        blocks = (outs + GRAD_OUTS - 1) / GRAD_OUTS;
    int tap = (int)get_global_id(0), in = GRAD_INS * (int)get_global_id(1);
    int out = (int)get_global_id(2) % blocks * GRAD_OUTS, group = (int)get_global_id(2) / blocks;
    if (tap >= kh * kw || in >= ins || group >= groups) {
        return;
    }
    int ky = tap / kw, kx = tap % kw, whole_vectors = dy_length / WIDE * WIDE;
    wide sum[GRAD_OUTS][GRAD_INS];
    UNROLL
    for (int o = 0; o < GRAD_OUTS; ++o) {
        UNROLL
        for (int c = 0; c < GRAD_INS; ++c) {
            sum[o][c] = 0.0f;
        }
    }
    for (int image = 0; image < images; ++image) {
        for (int out_y = 0; out_y < out_height; ++out_y) {
            global const float *input[GRAD_INS], *gradient[GRAD_OUTS];
            UNROLL
            for (int c = 0; c < GRAD_INS; ++c) {
                size_t plane = (size_t)image * in_channels + group * ins + min(in + c, ins - 1);
                size_t row = plane * rows + out_y * sh + ky;
                input[c] = packed + (row * sw + kx % sw) * length + kx / sw;
            }
            UNROLL
            for (int o = 0; o < GRAD_OUTS; ++o) {
                size_t plane = (size_t)image * out_channels + group * outs + min(out + o, outs - 1);
                gradient[o] = dy + (plane * out_height + out_y) * dy_length;
            }
            for (int x = 0; x < whole_vectors; x += WIDE) {
                wide left[GRAD_INS];
                UNROLL
                for (int c = 0; c < GRAD_INS; ++c) {
                    left[c] = *(global const wide_unaligned *)(input[c] + x);
                }
                UNROLL
                for (int o = 0; o < GRAD_OUTS; ++o) {
                    wide right = *(global const wide_unaligned *)(gradient[o] + x);
                    UNROLL
                    for (int c = 0; c < GRAD_INS; ++c) {
                        sum[o][c] = left[c] * right + sum[o][c];
                    }
                }
            }
            if (whole_vectors < dy_length) { /* the end of one long row */
                UNROLL
                for (int o = 0; o < GRAD_OUTS; ++o) {
                    wide right = load_or_zero(gradient[o], whole_vectors, dy_length);
                    UNROLL
                    for (int c = 0; c < GRAD_INS; ++c) {
                        sum[o][c] =
                            load_or_zero(input[c], whole_vectors, dy_length) * right + sum[o][c];
                    }
                }
            }
        }
    }
    UNROLL
    for (int o = 0; o < GRAD_OUTS; ++o) {
        UNROLL
        for (int c = 0; c < GRAD_INS; ++c) {
            if (out + o < outs && in + c < ins) {
                dw[(((size_t)group * outs + out + o) * ins + in + c) * kh * kw + tap] =
                    sum_lanes(sum[o][c]);
            }
        }
    }
}
