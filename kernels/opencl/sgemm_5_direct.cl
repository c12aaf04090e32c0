/* sgemm_5_direct.cl - a tile of C in the registers of one work item: each loaded value of B is used
 * MR times, each of A NR times. No local memory, no barrier, nothing to prepare: for small
 * products.
 *
 * At ragged edges it stays inside the matrices: a tile that would exceed the last column begins
 * earlier and stores only its own columns; rows beyond the last one repeat the last one and are not
 * stored. */
kernel void sgemm_direct(int m, int n, int k, global const float *restrict a, int lda,
                         global const float *restrict b, int ldb, global float *restrict c,
                         int ldc PLACES) {
    MOVE_TO_PRODUCTS;
    int column = NR * (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (row >= m || column >= n) {
        return;
    }
    if (TB || n < NR) { /* B cannot be read in vectors: value by value */
        int rows = min(MR, m - row), columns = min(NR, n - column);
        float edge[MR][NR];
        UNROLL
        for (int y = 0; y < MR; ++y) {
            UNROLL
            for (int x = 0; x < NR; ++x) {
                edge[y][x] = 0.0f;
            }
        }
        for (int i = 0; i < k; ++i) {
            float right[NR];
            UNROLL
            for (int x = 0; x < NR; ++x) {
                right[x] = B_AT(i, min(column + x, n - 1));
            }
            UNROLL
            for (int y = 0; y < MR; ++y) {
                float left = A_AT(min(row + y, m - 1), i);
                UNROLL
                for (int x = 0; x < NR; ++x) {
                    edge[y][x] = left * right[x] + edge[y][x];
                }
            }
        }
        for (int y = 0; y < rows; ++y) {
            for (int x = 0; x < columns; ++x) {
                c[(size_t)(row + y) * ldc + column + x] = edge[y][x];
            }
        }
        return;
    }
    int first = min(column, n - NR);
    global const float *restrict from = b + first;
    wide sum[MR][NR / WIDE];
    clear_tile(sum);
    UNROLL_BY(DEEP)
    for (int i = 0; i < k; ++i) {
        wide right[NR / WIDE];
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x) {
            right[x] = *(global const wide_unaligned *)(from + (size_t)i * ldb + WIDE * x);
        }
        RANK1_UPDATE(sum, right, A_AT(min(row + y, m - 1), i))
    }
    store_tile(sum, c, ldc, row, m, first, column, n);
}
