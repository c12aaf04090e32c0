/* dense.cl - a fully connected layer in as few launches as possible: one forward, one backward, and
 * one for the loss after the last layer.
 *
 * For a small network the launches are most of the time, so each does all that its data allow:
 * forward adds the bias and applies ReLU; backward computes the input gradient, applies the
 * gradient of ReLU, and updates the weights without storing their gradient. Rows are samples.
 * Weights are (IN, OUT), so that forward and update read whole vectors of outputs, and backward
 * multiplies row by row. A work item computes MR rows (inputs, for the update) of VECTORS vectors
 * at a time, all in registers, and TILES such tiles one below the other, so that what they share
 * stays in the nearest cache. */
#define MR 4 /* sum_lanes4() returns this many sums */
#ifndef VECTORS
#define VECTORS 2
#endif
#ifndef TILES
#define TILES 8
#endif
#define COLUMNS (VECTORS * WIDE)

/* Loads WIDE values of a row; those after its end are `rest`. */
wide load_or(global const float *row, int column, int columns, float rest) {
    if (column + WIDE <= columns) {
        return *(global const wide_unaligned *)(row + column);
    }
    wide_lanes lanes;
    UNROLL
    for (int j = 0; j < WIDE; ++j) {
        lanes.values[j] = column + j < columns ? row[column + j] : rest;
    }
    return lanes.vector;
}

/* The same, where `is_whole` tells that the row does not end here. */
wide load_columns(global const float *row, int column, int columns, bool is_whole) {
    return is_whole ? *(global const wide_unaligned *)(row + column)
                    : load_or(row, column, columns, 0.0f);
}

void store_columns(wide vector, global float *row, int column, int columns) {
    if (column + WIDE <= columns) {
        *(global wide_unaligned *)(row + column) = vector;
        return;
    }
    wide_lanes lanes;
    lanes.vector = vector;
    UNROLL
    for (int j = 0; j < WIDE; ++j) {
        if (column + j < columns) {
            row[column + j] = lanes.values[j];
        }
    }
}

float sum_lanes(wide values) {
#if WIDE == 16
    float8 eight = values.lo + values.hi;
    float4 four = eight.lo + eight.hi;
#elif WIDE == 8
    float4 four = values.lo + values.hi;
#else
    float4 four = values;
#endif
    float2 two = four.lo + four.hi;
    return two.s0 + two.s1;
}

/* Four horizontal sums at once, by adding pairs. */
float4 sum_lanes4(wide a, wide b, wide c, wide d) {
#if WIDE == 16
    float8 p = a.lo + a.hi, q = b.lo + b.hi, r = c.lo + c.hi, s = d.lo + d.hi;
    float4 e = p.lo + p.hi, f = q.lo + q.hi, g = r.lo + r.hi, h = s.lo + s.hi;
#elif WIDE == 8
    float4 e = a.lo + a.hi, f = b.lo + b.hi, g = c.lo + c.hi, h = d.lo + d.hi;
#else
    float4 e = a, f = b, g = c, h = d;
#endif
    float4 first = (float4)(e.lo, f.lo) + (float4)(e.hi, f.hi);
    float4 last = (float4)(g.lo, h.lo) + (float4)(g.hi, h.hi);
    return (float4)(first.even, last.even) + (float4)(first.odd, last.odd);
}

float max_lane(wide values) {
    wide_lanes lanes;
    lanes.vector = values;
    float max_value = lanes.values[0];
    UNROLL
    for (int j = 1; j < WIDE; ++j) {
        max_value = lanes.values[j] > max_value ? lanes.values[j] : max_value;
    }
    return max_value;
}

/* y = x w + bias, with ReLU where `apply_relu`. The batch begins at `first_row` of x: a whole data
 * set may be on the device, and a batch is a range of it. */
