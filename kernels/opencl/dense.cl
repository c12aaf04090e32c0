/* dense.cl - a perceptron's layer in as few launches as it can have: one forward and one back; and
 * one for the loss behind the last layer.
 *
 * On a small network the launches are the time, so each does all that its data allow: forward adds
 * the bias and bends; back makes the gradient of the input, passes the bend, and changes the
 * weights without ever writing their gradient down. Rows are samples. Weights lie (IN, OUT), so
 * that forward and update read whole vectors of outputs and the way back multiplies row by row. An
 * item makes MR rows (inputs, for the update) of ACROSS vectors at a time, all in registers, and
 * STRIPS such tiles one below the other, so that what they share stays in the nearest cache.
 */
#define MR 4 /* sums_of makes so many */
#ifndef WIDE
#define WIDE 8
#endif
#ifndef ACROSS
#define ACROSS 2
#endif
#ifndef STRIPS
#define STRIPS 8
#endif
#define COLUMNS (ACROSS * WIDE)
#define UNROLL _Pragma("unroll")
#define JOIN(left, right) left##right
#define JOINED(left, right) JOIN(left, right)
typedef JOINED(float, WIDE) wide;
/* The same where a row may begin anywhere: it promises no more than the alignment of a float. */
typedef wide loose __attribute__((aligned(4)));
typedef float4 loose4 __attribute__((aligned(4)));
typedef union {
    wide vector;
    float values[WIDE];
} parts;

/* WIDE values of a row, and something else behind its end. */
wide take(global const float *row, int column, int columns, float beyond) {
    if (column + WIDE <= columns)
        return *(global const loose *)(row + column);
    parts some;
    UNROLL
    for (int j = 0; j < WIDE; ++j)
        some.values[j] = column + j < columns ? row[column + j] : beyond;
    return some.vector;
}

