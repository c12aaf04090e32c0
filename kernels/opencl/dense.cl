/* dense.cl - a perceptron's layer in as few launches as it can have: one forward, one for the way
 * back to its input, one that changes its weights; and one for the loss behind the last layer.
 *
 * On a small network the launches are the time, so each does all that its data allow: forward adds
 * the bias and bends, the way back passes the bend, the update never writes a gradient down. Rows
 * are samples. Weights lie (IN, OUT), so that forward and update read whole vectors of outputs and
 * the way back multiplies row by row. An item makes MR rows (inputs, for the update) of ACROSS
 * vectors at a time, all in registers, and STRIPS such tiles one below the other, so that what they
 * share stays in the nearest cache.
 */
#ifndef MR
#define MR 4
#endif
#ifndef WIDE
#define WIDE 8
#endif
#ifndef ACROSS
#define ACROSS 2
#endif
#ifndef STRIPS
#define STRIPS 4
#endif
#define COLUMNS (ACROSS * WIDE)
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

/* The same for who knows already that a row does not end here. */
wide next(global const float *row, int column, int columns, bool whole) {
    return whole ? *(global const loose *)(row + column) : take(row, column, columns);
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
    int column = COLUMNS * (int)get_global_id(0), start = STRIPS * MR * (int)get_global_id(1);
    if (column >= out)
        return;
    bool whole = column + COLUMNS <= out;
    float lowest = bends ? 0.0f : -INFINITY;
    for (int row = start; row < min(start + STRIPS * MR, rows); row += MR) {
        global const float *restrict from = x + (size_t)(skipped + row) * in;
        wide sum[MR][ACROSS];
        UNROLL
        for (int r = 0; r < MR; ++r)
            UNROLL
            for (int v = 0; v < ACROSS; ++v)
                sum[r][v] = take(bias, column + v * WIDE, out);
        for (int i = 0; i < in; ++i) {
            wide line[ACROSS];
            UNROLL
            for (int v = 0; v < ACROSS; ++v)
                line[v] = next(w + (size_t)i * out, column + v * WIDE, out, whole);
            UNROLL
            for (int r = 0; r < MR; ++r) {
                float one = from[(size_t)min(r, rows - 1 - row) * in + i];
                UNROLL
                for (int v = 0; v < ACROSS; ++v)
                    sum[r][v] = one * line[v] + sum[r][v];
            }
        }
        UNROLL
        for (int r = 0; r < MR; ++r)
            UNROLL
            for (int v = 0; v < ACROSS; ++v)
                if (row + r < rows)
                    put(fmax(sum[r][v], (wide)lowest), y + (size_t)(row + r) * out,
                        column + v * WIDE, out);
    }
}

/* What a row lost, and its gradient: the shares of softmax, less one where the label is. Powers are
 * raised in whole vectors, and one by one behind the last of them. */
kernel void dense_loss(int rows, int classes, int skipped, global const float *restrict z,
                       global const int *restrict labels, global float *restrict dz,
                       global float *restrict row_loss) {
    int row = (int)get_global_id(0);
    if (row >= rows)
        return;
    global const float *restrict from = z + (size_t)row * classes;
    global float *restrict to = dz + (size_t)row * classes;
    int label = labels[skipped + row], whole = classes / WIDE * WIDE;
    float greatest = from[0], sum = 0.0f;
    for (int c = 1; c < classes; ++c)
        greatest = from[c] > greatest ? from[c] : greatest;
    wide sums = 0.0f;
    for (int c = 0; c < whole; c += WIDE) {
        wide raised = exp(*(global const loose *)(from + c) - greatest);
        *(global loose *)(to + c) = raised;
        sums += raised;
    }
    for (int c = whole; c < classes; ++c) {
        to[c] = exp(from[c] - greatest);
        sum += to[c];
    }
    sum += sum_of(sums);
    float part = 1.0f / (sum * (float)rows);
    for (int c = 0; c < classes; ++c)
        to[c] *= part;
    to[label] -= 1.0f / (float)rows;
    row_loss[row] = log(sum) + greatest - from[label];
}

