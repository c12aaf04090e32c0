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

#include <stdbool.h>

#include "vector.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* A loop over registers: unless it is unrolled, whatever the compiler's flags, they are memory. */
#define UNROLL _Pragma("GCC unroll 16")

enum { TILE_ROWS = 6, TILE_COLUMNS = 16 };

/* One tile of a product: c(rows, 16) = a(rows, depth) b(depth, 16), c in two halves of eight. */
struct tile {
    int64_t depth;
    const float *a;           /* packed, six values a depth */
    const float *left, *right; /* row 0 of b, in two halves */
    const int32_t *offsets;   /* row k of b is so many floats further; NULL: k * step */
    int64_t step;
    const float *start; /* one value a row to begin with; NULL: 0 */
    float *to_left, *to_right;
    int64_t stride; /* between rows of c */
    bool add;       /* to what c holds */
};

/* rows: 1 to 6. */
void tile_run(const struct tile *tile, int64_t rows);

enum { DOT_ROWS = 4, DOT_COLUMNS = 3 };

struct dots {
    v8 at[DOT_ROWS][DOT_COLUMNS];
};

ALWAYS_INLINE void dots_clear(struct dots *dots) {
    UNROLL for (int row = 0; row < DOT_ROWS; row++)
        UNROLL for (int column = 0; column < DOT_COLUMNS; column++)
            dots->at[row][column] = all8(0.0f);
}

/* Eight depths more. */
ALWAYS_INLINE void dots_step(struct dots *dots, const float *const a[DOT_ROWS],
                             const float *const b[DOT_COLUMNS], int64_t at) {
    v8 column[DOT_COLUMNS];
    UNROLL for (int c = 0; c < DOT_COLUMNS; c++)
        column[c] = load8(b[c] + at);
    UNROLL for (int row = 0; row < DOT_ROWS; row++) {
        v8 one = load8(a[row] + at);
        UNROLL for (int c = 0; c < DOT_COLUMNS; c++)
            dots->at[row][c] += one * column[c];
    }
}

#endif
