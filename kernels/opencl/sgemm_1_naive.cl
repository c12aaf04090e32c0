/* sgemm_1_naive.cl - one value of C per work item. Every value of A and B is loaded again and
 * again. */
kernel void sgemm_naive(int m, int n, int k, global const float *restrict a, int lda,
                        global const float *restrict b, int ldb, global float *restrict c,
                        int ldc PLACES) {
    MOVE_TO_PRODUCTS;
    int column = (int)get_global_id(0), row = (int)get_global_id(1);
    if (row >= m || column >= n) {
        return;
    }
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum = A_AT(row, i) * B_AT(i, column) + sum;
    }
    c[(size_t)row * ldc + column] = sum;
}
