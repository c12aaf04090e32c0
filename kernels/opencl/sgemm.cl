/* sgemm.cl - C = op(A) op(B), from the plainest way to the fastest, for any M, N, K >= 1.
 *
 * Every entry point computes the same product; they differ in who remembers what. Read them in
 * order: each one mends what made the one before it slow. Which is fastest depends on the device:
 * a phone's GPU may want images or local memory, a CPU wants one work item with many registers.
 *
 * Matrices lie row by row; LDA, LDB and LDC are the lengths of their rows in floats. The host
 * builds with -D TA=1 where A is given transposed (K rows of M), and -D TB=1 likewise. Products
 * are written a * b + c, never fma() or mad(), and vectors are loaded through pointers, never by
 * vloadN(): PoCL 3.0 calls a function for those, at a tenth of the speed; nobody else minds.
 */
#ifndef TA
#define TA 0
#endif
#ifndef TB
#define TB 0
#endif
/* Register tile of one work item: MR rows, NR columns, in vectors of WIDE. */
#ifndef MR
#define MR 4
#endif
#ifndef NR
#define NR 16
#endif
#ifndef WIDE
#define WIDE 8
#endif
#ifndef TILE
#define TILE 16 /* side of a tile in local memory */
#endif
#ifndef DEEP
#define DEEP 1 /* so many steps of the depth are written out in a row */
#endif

#define JOIN(left, right) left##right
#define JOINED(left, right) JOIN(left, right)
typedef JOINED(float, WIDE) wide;
/* The same where a row may begin anywhere: it promises no more than the alignment of a float. */
typedef wide loose __attribute__((aligned(4)));
typedef union {
    wide vector;
    float values[WIDE];
} parts;

/* Loops over a tile have to vanish, or its values live in memory instead of in registers. */
#define UNROLL _Pragma("unroll")
#define WORDS(text) _Pragma(#text)
#define UNROLL_BY(count) WORDS(unroll count)

#define A_AT(row, k) a[TA ? (size_t)(k) * lda + (row) : (size_t)(row) * lda + (k)]
#define B_AT(k, column) b[TB ? (size_t)(column) * ldb + (k) : (size_t)(k) * ldb + (column)]

/* One work item, one value of C. Every value of A and B is fetched from memory again and again. */
kernel void sgemm_naive(int m, int n, int k, global const float *restrict a, int lda,
                        global const float *restrict b, int ldb, global float *restrict c, int ldc) {
    int column = (int)get_global_id(0), row = (int)get_global_id(1);
    if (row >= m || column >= n)
        return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i)
        sum = A_AT(row, i) * B_AT(i, column) + sum;
    c[(size_t)row * ldc + column] = sum;
}

/* One work item, four neighbours in a row: a value of A is fetched once for four products. */
kernel void sgemm_vector(int m, int n, int k, global const float *restrict a, int lda,
                         global const float *restrict b, int ldb, global float *restrict c,
                         int ldc) {
    int column = 4 * (int)get_global_id(0), row = (int)get_global_id(1);
    if (row >= m || column >= n)
        return;
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
        for (int i = 0; i < k; ++i)
            last = A_AT(row, i) * B_AT(i, column) + last;
        c[(size_t)row * ldc + column] = last;
    }
}

/* A work group of TILE x TILE items carries a tile of A and one of B into local memory, and uses
 * each value TILE times. What lies outside the matrices is carried as zero. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
sgemm_tiled(int m, int n, int k, global const float *restrict a, int lda,
            global const float *restrict b, int ldb, global float *restrict c, int ldc) {
    local float tile_a[TILE][TILE];
    local float tile_b[TILE][TILE];
    int x = (int)get_local_id(0), y = (int)get_local_id(1);
    int column = TILE * (int)get_group_id(0) + x, row = TILE * (int)get_group_id(1) + y;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        tile_a[y][x] = row < m && start + x < k ? A_AT(row, start + x) : 0.0f;
        tile_b[y][x] = start + y < k && column < n ? B_AT(start + y, column) : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < TILE; ++i)
            sum = tile_a[y][i] * tile_b[i][x] + sum;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < m && column < n)
        c[(size_t)row * ldc + column] = sum;
}

/* Both at once, the optimum of the study: tiles in local memory, four values an item. Only tiles at
 * the edge ask for every value whether it is there. */
