/* dense.cl - a perceptron's layer in as few launches as it can have: one forward, one for the way
 * back to its input, one that changes its weights; and one for the loss behind the last layer.
 *
 * On a small network the launches are the time, so each does all that its data allow: forward adds
 * the bias and bends, the way back passes the bend, the update never writes a gradient down. Rows
 * are samples. Weights lie (IN, OUT), so that forward and update read whole vectors of outputs and
 * the way back multiplies row by row. An item makes MR rows (inputs, for the update) of WIDE values.
 */
#ifndef MR
#define MR 8
#endif
#ifndef WIDE
#define WIDE 8
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

/* WIDE values of a row; those behind its end are zero. */
wide take(global const float *row, int column, int columns) {
    if (column + WIDE <= columns)
        return *(global const loose *)(row + column);
    parts some;
    UNROLL
    for (int j = 0; j < WIDE; ++j)
        some.values[j] = column + j < columns ? row[column + j] : 0.0f;
    return some.vector;
}

void put(wide vector, global float *row, int column, int columns) {
    if (column + WIDE <= columns) {
        *(global loose *)(row + column) = vector;
        return;
    }
    parts some;
    some.vector = vector;
    UNROLL
    for (int j = 0; j < WIDE; ++j)
        if (column + j < columns)
            row[column + j] = some.values[j];
}

float sum_of(wide values) {
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

/* y = x w + bias, and nothing below zero where `bends`. `skipped` rows of x come first: a data set
 * may lie on the device as a whole, and a batch is a place in it. */
kernel void dense_forward(int rows, int in, int out, int bends, int skipped,
                          global const float *restrict x, global const float *restrict w,
                          global const float *restrict bias, global float *restrict y) {
    int column = WIDE * (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (row >= rows || column >= out)
        return;
    global const float *restrict from = x + (size_t)skipped * in;
    wide sum[MR], lowest = bends ? 0.0f : -INFINITY;
    UNROLL
    for (int r = 0; r < MR; ++r)
        sum[r] = take(bias, column, out);
    for (int i = 0; i < in; ++i) {
        wide line = take(w + (size_t)i * out, column, out);
        UNROLL
        for (int r = 0; r < MR; ++r)
            sum[r] = from[(size_t)min(row + r, rows - 1) * in + i] * line + sum[r];
    }
    UNROLL
    for (int r = 0; r < MR; ++r)
        if (row + r < rows)
            put(fmax(sum[r], lowest), y + (size_t)(row + r) * out, column, out);
}

/* What a row lost, and its gradient: the shares of softmax, less one where the label is. */
kernel void dense_loss(int rows, int classes, int skipped, global const float *restrict z,
                       global const int *restrict labels, global float *restrict dz,
                       global float *restrict row_loss) {
    int row = (int)get_global_id(0);
    if (row >= rows)
        return;
    global const float *restrict from = z + (size_t)row * classes;
    global float *restrict to = dz + (size_t)row * classes;
    int label = labels[skipped + row];
    float greatest = from[0], sum = 0.0f;
    for (int c = 1; c < classes; ++c)
        greatest = fmax(greatest, from[c]);
    for (int c = 0; c < classes; ++c) {
        to[c] = exp(from[c] - greatest);
        sum += to[c];
    }
    float part = 1.0f / (sum * (float)rows);
    for (int c = 0; c < classes; ++c)
        to[c] *= part;
    to[label] -= 1.0f / (float)rows;
    row_loss[row] = log(sum) + greatest - from[label];
}

/* dx = dz wT where the input was above zero: a row of dz times a row of w for every value. */
kernel void dense_input_gradient(int rows, int in, int out, global const float *restrict seen,
                                 global const float *restrict dz, global const float *restrict w,
                                 global float *restrict dx) {
    int i = (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (row >= rows || i >= in)
        return;
    wide sum[MR];
    UNROLL
    for (int r = 0; r < MR; ++r)
        sum[r] = 0.0f;
    global const float *restrict mine = w + (size_t)i * out;
    int column = 0;
    for (; column + WIDE <= out; column += WIDE) {
        wide line = *(global const loose *)(mine + column);
        UNROLL
        for (int r = 0; r < MR; ++r) {
            size_t at = (size_t)min(row + r, rows - 1) * out + column;
            sum[r] = *(global const loose *)(dz + at) * line + sum[r];
        }
    }
    if (column < out) {
        wide line = take(mine, column, out);
        for (int r = 0; r < MR; ++r)
            sum[r] = take(dz + (size_t)min(row + r, rows - 1) * out, column, out) * line + sum[r];
    }
    UNROLL
    for (int r = 0; r < MR; ++r) {
        if (row + r >= rows)
            continue;
        size_t at = (size_t)(row + r) * in + i;
        dx[at] = seen[at] > 0.0f ? sum_of(sum[r]) : 0.0f;
    }
}

/* w -= rate xT dz, and the bias likewise: gradients live in registers and nowhere else. The items
 * of the first inputs see to the bias. */
kernel void dense_update(int rows, int in, int out, float rate, int skipped,
                         global const float *restrict x, global const float *restrict dz,
                         global float *restrict w, global float *restrict bias) {
    int column = WIDE * (int)get_global_id(0), first = MR * (int)get_global_id(1);
    if (first >= in || column >= out)
        return;
    global const float *restrict from = x + (size_t)skipped * in;
    wide sum[MR], plain = 0.0f;
    UNROLL
    for (int i = 0; i < MR; ++i)
        sum[i] = 0.0f;
    for (int row = 0; row < rows; ++row) {
        wide line = take(dz + (size_t)row * out, column, out);
        plain += line;
        UNROLL
        for (int i = 0; i < MR; ++i)
            sum[i] = from[(size_t)row * in + min(first + i, in - 1)] * line + sum[i];
    }
    UNROLL
    for (int i = 0; i < MR; ++i) {
        global float *to = w + (size_t)(first + i) * out;
        if (first + i < in)
            put(take(to, column, out) - rate * sum[i], to, column, out);
    }
    if (first == 0)
        put(take(bias, column, out) - rate * plain, bias, column, out);
}
