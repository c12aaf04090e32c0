/* sgemm_8_half.cl - variant 7 with both panels stored as half: half the bytes to load, all sums
 * still in float. Storing loses three decimal digits; summing loses nothing more. */
kernel void pack_a_half(int m, int k, global const float *restrict a, int lda,
                        global half *restrict packed) {
    int i = (int)get_global_id(0), panel = (int)get_global_id(1);
    if (i >= k || panel * MR >= m) {
        return;
    }
    for (int y = 0; y < MR; ++y) {
        vstore_half(panel * MR + y < m ? A_AT(panel * MR + y, i) : 0.0f,
                    ((size_t)panel * k + i) * MR + y, packed);
    }
}

kernel void pack_b_half(int n, int k, global const float *restrict b, int ldb,
                        global half *restrict packed) {
    int i = (int)get_global_id(0), panel = (int)get_global_id(1);
    if (i >= k || panel * NR >= n) {
        return;
    }
    for (int x = 0; x < NR; ++x) {
        vstore_half(panel * NR + x < n ? B_AT(i, panel * NR + x) : 0.0f,
                    ((size_t)panel * k + i) * NR + x, packed);
    }
}

kernel void sgemm_half(int m, int n, int k, global const half *restrict packed_a,
                       global const half *restrict packed_b, global float *restrict c, int ldc) {
    int row_panel = (int)get_global_id(0), column_panel = (int)get_global_id(1);
    int row = row_panel * MR, column = column_panel * NR;
    if (row >= m || column >= n) {
        return;
    }
    size_t from_a = (size_t)row_panel * k * MR, from_b = (size_t)column_panel * k * NR / WIDE;
    wide sum[MR][NR / WIDE];
    clear_tile(sum);
    for (int i = 0; i < k; ++i) {
        wide right[NR / WIDE];
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x) {
            right[x] = JOINED(vload_half, WIDE)(from_b + x, packed_b);
        }
        RANK1_UPDATE(sum, right, vload_half(from_a + y, packed_a))
        from_a += MR;
        from_b += NR / WIDE;
    }
    store_tile(sum, c, ldc, row, m, column, column, n);
}