typedef float4 loose4 __attribute__((aligned(4)));
kernel __attribute__((reqd_work_group_size(TILE / 4, TILE, 1))) void
sgemm_tiled_vector(int m, int n, int k, global const float *restrict a, int lda,
                   global const float *restrict b, int ldb, global float *restrict c, int ldc) {
    local float4 tile_a[TILE][TILE / 4];
    local float4 tile_b[TILE][TILE / 4];
    int x = (int)get_local_id(0), y = (int)get_local_id(1);
    int column = TILE * (int)get_group_id(0) + 4 * x, row = TILE * (int)get_group_id(1) + y;
    bool inside = TILE * ((int)get_group_id(0) + 1) <= n && TILE * ((int)get_group_id(1) + 1) <= m;
    float4 sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        if (!TA && !TB && inside && start + TILE <= k) {
            tile_a[y][x] = *(global const loose4 *)&A_AT(row, start + 4 * x);
            tile_b[y][x] = *(global const loose4 *)&B_AT(start + y, column);
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
    if (row >= m)
        return;
    float out[4] = {sum.s0, sum.s1, sum.s2, sum.s3};
    UNROLL
    for (int j = 0; j < 4; ++j)
        if (column + j < n)
            c[(size_t)row * ldc + column + j] = out[j];
}

/* Write a vector into a row of C, those of its values that lie from column `from` up to `to`. */
void put(wide vector, global float *row, int column, int from, int to) {
    if (column >= from && column + WIDE <= to) {
        *(global loose *)(row + column) = vector;
        return;
    }
    parts out;
    out.vector = vector;
    UNROLL
    for (int j = 0; j < WIDE; ++j)
        if (column + j >= from && column + j < to)
            row[column + j] = out.values[j];
}

/* One work item, MR x NR values of C in its registers: each value of B that it fetches is used MR
 * times, each of A NR times. No local memory, no barrier, nothing to prepare: for small products.
 * At the ragged edges it stays on the matrices: a tile that would hang over the last column begins
 * earlier and writes only what is its own; rows below the last are the last once more, unwritten. */
kernel void sgemm_direct(int m, int n, int k, global const float *restrict a, int lda,
                         global const float *restrict b, int ldb, global float *restrict c,
                         int ldc) {
    int column = NR * (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (row >= m || column >= n)
        return;
    int rows = min(MR, m - row);
    if (TB || n < NR) { /* B cannot be read in vectors: value by value */
        int columns = min(NR, n - column);
        float edge[MR][NR];
        UNROLL
        for (int y = 0; y < MR; ++y)
            UNROLL
            for (int x = 0; x < NR; ++x)
                edge[y][x] = 0.0f;
        for (int i = 0; i < k; ++i) {
            float line[NR];
            UNROLL
            for (int x = 0; x < NR; ++x)
                line[x] = B_AT(i, min(column + x, n - 1));
            UNROLL
            for (int y = 0; y < MR; ++y) {
                float one = A_AT(min(row + y, m - 1), i);
                UNROLL
                for (int x = 0; x < NR; ++x)
                    edge[y][x] = one * line[x] + edge[y][x];
            }
        }
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; ++x)
                c[(size_t)(row + y) * ldc + column + x] = edge[y][x];
        return;
    }
    int first = min(column, n - NR);
    global const float *restrict from = b + first;
    wide sum[MR][NR / WIDE];
    UNROLL
    for (int y = 0; y < MR; ++y)
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x)
            sum[y][x] = 0.0f;
    UNROLL_BY(DEEP)
    for (int i = 0; i < k; ++i) {
        wide line[NR / WIDE];
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x)
            line[x] = *(global const loose *)(from + (size_t)i * ldb + WIDE * x);
        UNROLL
        for (int y = 0; y < MR; ++y) {
            float one = A_AT(min(row + y, m - 1), i);
            UNROLL
            for (int x = 0; x < NR / WIDE; ++x)
                sum[y][x] = one * line[x] + sum[y][x];
        }
    }
    UNROLL
    for (int y = 0; y < MR; ++y)
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x)
            if (y < rows)
                put(sum[y][x], c + (size_t)(row + y) * ldc, first + WIDE * x, column, n);
}

/* One work item, MR x NC values of C, each a row of A times a row of B along the depth, WIDE
 * products at a time: for B transposed, where a column of op(B) is a row in memory. */
