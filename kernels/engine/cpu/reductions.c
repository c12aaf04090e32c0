/* reductions.c - sums with four independent accumulators, which hide the latency of an addition. */
#include "reductions.h"

#include <math.h>

v8 sum_lanes(const float *x, int64_t count) {
    v8 a = splat8(0.0f), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        a += load8(x + i);
        b += load8(x + i + LANES);
        c += load8(x + i + 2 * LANES);
        d += load8(x + i + 3 * LANES);
    }
    for (; i + LANES <= count; i += LANES) {
        a += load8(x + i);
    }
    if (count >= LANES) {
        b += mask8(tail_mask8(count), load8(x + count - LANES));
    } else {
        b += load8_part(x, count, 0.0f);
    }
    return (a + b) + (c + d);
}

v8 squared_distance_lanes(const float *x, int64_t count, float mean) {
    v8 a = splat8(0.0f), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        a += square8(load8(x + i) - mean);
        b += square8(load8(x + i + LANES) - mean);
        c += square8(load8(x + i + 2 * LANES) - mean);
        d += square8(load8(x + i + 3 * LANES) - mean);
    }
    for (; i + LANES <= count; i += LANES) {
        a += square8(load8(x + i) - mean);
    }
    if (count >= LANES) {
        b += mask8(tail_mask8(count), square8(load8(x + count - LANES) - mean));
    } else {
        b += square8(load8_part(x, count, mean) - mean);
    }
    return (a + b) + (c + d);
}

float max_value(const float *x, int64_t count) {
    v8 max = splat8(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        max = max8(load8(x + i), max);
    }
    if (i < count) {
        max = max8(load8_part(x + i, count - i, -INFINITY), max);
    }
    return max_lane8(max);
}

float softmax_row(const float *x, float *y, int64_t length, float max) {
    v8 sums = splat8(0.0f);
    int64_t i = 0;
    for (; i + LANES <= length; i += LANES) {
        v8 e = exp8(load8(x + i) - max);
        sums += e;
        store8(y + i, e);
    }
    if (i < length) {
        v8 e = exp8(load8_part(x + i, length - i, -INFINITY) - max);
        sums += e;
        store8_part(y + i, e, length - i);
    }
    float sum = hsum8(sums), scale = 1.0f / sum;
    for (i = 0; i + LANES <= length; i += LANES) {
        store8(y + i, load8(y + i) * scale);
    }
    for (; i < length; i++) {
        y[i] *= scale;
    }
    return sum;
}