kernel void dense_forward(int rows, int in, int out, int apply_relu, int first_row,
                          global const float *restrict x, global const float *restrict w,
                          global const float *restrict bias, global float *restrict y) {
    int column = COLUMNS * (int)get_global_id(0), start = TILES * MR * (int)get_global_id(1);
    if (column >= out) {
        return;
    }
    bool is_whole = column + COLUMNS <= out;
    float lower_bound = apply_relu ? 0.0f : -INFINITY;
    for (int row = start; row < min(start + TILES * MR, rows); row += MR) {
        global const float *restrict from = x + (size_t)(first_row + row) * in;
        wide sum[MR][VECTORS];
        UNROLL
        for (int r = 0; r < MR; ++r) {
            UNROLL
            for (int v = 0; v < VECTORS; ++v) {
                sum[r][v] = load_or(bias, column + v * WIDE, out, 0.0f);
            }
        }
        for (int i = 0; i < in; ++i) {
            wide right[VECTORS];
            UNROLL
            for (int v = 0; v < VECTORS; ++v) {
                right[v] = load_columns(w + (size_t)i * out, column + v * WIDE, out, is_whole);
            }
            UNROLL
            for (int r = 0; r < MR; ++r) {
                float left = from[(size_t)min(r, rows - 1 - row) * in + i];
                UNROLL
                for (int v = 0; v < VECTORS; ++v) {
                    sum[r][v] = left * right[v] + sum[r][v];
                }
            }
        }
        UNROLL
        for (int r = 0; r < MR; ++r) {
            UNROLL
            for (int v = 0; v < VECTORS; ++v) {
                if (row + r < rows) {
                    store_columns(fmax(sum[r][v], (wide)lower_bound), y + (size_t)(row + r) * out,
                                  column + v * WIDE, out);
                }
            }
        }
    }
}

/* The loss of every row, and its gradient softmax(z) - one_hot(label), divided by the rows. All
 * loads are whole vectors; lanes after the end of a row hold values that do not change the
 * result. */
kernel void dense_loss(int rows, int classes, int first_row, global const float *restrict z,
                       global const int *restrict labels, global float *restrict dz,
                       global float *restrict row_loss) {
    int row = (int)get_global_id(0);
    if (row >= rows) {
        return;
    }
    global const float *restrict from = z + (size_t)row * classes;
    global float *restrict to = dz + (size_t)row * classes;
    int label = labels[first_row + row];
    wide maxima = from[0];
    for (int c = 0; c < classes; c += WIDE) {
        wide lanes = load_or(from, c, classes, from[0]);
        maxima = lanes > maxima ? lanes : maxima;
    }
    float max_value = max_lane(maxima);
    wide sums = 0.0f;
    for (int c = 0; c < classes; c += WIDE) {
        wide power = exp(load_or(from, c, classes, -INFINITY) - max_value);
        store_columns(power, to, c, classes);
        sums += power;
    }
    float sum = sum_lanes(sums), part = 1.0f / (sum * (float)rows);
    for (int c = 0; c < classes; c += WIDE) {
        store_columns(part * load_or(to, c, classes, 0.0f), to, c, classes);
    }
    to[label] -= 1.0f / (float)rows;
    row_loss[row] = log(sum) + max_value - from[label];
}

/* w -= rate xT dz for MR inputs and COLUMNS outputs; the gradient exists in registers only. */
void update_weights(int rows, int in, int out, float rate, int first, int column,
                    global const float *restrict x, global const float *restrict dz,
                    global float *restrict w) {
    bool is_whole = column + COLUMNS <= out;
    wide sum[MR][VECTORS];
    UNROLL
    for (int i = 0; i < MR; ++i) {
        UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            sum[i][v] = 0.0f;
        }
    }
    for (int row = 0; row < rows; ++row) {
        wide right[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            right[v] = load_columns(dz + (size_t)row * out, column + v * WIDE, out, is_whole);
        }
        UNROLL
        for (int i = 0; i < MR; ++i) {
            float left = x[(size_t)row * in + min(first + i, in - 1)];
            UNROLL
            for (int v = 0; v < VECTORS; ++v) {
                sum[i][v] = left * right[v] + sum[i][v];
            }
        }
    }
    UNROLL
    for (int i = 0; i < MR; ++i) {
        UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            int at = column + v * WIDE;
            global float *to = w + (size_t)(first + i) * out;
            if (first + i < in) {
                store_columns(load_or(to, at, out, 0.0f) - rate * sum[i][v], to, at, out);
            }
        }
    }
}

/* The same for the bias, columns [from, to). */
void update_bias(int rows, int out, float rate, int from, int to, global const float *restrict dz,
                 global float *restrict bias) {
    for (int at = from; at < min(to, out); at += WIDE) {
        wide sum = 0.0f;
        for (int row = 0; row < rows; ++row) {
            sum += load_or(dz + (size_t)row * out, at, out, 0.0f);
        }
        store_columns(load_or(bias, at, out, 0.0f) - rate * sum, bias, at, out);
    }
}