/* The same for who knows already that a row does not end here. */
wide next(global const float *row, int column, int columns, bool whole) {
    return whole ? *(global const loose *)(row + column) : take(row, column, columns, 0.0f);
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

/* Four sums at once: pairs are added until one is left of each. */
float4 sums_of(wide a, wide b, wide c, wide d) {
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

float greatest_of(wide values) {
    parts all;
    all.vector = values;
    float greatest = all.values[0];
    UNROLL
    for (int j = 1; j < WIDE; ++j)
        greatest = all.values[j] > greatest ? all.values[j] : greatest;
    return greatest;
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
                sum[r][v] = take(bias, column + v * WIDE, out, 0.0f);
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

/* What a row lost, and its gradient: the shares of softmax, less one where the label is. All goes in
 * whole vectors; behind the end of a row they hold what counts for nothing. */
kernel void dense_loss(int rows, int classes, int skipped, global const float *restrict z,
                       global const int *restrict labels, global float *restrict dz,
                       global float *restrict row_loss) {
    int row = (int)get_global_id(0);
    if (row >= rows)
        return;
    global const float *restrict from = z + (size_t)row * classes;
    global float *restrict to = dz + (size_t)row * classes;
    int label = labels[skipped + row];
    wide most = from[0];
    for (int c = 0; c < classes; c += WIDE) {
        wide some = take(from, c, classes, from[0]);
        most = some > most ? some : most;
    }
    float greatest = greatest_of(most);
    wide sums = 0.0f;
    for (int c = 0; c < classes; c += WIDE) {
        wide raised = exp(take(from, c, classes, -INFINITY) - greatest);
        put(raised, to, c, classes);
        sums += raised;
    }
    float sum = sum_of(sums), part = 1.0f / (sum * (float)rows);
    for (int c = 0; c < classes; c += WIDE)
        put(part * take(to, c, classes, 0.0f), to, c, classes);
    to[label] -= 1.0f / (float)rows;
    row_loss[row] = log(sum) + greatest - from[label];
}

/* w -= rate xT dz for MR inputs and COLUMNS outputs, of which those count that there are: the
 * gradient lives in registers and nowhere else. */
void learn(int rows, int in, int out, float rate, int first, int column,
           global const float *restrict x, global const float *restrict dz,
           global float *restrict w) {
    bool whole = column + COLUMNS <= out;
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
            float one = x[(size_t)row * in + min(first + i, in - 1)];
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
                put(take(to, at, out, 0.0f) - rate * sum[i][v], to, at, out);
        }
}

/* The same for the bias, from one column up to another. */
void learn_bias(int rows, int out, float rate, int from, int to, global const float *restrict dz,
                global float *restrict bias) {
    for (int at = from; at < min(to, out); at += WIDE) {
        wide sum = 0.0f;
        for (int row = 0; row < rows; ++row)
            sum += take(dz + (size_t)row * out, at, out, 0.0f);
        put(take(bias, at, out, 0.0f) - rate * sum, bias, at, out);
    }
}

/* A layer's weights and bias; for the first layer that is the whole way back, for nobody wants the
 * gradient of the data. Items of the first inputs see to the bias. */
kernel void dense_update(int rows, int in, int out, float rate, int skipped,
                         global const float *restrict x, global const float *restrict dz,
                         global float *restrict w, global float *restrict bias) {
    int column = COLUMNS * (int)get_global_id(0), start = STRIPS * MR * (int)get_global_id(1);
    if (column >= out)
        return;
    for (int first = start; first < min(start + STRIPS * MR, in); first += MR)
        learn(rows, in, out, rate, first, column, x + (size_t)skipped * in, dz, w);
    if (start == 0)
        learn_bias(rows, out, rate, column, column + COLUMNS, dz, bias);
}

/* BACK rows of dz times MR rows of w, WIDE products of each. */
#ifndef BACK
#define BACK 3
#endif
void multiply(int row, int rows, int first, int in, int column, int out, bool whole,
              global const float *restrict dz, global const float *restrict w,
              wide sum[BACK][MR]) {
    wide back[BACK];
    UNROLL
    for (int r = 0; r < BACK; ++r)
        back[r] = next(dz + (size_t)min(row + r, rows - 1) * out, column, out, whole);
    UNROLL
    for (int i = 0; i < MR; ++i) {
        wide line = next(w + (size_t)min(first + i, in - 1) * out, column, out, whole);
        UNROLL
        for (int r = 0; r < BACK; ++r)
            sum[r][i] = back[r] * line + sum[r][i];
    }
}

/* dx = dz wT where the input was above zero: BACK rows of MR inputs. */
void pass_back(int row, int rows, int first, int in, int out, global const float *restrict x,
               global const float *restrict dz, global const float *restrict w,
               global float *restrict dx) {
    wide sum[BACK][MR];
    UNROLL
    for (int r = 0; r < BACK; ++r)
        UNROLL
        for (int i = 0; i < MR; ++i)
            sum[r][i] = 0.0f;
    int column = 0;
    for (; column + WIDE <= out; column += WIDE)
        multiply(row, rows, first, in, column, out, true, dz, w, sum);
    if (column < out)
        multiply(row, rows, first, in, column, out, false, dz, w, sum);
    UNROLL
    for (int r = 0; r < BACK && row + r < rows; ++r) {
        size_t at = (size_t)(row + r) * in + first;
        float4 four = sums_of(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        if (first + MR <= in) {
            float4 seen = *(global const loose4 *)(x + at);
            *(global loose4 *)(dx + at) = seen > 0.0f ? four : 0.0f;
            continue;
        }
        float values[MR] = {four.s0, four.s1, four.s2, four.s3};
        for (int i = 0; i < in - first; ++i)
            dx[at + i] = x[at + i] > 0.0f ? values[i] : 0.0f;
    }
}

/* The gradient of a layer's input, as an operation of its own: dense_update comes after it. */
kernel void dense_input_gradient(int rows, int in, int out, global const float *restrict x,
                                 global const float *restrict dz, global const float *restrict w,
                                 global float *restrict dx) {
    int first = MR * (int)get_global_id(0), row = BACK * (int)get_global_id(1);
    if (row < rows && first < in)
        pass_back(row, rows, first, in, out, x, dz, w, dx);
}

/* Both in one launch. An item has MR inputs to itself: it makes their gradient for all rows, and
 * then, since nobody else reads these rows of w, it changes them. */
kernel void dense_back(int rows, int in, int out, float rate, global const float *restrict x,
                       global const float *restrict dz, global float *restrict w,
                       global float *restrict bias, global float *restrict dx) {
    int first = MR * (int)get_global_id(0);
    if (first >= in)
        return;
    for (int row = 0; row < rows; row += BACK)
        pass_back(row, rows, first, in, out, x, dz, w, dx);
    for (int column = 0; column < out; column += COLUMNS)
        learn(rows, in, out, rate, first, column, x, dz, w);
    if (first == 0)
        learn_bias(rows, out, rate, 0, out, dz, bias);
}