#ifndef NC
#define NC 4
#endif
kernel void sgemm_dots(int m, int n, int k, global const float *restrict a, int lda,
                       global const float *restrict b, int ldb, global float *restrict c, int ldc) {
    int column = NC * (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (row >= m || column >= n)
        return;
    wide sum[MR][NC];
    UNROLL
    for (int y = 0; y < MR; ++y)
        UNROLL
        for (int x = 0; x < NC; ++x)
            sum[y][x] = 0.0f;
    int i = 0;
    if (!TA && TB) {
        UNROLL_BY(DEEP)
        for (; i + WIDE <= k; i += WIDE) {
            wide left[MR];
            UNROLL
            for (int y = 0; y < MR; ++y)
                left[y] = *(global const loose *)&A_AT(min(row + y, m - 1), i);
            UNROLL
            for (int x = 0; x < NC; ++x) {
                wide right = *(global const loose *)&B_AT(i, min(column + x, n - 1));
                UNROLL
                for (int y = 0; y < MR; ++y)
                    sum[y][x] = left[y] * right + sum[y][x];
            }
        }
    }
    UNROLL
    for (int y = 0; y < MR; ++y)
        UNROLL
        for (int x = 0; x < NC; ++x) {
            if (row + y >= m || column + x >= n)
                continue;
            parts all;
            all.vector = sum[y][x];
            float total = 0.0f;
            UNROLL
            for (int j = 0; j < WIDE; ++j)
                total += all.values[j];
            for (int j = i; j < k; ++j) /* what is left of the depth; all of it, otherwise */
                total = A_AT(row + y, j) * B_AT(j, column + x) + total;
            c[(size_t)(row + y) * ldc + column + x] = total;
        }
}

/* For large products the fetching itself is mended first: A is laid out in strips of MR rows, B in
 * strips of NR columns, in the order in which the product will read them, filled up with zeros.
 * Transposes and ragged sizes end here; sgemm_packed knows neither. */
kernel void pack_a(int m, int k, global const float *restrict a, int lda,
                   global float *restrict packed) {
    int i = (int)get_global_id(0), strip = (int)get_global_id(1);
    if (i >= k || strip * MR >= m)
        return;
    global float *to = packed + ((size_t)strip * k + i) * MR;
    UNROLL
    for (int y = 0; y < MR; ++y)
        to[y] = strip * MR + y < m ? A_AT(strip * MR + y, i) : 0.0f;
}

kernel void pack_b(int n, int k, global const float *restrict b, int ldb,
                   global float *restrict packed) {
    int i = (int)get_global_id(0), strip = (int)get_global_id(1);
    if (i >= k || strip * NR >= n)
        return;
    global float *to = packed + ((size_t)strip * k + i) * NR;
    if (!TB && strip * NR + NR <= n) {
        UNROLL
        for (int x = 0; x < NR; x += WIDE)
            *(global wide *)(to + x) = *(global const loose *)&B_AT(i, strip * NR + x);
        return;
    }
    UNROLL
    for (int x = 0; x < NR; ++x)
        to[x] = strip * NR + x < n ? B_AT(i, strip * NR + x) : 0.0f;
}

/* One work item multiplies strips of A with one strip of B, MR x NR values at a time, all of them
 * in registers. Neighbours share the strip of B, so it stays in the nearest cache. Rows of A are
 * read one after another anyway, so A may stay as it lies (-D PACK_A=0): half the preparation. */
#ifndef STRIPS
#define STRIPS 4 /* strips of A that one item works through */
#endif
#ifndef PACK_A
#define PACK_A 1
#endif
kernel void sgemm_packed(int m, int n, int k, global const float *restrict a, int lda,
                         global const float *restrict packed_b, global float *restrict c, int ldc) {
    int strip_b = (int)get_global_id(1);
    for (int turn = 0; turn < STRIPS; ++turn) {
        int strip_a = STRIPS * (int)get_global_id(0) + turn;
        int row = strip_a * MR, column = strip_b * NR;
        if (row >= m || column >= n)
            return;
        global const float *restrict from_a = a + (size_t)strip_a * k * MR;
        global const wide *restrict from_b =
            (global const wide *)(packed_b + (size_t)strip_b * k * NR);
        wide sum[MR][NR / WIDE];
        UNROLL
        for (int y = 0; y < MR; ++y)
            UNROLL
            for (int x = 0; x < NR / WIDE; ++x)
                sum[y][x] = 0.0f;
        UNROLL_BY(DEEP)
        for (int i = 0; i < k; ++i) {
            wide line[NR / WIDE];
            UNROLL
            for (int x = 0; x < NR / WIDE; ++x)
                line[x] = from_b[x];
            UNROLL
            for (int y = 0; y < MR; ++y) {
                float one = PACK_A ? from_a[y] : A_AT(min(row + y, m - 1), i);
                UNROLL
                for (int x = 0; x < NR / WIDE; ++x)
                    sum[y][x] = one * line[x] + sum[y][x];
            }
            from_a += MR;
            from_b += NR / WIDE;
        }
        UNROLL
        for (int y = 0; y < MR; ++y)
            UNROLL
            for (int x = 0; x < NR / WIDE; ++x)
                if (row + y < m)
                    put(sum[y][x], c + (size_t)(row + y) * ldc, column + WIDE * x, column, n);
    }
}

/* The same with both strips kept as half: half the bytes to fetch, every sum still in float. What
 * is stored loses three decimal digits; what is added up loses nothing more. */
kernel void pack_a_half(int m, int k, global const float *restrict a, int lda,
                        global half *restrict packed) {
    int i = (int)get_global_id(0), strip = (int)get_global_id(1);
    if (i >= k || strip * MR >= m)
        return;
    for (int y = 0; y < MR; ++y)
        vstore_half(strip * MR + y < m ? A_AT(strip * MR + y, i) : 0.0f,
                    ((size_t)strip * k + i) * MR + y, packed);
}

kernel void pack_b_half(int n, int k, global const float *restrict b, int ldb,
                        global half *restrict packed) {
    int i = (int)get_global_id(0), strip = (int)get_global_id(1);
    if (i >= k || strip * NR >= n)
        return;
    for (int x = 0; x < NR; ++x)
        vstore_half(strip * NR + x < n ? B_AT(i, strip * NR + x) : 0.0f,
                    ((size_t)strip * k + i) * NR + x, packed);
}

kernel void sgemm_half(int m, int n, int k, global const half *restrict packed_a,
                       global const half *restrict packed_b, global float *restrict c, int ldc) {
    int strip_a = (int)get_global_id(0), strip_b = (int)get_global_id(1);
    int row = strip_a * MR, column = strip_b * NR;
    if (row >= m || column >= n)
        return;
    size_t from_a = (size_t)strip_a * k * MR, from_b = (size_t)strip_b * k * NR / WIDE;
    wide sum[MR][NR / WIDE];
    UNROLL
    for (int y = 0; y < MR; ++y)
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x)
            sum[y][x] = 0.0f;
    for (int i = 0; i < k; ++i) {
        wide line[NR / WIDE];
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x)
            line[x] = JOINED(vload_half, WIDE)(from_b + x, packed_b);
        UNROLL
        for (int y = 0; y < MR; ++y) {
            float one = vload_half(from_a + y, packed_a);
            UNROLL
            for (int x = 0; x < NR / WIDE; ++x)
                sum[y][x] = one * line[x] + sum[y][x];
        }
        from_a += MR;
        from_b += NR / WIDE;
    }
    UNROLL
    for (int y = 0; y < MR; ++y)
        UNROLL
        for (int x = 0; x < NR / WIDE; ++x)
            if (row + y < m)
                put(sum[y][x], c + (size_t)(row + y) * ldc, column + WIDE * x, column, n);
}

