/* tile.c - the inner loop; see tile.h.
 *
 * Each number of rows is a function of its own, so that the compiler sees nothing else beside it
 * and keeps the whole tile in registers. */
#include "tile.h"

struct sums {
    v8 left[TILE_ROWS], right[TILE_ROWS];
};

/* One depth more. */
ALWAYS_INLINE void step(struct sums *sums, int rows, const float *a, v8 left, v8 right) {
#if defined(__aarch64__)
    /* Two loads for six values: the compiler then multiplies by a lane of a register. */
    typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
    typedef float v2 __attribute__((vector_size(8), aligned(4), may_alias));
    v4 four = *(const v4 *)a;
    v2 two = *(const v2 *)(a + 4);
    float value[TILE_ROWS] = {four[0], four[1], four[2], four[3], two[0], two[1]};
#else
    const float *value = a;
#endif
    UNROLL for (int row = 0; row < rows; row++) {
        v8 one = all8(value[row]);
        sums->left[row] += one * left;
        sums->right[row] += one * right;
    }
}

ALWAYS_INLINE void put(float *to, v8 sum, bool add) {
    store8(to, add ? (v8)(load8(to) + sum) : sum);
}

ALWAYS_INLINE void run(const struct tile *tile, int rows) {
    struct sums sums;
    UNROLL for (int row = 0; row < rows; row++)
        sums.left[row] = sums.right[row] = all8(tile->start ? tile->start[row] : 0.0f);
    const float *a = tile->a, *left = tile->left, *right = tile->right;
    if (tile->offsets) {
        const int32_t *offset = tile->offsets, *end = offset + tile->depth;
        for (; offset < end; offset++, a += TILE_ROWS)
            step(&sums, rows, a, load8(left + *offset), load8(right + *offset));
    } else {
        int64_t stride = tile->step;
        for (int64_t k = tile->depth; k > 0; k--, a += TILE_ROWS, left += stride, right += stride)
            step(&sums, rows, a, load8(left), load8(right));
    }
    float *to_left = tile->to_left, *to_right = tile->to_right;
    UNROLL for (int row = 0; row < rows; row++, to_left += tile->stride, to_right += tile->stride) {
        put(to_left, sums.left[row], tile->add);
        put(to_right, sums.right[row], tile->add);
    }
}

#define NOINLINE static __attribute__((noinline)) void
NOINLINE run1(const struct tile *tile) { run(tile, 1); }
NOINLINE run2(const struct tile *tile) { run(tile, 2); }
NOINLINE run3(const struct tile *tile) { run(tile, 3); }
NOINLINE run4(const struct tile *tile) { run(tile, 4); }
NOINLINE run5(const struct tile *tile) { run(tile, 5); }
NOINLINE run6(const struct tile *tile) { run(tile, 6); }

void tile_run(const struct tile *tile, int64_t rows) {
    static void (*const runs[])(const struct tile *) = {run1, run2, run3, run4, run5, run6};
    runs[rows - 1](tile);
}
