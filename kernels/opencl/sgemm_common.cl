/* sgemm_common.cl - what all variants of the matrix product share; built in front of each of them.
 *
 * C = op(A) op(B) for any M, N, K >= 1, one variant per file, numbered from the simplest to the
 * fastest. They compute the same product and differ in which values are kept where. Read them in
 * order: each one fixes what made the one before it slow. Which is fastest depends on the device: a
 * phone's GPU may need images or local memory, a CPU needs one work item with many registers
 * (docs/explanation/matrix-products.md has measured speeds).
 *
 * Matrices are row-major; LDA, LDB and LDC are the lengths of their rows in floats. The host builds
 * with -D TA=1 where A is given transposed (K rows of M), and -D TB=1 likewise. Products are
 * written a * b + c, never fma() or mad(), and vectors are loaded through pointers, never by
 * vloadN(): PoCL 3.0 calls a function for those, at a tenth of the speed; no other driver is slower
 * for it.
 *
 * With -D BATCHED=1 one launch computes many products of the same size, such as those of all heads
 * of an attention: the third index of a work item is the number of its product, and `place_x` says
 * where the matrices of X begin. */
#ifndef TA
#define TA 0
#endif
#ifndef TB
#define TB 0
#endif
/* The register tile of one work item: MR rows, NR columns, in vectors of WIDE floats. */
#ifndef MR
#define MR 4
#endif
#ifndef NR
#define NR 16
#endif
#ifndef TILE
#define TILE 16 /* side of a tile in local memory */
#endif
#ifndef DEEP
#define DEEP 1 /* by how much the loop over the depth is unrolled */
#endif
#ifndef BATCHED
#define BATCHED 0
#endif

#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(count) PRAGMA(unroll count)

/* Matrix number i of a batch begins at FIRST + i / INNER * OUTER + i % INNER * STEP, in floats; a
 * place is (FIRST, OUTER, STEP, INNER). */
#if BATCHED
#define PLACE(x) , int4 place_##x
#define MOVE_TO_PRODUCT(x) x += product_place(place_##x)
#define MOVE_TO_PACKED(packed, count) packed += get_global_id(2) * (size_t)(count)
size_t product_place(int4 place) {
    int product = (int)get_global_id(2);
    return (size_t)place.s0 + (size_t)(product / place.s3) * (size_t)place.s1 +
           (size_t)(product % place.s3) * (size_t)place.s2;
}
#else
#define PLACE(x)
#define MOVE_TO_PRODUCT(x)
#define MOVE_TO_PACKED(packed, count)
#endif
#define PLACES PLACE(a) PLACE(b) PLACE(c)
#define MOVE_TO_PRODUCTS                                                                           \
    MOVE_TO_PRODUCT(a);                                                                            \
    MOVE_TO_PRODUCT(b);                                                                            \
    MOVE_TO_PRODUCT(c)

#define A_AT(row, k) a[TA ? (size_t)(k) * lda + (row) : (size_t)(row) * lda + (k)]
#define B_AT(k, column) b[TB ? (size_t)(column) * ldb + (k) : (size_t)(k) * ldb + (column)]

/* ---- register tiles, from variant 5 on: MR x NR values of C in registers of one item ---- */

/* A function that is not inlined would take its tile from memory. */
#define INLINE __attribute__((always_inline))

/* Stores those values of a vector that lie in columns [from, to) of a row of C. */
void store_columns(wide vector, global float *row, int column, int from, int to) {
    if (column >= from && column + WIDE <= to) {
        *(global wide_unaligned *)(row + column) = vector;
        return;
    }
    wide_lanes out;
    out.vector = vector;
    UNROLL
    for (int j = 0; j < WIDE; ++j) {
        if (column + j >= from && column + j < to) {
            row[column + j] = out.values[j];
        }
    }
}

INLINE void clear_tile(wide sum[MR][NR / WIDE]) {
    UNROLL
    for (int y = 0; y < MR; ++y) {
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x) {
            sum[y][x] = 0.0f;
        }
    }
}

/* Stores a tile whose upper left value is at (row, column) of C, columns [from, n) of it. */
INLINE void store_tile(wide sum[MR][NR / WIDE], global float *c, int ldc, int row, int m,
                       int column, int from, int n) {
    UNROLL
    for (int y = 0; y < MR; ++y) {
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x) {
            if (row + y < m) {
                store_columns(sum[y][x], c + (size_t)(row + y) * ldc, column + WIDE * x, from, n);
            }
        }
    }
}

/* Adds one depth to a tile: sum += (A value of each row) x (right, a row of B). A_VALUE may use
 * y. */
#define RANK1_UPDATE(sum, right, A_VALUE)                                                          \
    UNROLL                                                                                         \
    for (int y = 0; y < MR; ++y) {                                                                 \
        float left = A_VALUE;                                                                      \
        UNROLL                                                                                     \
        for (int x = 0; x < NR / WIDE; ++x) {                                                      \
            sum[y][x] = left * right[x] + sum[y][x];                                               \
        }                                                                                          \
    }