/* Adreno fetches images through a cache of their own, beside the one for buffers. So B becomes an
 * image, four columns a pixel, while A stays a buffer and both caches work. */
kernel void image_of_b(int n, int k, global const float *restrict b, int ldb,
                       write_only image2d_t image) {
    int x = (int)get_global_id(0), i = (int)get_global_id(1);
    if (4 * x >= n || i >= k)
        return;
    float4 four = (float4)(B_AT(i, 4 * x), 4 * x + 1 < n ? B_AT(i, 4 * x + 1) : 0.0f,
                           4 * x + 2 < n ? B_AT(i, 4 * x + 2) : 0.0f,
                           4 * x + 3 < n ? B_AT(i, 4 * x + 3) : 0.0f);
    write_imagef(image, (int2)(x, i), four);
}

kernel void sgemm_image(int m, int n, int k, global const float *restrict a, int lda,
                        read_only image2d_t b, global float *restrict c, int ldc) {
    int x = (int)get_global_id(0), row = MR * (int)get_global_id(1);
    if (4 * x >= n || row >= m)
        return;
    float4 sum[MR];
    UNROLL
    for (int y = 0; y < MR; ++y)
        sum[y] = 0.0f;
    for (int i = 0; i < k; ++i) {
        float4 four = read_imagef(b, (int2)(x, i));
        UNROLL
        for (int y = 0; y < MR; ++y)
            sum[y] = A_AT(min(row + y, m - 1), i) * four + sum[y];
    }
    for (int y = 0; y < MR && row + y < m; ++y) {
        float out[4] = {sum[y].s0, sum[y].s1, sum[y].s2, sum[y].s3};
        for (int j = 0; j < 4; ++j)
            if (4 * x + j < n)
                c[(size_t)(row + y) * ldc + 4 * x + j] = out[j];
    }
}
