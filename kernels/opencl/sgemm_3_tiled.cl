/* sgemm_3_tiled.cl - tiles in local memory: a work group of TILE x TILE items copies a tile of A
 * and one of B there, and uses each value TILE times. Values outside the matrices are zero. Every
 * product still loads two values, now from local memory. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
sgemm_tiled(int m, int n, int k, global const float *restrict a, int lda,
            global const float *restrict b, int ldb, global float *restrict c, int ldc PLACES) {
    local float tile_a[TILE][TILE];
    local float tile_b[TILE][TILE];
    MOVE_TO_PRODUCTS;
    int x = (int)get_local_id(0), y = (int)get_local_id(1);
    int column = TILE * (int)get_group_id(0) + x, row = TILE * (int)get_group_id(1) + y;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        tile_a[y][x] = row < m && start + x < k ? A_AT(row, start + x) : 0.0f;
        tile_b[y][x] = start + y < k && column < n ? B_AT(start + y, column) : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < TILE; ++i) {
            sum = tile_a[y][i] * tile_b[i][x] + sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < m && column < n) {
        c[(size_t)row * ldc + column] = sum;
    }
}
