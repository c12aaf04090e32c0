/* sgemm_6_dots.cl - MR x NC values of C per work item, each the dot product of a row of A and a row
 * of B, WIDE products at a time: for a transposed B, where a column of op(B) is a row in memory. */
#ifndef NC
#define NC 4
#endif
kernel void sgemm_dots(int m, int n, int k, global const float *restrict a, int lda,
                       global const float *restrict b, int ldb, global float *restrict c,
                       int ldc PLACES) {
    MOVE_TO_PRODUCTS;
    int column = NC * (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (row >= m || column >= n) {
        return;
    }
    wide sum[MR][NC];
    UNROLL
    for (int y = 0; y < MR; ++y) {
        UNROLL
        for (int x = 0; x < NC; ++x) {
            sum[y][x] = 0.0f;
        }
    }
    int i = 0;
    if (!TA && TB) {
        UNROLL_BY(DEEP)
        for (; i + WIDE <= k; i += WIDE) {
            wide left[MR];
            UNROLL
            for (int y = 0; y < MR; ++y) {
                left[y] = *(global const wide_unaligned *)&A_AT(min(row + y, m - 1), i);
            }
            UNROLL
            for (int x = 0; x < NC; ++x) {
                wide right = *(global const wide_unaligned *)&B_AT(i, min(column + x, n - 1));
                UNROLL
                for (int y = 0; y < MR; ++y) {
                    sum[y][x] = left[y] * right + sum[y][x];
                }
            }
        }
    }
    UNROLL
    for (int y = 0; y < MR; ++y) {
        UNROLL
        for (int x = 0; x < NC; ++x) {
            if (row + y >= m || column + x >= n) {
                continue;
            }
            wide_lanes lanes;
            lanes.vector = sum[y][x];
            float total = 0.0f;
            UNROLL
            for (int j = 0; j < WIDE; ++j) {
                total += lanes.values[j];
            }
            for (int j = i; j < k; ++j) { /* the rest of the depth, or all of it */
                total = A_AT(row + y, j) * B_AT(j, column + x) + total;
            }
            c[(size_t)(row + y) * ldc + column + x] = total;
        }
    }
}
