/* tile.h - the inner loops of every product, held in registers.
 *
 * A tile is up to 6 rows by 16 columns: twelve registers of AVX2, or twenty-four of NEON; what is
 * left holds a row of b and one value of a. The rows of a come packed, six values of one depth side
 * by side, so that both machines read them in one stream; a row of b is sixteen floats anywhere.
 *
 * Dots are 4 by 3 sums along memory, for products whose both sides lie in the direction of the
 * depth: nothing has to be packed for them. */
#ifndef FARMHAND_TILE_H
#define FARMHAND_TILE_H

#include "vector.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { TILE_ROWS = 6, TILE_COLUMNS = 16 };

struct tile {
    v8 left[TILE_ROWS], right[TILE_ROWS];
};

ALWAYS_INLINE void tile_clear(struct tile *tile, int rows) {
    for (int row = 0; row < rows; row++)
        tile->left[row] = tile->right[row] = all8(0.0f);
}

/* One depth more: tile += a(6) b(16). */
ALWAYS_INLINE void tile_step(struct tile *tile, int rows, const float *a, v8 left, v8 right) {
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
    for (int row = 0; row < rows; row++) {
        v8 one = all8(value[row]);
        tile->left[row] += one * left;
        tile->right[row] += one * right;
    }
}

/* Rows `stride` apart take the tile, or have it added. */
ALWAYS_INLINE void tile_store(const struct tile *tile, int rows, float *c, int64_t stride,
                              int add) {
    for (int row = 0; row < rows; row++) {
        float *to = c + row * stride;
        v8 left = tile->left[row], right = tile->right[row];
        if (add) {
            left += load8(to);
            right += load8(to + 8);
        }
        store8(to, left);
        store8(to + 8, right);
    }
}

enum { DOT_ROWS = 4, DOT_COLUMNS = 3 };

struct dots {
    v8 at[DOT_ROWS][DOT_COLUMNS];
};

ALWAYS_INLINE void dots_clear(struct dots *dots) {
    for (int row = 0; row < DOT_ROWS; row++)
        for (int column = 0; column < DOT_COLUMNS; column++)
            dots->at[row][column] = all8(0.0f);
}

/* Eight depths more. */
ALWAYS_INLINE void dots_step(struct dots *dots, const float *const a[DOT_ROWS],
                             const float *const b[DOT_COLUMNS], int64_t at) {
    v8 column[DOT_COLUMNS];
    for (int c = 0; c < DOT_COLUMNS; c++)
        column[c] = load8(b[c] + at);
    for (int row = 0; row < DOT_ROWS; row++) {
        v8 one = load8(a[row] + at);
        for (int c = 0; c < DOT_COLUMNS; c++)
            dots->at[row][c] += one * column[c];
    }
}

#endif
