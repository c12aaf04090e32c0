/* microkernel.c - the MR x NR microkernel; see microkernel.h.
 *
 * Each number of rows is a separate function, so that the compiler sees nothing else in it and
 * keeps the whole tile in registers. */
#include "microkernel.h"

struct accumulators {
    v8 left[MR], right[MR];
};

#if defined(__aarch64__)
#include "microkernel_arm64.h"
#else

/* Adds one depth: a rank-1 update of the tile. */
ALWAYS_INLINE void rank1_update(struct accumulators *sums, int rows, const float *a, v8 left,
                                v8 right) {
    UNROLL
    for (int row = 0; row < rows; row++) {
        v8 factor = splat8(a[row]);
        sums->left[row] += factor * left;
        sums->right[row] += factor * right;
    }
}

/* Adds all depths. */
ALWAYS_INLINE void add_products(struct accumulators *sums, const struct tile *tile, int rows) {
    const float *a = tile->a, *left = tile->b_left, *right = tile->b_right;
    if (tile->b_offsets) {
        const int32_t *offset = tile->b_offsets, *end = offset + tile->depth;
        for (; offset < end; offset++, a += MR) {
            rank1_update(sums, rows, a, load8(left + *offset), load8(right + *offset));
        }
    } else {
        for (int64_t k = tile->depth; k > 0; k--, a += MR, left += NR) {
            rank1_update(sums, rows, a, load8(left), load8(left + 8));
        }
    }
}
#endif

ALWAYS_INLINE void store_sum(float *to, v8 sum, bool accumulate) {
    store8(to, accumulate ? (v8)(load8(to) + sum) : sum);
}

ALWAYS_INLINE void compute_tile(const struct tile *tile, int rows) {
    struct accumulators sums;
    UNROLL
    for (int row = 0; row < rows; row++) {
        sums.left[row] = sums.right[row] = splat8(tile->bias ? tile->bias[row] : 0.0f);
    }
    add_products(&sums, tile, rows);
    float *c_left = tile->c_left, *c_right = tile->c_right;
    UNROLL
    for (int row = 0; row < rows; row++, c_left += tile->c_stride, c_right += tile->c_stride) {
        store_sum(c_left, sums.left[row], tile->accumulate);
        store_sum(c_right, sums.right[row], tile->accumulate);
    }
}

#define NOINLINE static __attribute__((noinline)) void
NOINLINE compute_1_row(const struct tile *tile) { compute_tile(tile, 1); }
NOINLINE compute_2_rows(const struct tile *tile) { compute_tile(tile, 2); }
NOINLINE compute_3_rows(const struct tile *tile) { compute_tile(tile, 3); }
NOINLINE compute_4_rows(const struct tile *tile) { compute_tile(tile, 4); }
NOINLINE compute_5_rows(const struct tile *tile) { compute_tile(tile, 5); }
NOINLINE compute_6_rows(const struct tile *tile) { compute_tile(tile, 6); }

void microkernel(const struct tile *tile, int64_t rows) {
    static void (*const by_rows[])(const struct tile *) = {
        compute_1_row,  compute_2_rows, compute_3_rows,
        compute_4_rows, compute_5_rows, compute_6_rows,
    };
    by_rows[rows - 1](tile);
}