/* Updates weights and bias of a layer. For the first layer that is the whole backward pass, since
 * the gradient of the data is not needed. The items of the first inputs update the bias. */
kernel void dense_update(int rows, int in, int out, float rate, int first_row,
                         global const float *restrict x, global const float *restrict dz,
                         global float *restrict w, global float *restrict bias) {
    int column = COLUMNS * (int)get_global_id(0), start = TILES * MR * (int)get_global_id(1);
    if (column >= out) {
        return;
    }
    for (int first = start; first < min(start + TILES * MR, in); first += MR) {
        update_weights(rows, in, out, rate, first, column, x + (size_t)first_row * in, dz, w);
    }
    if (start == 0) {
        update_bias(rows, out, rate, column, column + COLUMNS, dz, bias);
    }
}

/* Adds WIDE products of GRAD_ROWS rows of dz times MR rows of w. */
#ifndef GRAD_ROWS
#define GRAD_ROWS 3
#endif
void multiply_rows(int row, int rows, int first, int in, int column, int out, bool is_whole,
                   global const float *restrict dz, global const float *restrict w,
                   wide sum[GRAD_ROWS][MR]) {
    wide gradient[GRAD_ROWS];
    UNROLL
    for (int r = 0; r < GRAD_ROWS; ++r) {
        gradient[r] =
            load_columns(dz + (size_t)min(row + r, rows - 1) * out, column, out, is_whole);
    }
    UNROLL
    for (int i = 0; i < MR; ++i) {
        wide right = load_columns(w + (size_t)min(first + i, in - 1) * out, column, out, is_whole);
        UNROLL
        for (int r = 0; r < GRAD_ROWS; ++r) {
            sum[r][i] = gradient[r] * right + sum[r][i];
        }
    }
}

/* dx = dz wT where the input was above zero (ReLU): GRAD_ROWS rows of MR inputs. */
void input_gradient_tile(int row, int rows, int first, int in, int out,
                         global const float *restrict x, global const float *restrict dz,
                         global const float *restrict w, global float *restrict dx) {
    wide sum[GRAD_ROWS][MR];
    UNROLL
    for (int r = 0; r < GRAD_ROWS; ++r) {
        UNROLL
        for (int i = 0; i < MR; ++i) {
            sum[r][i] = 0.0f;
        }
    }
    int column = 0;
    for (; column + WIDE <= out; column += WIDE) {
        multiply_rows(row, rows, first, in, column, out, true, dz, w, sum);
    }
    if (column < out) {
        multiply_rows(row, rows, first, in, column, out, false, dz, w, sum);
    }
    UNROLL
    for (int r = 0; r < GRAD_ROWS && row + r < rows; ++r) {
        size_t at = (size_t)(row + r) * in + first;
        float4 four = sum_lanes4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        if (first + MR <= in) {
            float4 input = *(global const float4_unaligned *)(x + at);
            *(global float4_unaligned *)(dx + at) = input > 0.0f ? four : 0.0f;
            continue;
        }
        float values[MR] = {four.s0, four.s1, four.s2, four.s3};
        for (int i = 0; i < in - first; ++i) {
            dx[at + i] = x[at + i] > 0.0f ? values[i] : 0.0f;
        }
    }
}

/* The input gradient alone; dense_update runs after it. */
kernel void dense_input_gradient(int rows, int in, int out, global const float *restrict x,
                                 global const float *restrict dz, global const float *restrict w,
                                 global float *restrict dx) {
    int first = MR * (int)get_global_id(0), row = GRAD_ROWS * (int)get_global_id(1);
    if (row < rows && first < in) {
        input_gradient_tile(row, rows, first, in, out, x, dz, w, dx);
    }
}

/* Both in one launch. A work item owns MR inputs: it computes their gradient for all rows and then,
 * since no other item reads these rows of w, updates them. */
kernel void dense_backward(int rows, int in, int out, float rate, global const float *restrict x,
                           global const float *restrict dz, global float *restrict w,
                           global float *restrict bias, global float *restrict dx) {
    int first = MR * (int)get_global_id(0);
    if (first >= in) {
        return;
    }
    for (int row = 0; row < rows; row += GRAD_ROWS) {
        input_gradient_tile(row, rows, first, in, out, x, dz, w, dx);
    }
    for (int column = 0; column < out; column += COLUMNS) {
        update_weights(rows, in, out, rate, first, column, x, dz, w);
    }
    if (first == 0) {
        update_bias(rows, out, rate, 0, out, dz, bias);
    }
}
