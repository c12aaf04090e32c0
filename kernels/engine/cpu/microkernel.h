/* microkernel.h - the inner loops of every matrix product, with the accumulators in registers.
 *
 * The microkernel computes a tile of up to MR rows by NR columns: twelve registers of AVX2, or
 * twenty-four of NEON; the remaining registers hold a row of B and one value of A. A is packed in
 * row panels, MR values per depth side by side, so that both architectures read it as one stream; a
 * row of B is NR floats anywhere in memory.
 *
 * A dot tile is DOT_ROWS by DOT_COLUMNS dot products along memory, for products in which both A and
 * B are contiguous along the depth: they need no packing. */
#ifndef FARMHAND_MICROKERNEL_H
#define FARMHAND_MICROKERNEL_H

#include <stdbool.h>

#if defined(__aarch64__)
#include "arm64_ordered.h"
#endif
#include "vector.h"

/* For a loop over an array of registers: unless it is unrolled, the array lives in memory. */
#define UNROLL _Pragma("GCC unroll 16")

enum { MR = 6, NR = 16 };

/* One tile: c (rows, NR) = a (rows, depth) * b (depth, NR). B is a packed column panel, or its rows
 * are anywhere in memory. C, and such rows of B, are given in two halves of eight columns, which
 * need not be adjacent. */
struct tile {
    int64_t depth;
    const float *a;           /* a packed row panel: MR values per depth */
    const float *b_left;      /* row 0 of B */
    const float *b_right;     /* the right half of row 0, if there are offsets */
    const int32_t *b_offsets; /* row k is b_offsets[k] floats further; NULL: a column panel */
    const float *bias;        /* one initial value per row; NULL: 0 */
    float *c_left, *c_right;
    int64_t c_stride; /* between rows of C */
    bool accumulate;  /* c += instead of c = */
};

/* rows: 1 to MR. */
void microkernel(const struct tile *tile, int64_t rows);

enum { DOT_ROWS = 4, DOT_COLUMNS = 3 };

struct dot_tile {
    v8 sum[DOT_ROWS][DOT_COLUMNS];
};

ALWAYS_INLINE void dot_tile_clear(struct dot_tile *tile) {
    UNROLL
    for (int row = 0; row < DOT_ROWS; row++) {
        UNROLL
        for (int column = 0; column < DOT_COLUMNS; column++) {
            tile->sum[row][column] = splat8(0.0f);
        }
    }
}

/* Adds eight more depths. */
#if defined(__aarch64__)
ALWAYS_INLINE void dot_tile_step(struct dot_tile *tile, const float *const a[DOT_ROWS],
                                 const float *const b[DOT_COLUMNS], int64_t at) {
    UNROLL
    for (int half = 0; half < 2; half++, at += 4) {
        v4 left[DOT_ROWS], right[DOT_COLUMNS];
        UNROLL
        for (int column = 0; column < DOT_COLUMNS; column++) {
            right[column] = load4_ordered(b[column], at * 4);
        }
        UNROLL
        for (int row = 0; row < DOT_ROWS; row++) {
            left[row] = load4_ordered(a[row], at * 4);
        }
        UNROLL
        for (int row = 0; row < DOT_ROWS; row++) {
            UNROLL
            for (int column = 0; column < DOT_COLUMNS; column++) {
                v8 *sum = &tile->sum[row][column];
                v4 low = low4(*sum), high = high4(*sum);
                add_product4_ordered(half ? &high : &low, left[row], right[column]);
                *sum = join4(low, high);
            }
        }
    }
}
#else
ALWAYS_INLINE void dot_tile_step(struct dot_tile *tile, const float *const a[DOT_ROWS],
                                 const float *const b[DOT_COLUMNS], int64_t at) {
    v8 right[DOT_COLUMNS];
    UNROLL
    for (int column = 0; column < DOT_COLUMNS; column++) {
        right[column] = load8(b[column] + at);
    }
    UNROLL
    for (int row = 0; row < DOT_ROWS; row++) {
        v8 left = load8(a[row] + at);
        UNROLL
        for (int column = 0; column < DOT_COLUMNS; column++) {
            tile->sum[row][column] += left * right[column];
        }
    }
}
#endif

#endif
