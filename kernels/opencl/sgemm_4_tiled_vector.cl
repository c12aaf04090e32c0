/* sgemm_4_tiled_vector.cl - variants 2 and 3 at once, the best kernel of the study: tiles in local
 * memory, four values per item. Only tiles at an edge check every value. Barriers and local memory
 * limit it where local memory is ordinary memory, as on Mali and on CPUs. */
kernel __attribute__((reqd_work_group_size(TILE / 4, TILE, 1))) void
sgemm_tiled_vector(int m, int n, int k, global const float *restrict a, int lda,
                   global const float *restrict b, int ldb, global float *restrict c,
                   int ldc PLACES) {
    local float4 tile_a[TILE][TILE / 4];
    local float4 tile_b[TILE][TILE / 4];
    MOVE_TO_PRODUCTS;
    int x = (int)get_local_id(0), y = (int)get_local_id(1);
    int column = TILE * (int)get_group_id(0) + 4 * x, row = TILE * (int)get_group_id(1) + y;
    bool inside = TILE * ((int)get_group_id(0) + 1) <= n && TILE * ((int)get_group_id(1) + 1) <= m;
    float4 sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        if (!TA && !TB && inside && start + TILE <= k) {
            tile_a[y][x] = *(global const float4_unaligned *)&A_AT(row, start + 4 * x);
            tile_b[y][x] = *(global const float4_unaligned *)&B_AT(start + y, column);
        } else {
            float from_a[4], from_b[4];
            UNROLL
            for (int j = 0; j < 4; ++j) {
                int deep = start + 4 * x + j;
                from_a[j] = row < m && deep < k ? A_AT(row, deep) : 0.0f;
                from_b[j] = start + y < k && column + j < n ? B_AT(start + y, column + j) : 0.0f;
            }
            tile_a[y][x] = (float4)(from_a[0], from_a[1], from_a[2], from_a[3]);
            tile_b[y][x] = (float4)(from_b[0], from_b[1], from_b[2], from_b[3]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < TILE / 4; ++i) {
            float4 four = tile_a[y][i];
            sum = four.s0 * tile_b[4 * i][x] + sum;
            sum = four.s1 * tile_b[4 * i + 1][x] + sum;
            sum = four.s2 * tile_b[4 * i + 2][x] + sum;
            sum = four.s3 * tile_b[4 * i + 3][x] + sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row >= m) {
        return;
    }
    float out[4] = {sum.s0, sum.s1, sum.s2, sum.s3};
    UNROLL
    for (int j = 0; j < 4; ++j) {
        if (column + j < n) {
            c[(size_t)row * ldc + column + j] = out[j];
        }
    }
}
