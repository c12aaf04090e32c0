/* sums.c - sums over values that lie side by side, in as many lanes as hide their latency. */
#include "sums.h"

v8 sum_of(const float *x, int64_t count) {
    v8 a = all8(0.0f), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        a += load8(x + i);
        b += load8(x + i + LANES);
        c += load8(x + i + 2 * LANES);
        d += load8(x + i + 3 * LANES);
    }
    for (; i + LANES <= count; i += LANES)
        a += load8(x + i);
    if (count >= LANES)
        b += keep8(tail8(count), load8(x + count - LANES));
    else
        b += load8_part(x, count, 0.0f);
    return (a + b) + (c + d);
}

v8 squares_of(const float *x, int64_t count, float mean) {
    v8 a = all8(0.0f), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        a += square8(load8(x + i) - mean);
        b += square8(load8(x + i + LANES) - mean);
        c += square8(load8(x + i + 2 * LANES) - mean);
        d += square8(load8(x + i + 3 * LANES) - mean);
    }
    for (; i + LANES <= count; i += LANES)
        a += square8(load8(x + i) - mean);
    if (count >= LANES)
        b += keep8(tail8(count), square8(load8(x + count - LANES) - mean));
    else
        b += square8(load8_part(x, count, mean) - mean);
    return (a + b) + (c + d);
}
