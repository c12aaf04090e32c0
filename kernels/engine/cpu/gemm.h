/* gemm.h - the packed matrix product that all heavy operations are made of.
 *
 * Words: the depth is the dimension that is summed over (k). A row panel is up to MR rows of A,
 * packed MR values per depth; a column panel is NR columns of B, packed NR values per depth. */
#ifndef FARMHAND_GEMM_H
#define FARMHAND_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../engine.h"
#include "../int_math.h"
#include "microkernel.h"

/* A matrix in memory: value (r, c) is at data[r * row + c * column]. */
struct matrix {
    float *data;
    int64_t row, column; /* strides */
};

/* A tensor as a matrix: all leading axes are rows, the last axis is the columns. */
static inline struct matrix as_matrix(const struct tensor *x) {
    return (struct matrix){floats(x), x->dim[x->rank - 1], 1};
}

/* Exchanging the strides transposes a matrix; no value moves. */
static inline struct matrix transposed(struct matrix x) {
    return (struct matrix){x.data, x.column, x.row};
}

/* Whether the m * n * k multiply-adds of a product fit an int64_t with room to spare. */
static inline bool macs_fit(int64_t m, int64_t n, int64_t k) {
    int64_t area, volume;
    return !__builtin_mul_overflow(m, n, &area) && !__builtin_mul_overflow(area, k, &volume) &&
           volume < INT64_MAX / 16;
}

/* c (m, n) = a (m, k) * b (k, n) + (accumulate ? c : 0), on all threads of the pool, with
 * gemm_workspace() bytes of workspace. */
size_t gemm_workspace(int64_t m, int64_t n, int64_t k, int threads);
void gemm(struct thread_pool *pool, int64_t m, int64_t n, int64_t k, struct matrix a,
          struct matrix b, struct matrix c, bool accumulate, void *workspace);

/* The same on the calling thread only, for batched products that are split by batch. */
size_t gemm_serial_workspace(int64_t m, int64_t n, int64_t k);
void gemm_serial(int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, struct matrix c,
                 bool accumulate, void *workspace);

/* How rows are divided into row panels: evenly, so that no panel is much thinner than the others.
 * Packed panel p begins at p * depth * MR. */
struct row_panels {
    int64_t count, rows, larger; /* the first `larger` panels have one row more than `rows` */
};

static inline struct row_panels row_panels_of(int64_t rows) {
    int64_t count = div_up(rows, MR);
    return (struct row_panels){count, count ? rows / count : 0, count ? rows % count : 0};
}

static inline int64_t panel_first_row(const struct row_panels *panels, int64_t p) {
    return p * panels->rows + min_i64(p, panels->larger);
}

static inline int64_t panel_rows(const struct row_panels *panels, int64_t p) {
    return panels->rows + (p < panels->larger);
}

/* Packs the row panels [first, last) of a (rows, depth); packed panels are `pitch` depths apart. */
void pack_a(int64_t rows, int64_t depth, struct matrix a, int64_t first, int64_t last,
            float *packed, int64_t pitch);

/* Packs one column panel from NR columns, each of which is contiguous along the depth. */
void pack_b_columns(int64_t depth, const float *const column[NR], float *packed);

/* c (rows, columns) = or += a row panel times a column panel; rows <= MR, columns <= NR. */
void multiply_panels(int64_t rows, int64_t columns, int64_t depth, const float *row_panel,
                     const float *column_panel, struct matrix c, bool accumulate);

#endif
