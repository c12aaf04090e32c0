/* int_math.h - integer helpers for sizes, offsets and block counts. */
#ifndef FARMHAND_INT_MATH_H
#define FARMHAND_INT_MATH_H

#include <stddef.h>
#include <stdint.h>

enum { CACHE_LINE_BYTES = 64, CACHE_LINE_FLOATS = CACHE_LINE_BYTES / sizeof(float) };

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* For count >= 0 and size > 0. */
static inline int64_t div_up(int64_t count, int64_t size) { return (count + size - 1) / size; }
static inline int64_t round_up(int64_t count, int64_t size) { return div_up(count, size) * size; }

/* Floats in whole cache lines, and the bytes of those lines. */
static inline int64_t cache_line_floats(int64_t floats) {
    return round_up(floats, CACHE_LINE_FLOATS);
}
static inline size_t cache_line_bytes(int64_t floats) {
    return (size_t)div_up(floats, CACHE_LINE_FLOATS) * CACHE_LINE_BYTES;
}

/* The size of blocks of about equal size, a multiple of `step`, for which `limit` is enough. */
static inline int64_t balanced_block(int64_t count, int64_t limit, int64_t step) {
    int64_t blocks = max_i64(1, div_up(count, limit));
    return round_up(div_up(count, blocks), step);
}

/* a * b for a, b >= 0, or INT64_MAX where the product does not fit. */
static inline int64_t mul_saturated(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

#endif
