/* sgemm_9_image.cl - B as an image, four columns per pixel, while A stays a buffer: Adreno loads
 * images through a cache of their own, so both caches are used. */
kernel void image_of_b(int n, int k, global const float *restrict b, int ldb,
                       write_only image2d_t image) {
    int x = (int)get_global_id(0), i = (int)get_global_id(1);
    if (4 * x >= n || i >= k) {
        return;
    }
    float4 four = (float4)(B_AT(i, 4 * x), 4 * x + 1 < n ? B_AT(i, 4 * x + 1) : 0.0f,
                           4 * x + 2 < n ? B_AT(i, 4 * x + 2) : 0.0f,
                           4 * x + 3 < n ? B_AT(i, 4 * x + 3) : 0.0f);
    write_imagef(image, (int2)(x, i), four);
}

kernel void sgemm_image(int m, int n, int k, global const float *restrict a, int lda,
                        read_only image2d_t b, global float *restrict c, int ldc) {
    int x = (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (4 * x >= n || row >= m) {
        return;
    }
    float4 sum[MR];
    UNROLL
    for (int y = 0; y < MR; ++y) {
        sum[y] = 0.0f;
    }
    for (int i = 0; i < k; ++i) {
        float4 four = read_imagef(b, (int2)(x, i));
        UNROLL
        for (int y = 0; y < MR; ++y) {
            sum[y] = A_AT(min(row + y, m - 1), i) * four + sum[y];
        }
    }
    for (int y = 0; y < MR && row + y < m; ++y) {
        float out[4] = {sum[y].s0, sum[y].s1, sum[y].s2, sum[y].s3};
        for (int j = 0; j < 4; ++j) {
            if (4 * x + j < n) {
                c[(size_t)(row + y) * ldc + 4 * x + j] = out[j];
            }
        }
    }
}