/* dx = dz wT where the input was above zero: a row of dz times a row of w for every value. An item
 * makes BACK rows of INS values. */
#ifndef BACK
#define BACK 3
#endif
#ifndef INS
#define INS 4
#endif
kernel void dense_input_gradient(int rows, int in, int out, global const float *restrict seen,
                                 global const float *restrict dz, global const float *restrict w,
                                 global float *restrict dx) {
    int first = INS * (int)get_global_id(0), row = BACK * (int)get_global_id(1);
    if (row >= rows || first >= in)
        return;
    wide sum[BACK][INS];
    UNROLL
    for (int r = 0; r < BACK; ++r)
        UNROLL
        for (int i = 0; i < INS; ++i)
            sum[r][i] = 0.0f;
    for (int column = 0; column < out; column += WIDE) {
        bool whole = column + WIDE <= out;
        wide back[BACK];
        UNROLL
        for (int r = 0; r < BACK; ++r)
            back[r] = next(dz + (size_t)min(row + r, rows - 1) * out, column, out, whole);
        UNROLL
        for (int i = 0; i < INS; ++i) {
            wide line = next(w + (size_t)min(first + i, in - 1) * out, column, out, whole);
            UNROLL
            for (int r = 0; r < BACK; ++r)
                sum[r][i] = back[r] * line + sum[r][i];
        }
    }
    UNROLL
    for (int r = 0; r < BACK; ++r)
        UNROLL
        for (int i = 0; i < INS; ++i) {
            size_t at = (size_t)(row + r) * in + first + i;
            if (row + r < rows && first + i < in)
                dx[at] = seen[at] > 0.0f ? sum_of(sum[r][i]) : 0.0f;
        }
}

/* w -= rate xT dz, and the bias likewise: gradients live in registers and nowhere else. The items
 * of the first inputs see to the bias. */
kernel void dense_update(int rows, int in, int out, float rate, int skipped,
                         global const float *restrict x, global const float *restrict dz,
                         global float *restrict w, global float *restrict bias) {
    int column = COLUMNS * (int)get_global_id(0), start = STRIPS * MR * (int)get_global_id(1);
    if (column >= out)
        return;
    bool whole = column + COLUMNS <= out;
    for (int first = start; first < min(start + STRIPS * MR, in); first += MR) {
        global const float *restrict from = x + (size_t)skipped * in + first;
        wide sum[MR][ACROSS];
        UNROLL
        for (int i = 0; i < MR; ++i)
            UNROLL
            for (int v = 0; v < ACROSS; ++v)
                sum[i][v] = 0.0f;
        for (int row = 0; row < rows; ++row) {
            wide line[ACROSS];
            UNROLL
            for (int v = 0; v < ACROSS; ++v)
                line[v] = next(dz + (size_t)row * out, column + v * WIDE, out, whole);
            UNROLL
            for (int i = 0; i < MR; ++i) {
                float one = from[(size_t)row * in + min(i, in - 1 - first)];
                UNROLL
                for (int v = 0; v < ACROSS; ++v)
                    sum[i][v] = one * line[v] + sum[i][v];
            }
        }
        UNROLL
        for (int i = 0; i < MR; ++i)
            UNROLL
            for (int v = 0; v < ACROSS; ++v) {
                int at = column + v * WIDE;
                global float *to = w + (size_t)(first + i) * out;
                if (first + i < in)
                    put(take(to, at, out) - rate * sum[i][v], to, at, out);
            }
    }
    if (start > 0)
        return;
    for (int at = column; at < min(column + COLUMNS, out); at += WIDE) {
        wide sum = 0.0f;
        for (int row = 0; row < rows; ++row)
            sum += take(dz + (size_t)row * out, at, out);
        put(take(bias, at, out) - rate * sum, bias, at, out);
    }
}
