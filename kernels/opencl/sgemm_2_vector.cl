/* sgemm_2_vector.cl - four adjacent values of a row per work item: a value of A is loaded once for
 * four products. B is still loaded again for every row. */
kernel void sgemm_vector(int m, int n, int k, global const float *restrict a, int lda,
                         global const float *restrict b, int ldb, global float *restrict c,
                         int ldc PLACES) {
    MOVE_TO_PRODUCTS;
    int column = 4 * (int)get_global_id(0), row = (int)get_global_id(1);
    if (row >= m || column >= n) {
        return;
    }
    float4 sum = 0.0f;
    if (column + 4 <= n) {
        for (int i = 0; i < k; ++i) {
            float4 four = (float4)(B_AT(i, column), B_AT(i, column + 1), B_AT(i, column + 2),
                                   B_AT(i, column + 3));
            sum = A_AT(row, i) * four + sum;
        }
        c[(size_t)row * ldc + column] = sum.s0;
        c[(size_t)row * ldc + column + 1] = sum.s1;
        c[(size_t)row * ldc + column + 2] = sum.s2;
        c[(size_t)row * ldc + column + 3] = sum.s3;
        return;
    }
    for (; column < n; ++column) { /* the ragged end of a row */
        float last = 0.0f;
        for (int i = 0; i < k; ++i) {
            last = A_AT(row, i) * B_AT(i, column) + last;
        }
        c[(size_t)row * ldc + column] = last;
    }
}
