/* sgemm.cl - C = op(A) op(B), from the simplest variant to the fastest, for any M, N, K >= 1.
 *
 * Every variant computes the same product; they differ in which values are kept where. Read them in
 * order: each one fixes what made the one before it slow. Which variant is fastest depends on the
 * device: a phone's GPU may need images or local memory, a CPU needs one work item with many
 * registers.
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
#ifndef WIDE
#define WIDE 8
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

#define JOIN(left, right) left##right
#define JOINED(left, right) JOIN(left, right)
typedef JOINED(float, WIDE) wide;
/* The same at any address of a float, since a row may begin anywhere. */
typedef wide wide_unaligned __attribute__((aligned(4)));
typedef float4 float4_unaligned __attribute__((aligned(4)));
typedef union {
    wide vector;
    float values[WIDE];
} wide_lanes;

/* Loops over a register tile must be unrolled, or the tile lives in memory instead of registers. */
#define UNROLL _Pragma("unroll")
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

/* One value of C per work item. Every value of A and B is loaded again and again. */
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

/* Four adjacent values of a row per work item: a value of A is loaded once for four products. */
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

/* A work group of TILE x TILE items copies a tile of A and one of B to local memory, and uses each
 * value TILE times. Values outside the matrices are zero. */
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

/* Both at once, the best kernel of the study: tiles in local memory, four values per item. Only
 * tiles at an edge check every value. */
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

/* ---- register tiles: MR x NR values of C in the registers of one work item ---- */

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

/* Each loaded value of B is used MR times, each of A NR times. No local memory, no barrier, nothing
 * to prepare: for small products. At ragged edges it stays inside the matrices: a tile that would
 * exceed the last column begins earlier and stores only its own columns; rows beyond the last one
 * repeat the last one and are not stored. */
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

/* MR x NC values of C per work item, each the dot product of a row of A and a row of B, WIDE
 * products at a time: for a transposed B, where a column of op(B) is a row in memory. */
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

/* ---- packed panels: for large products ---- */

/* A is packed in row panels of MR rows, B in column panels of NR columns, in the order in which the
 * product reads them, padded with zeros. Packing handles transposes and ragged sizes; sgemm_packed
 * need not. */
kernel void pack_a(int m, int k, global const float *restrict a, int lda,
                   global float *restrict packed PLACE(a)) {
    MOVE_TO_PRODUCT(a);
    MOVE_TO_PACKED(packed, (m + MR - 1) / MR * MR * k);
    int i = (int)get_global_id(0), panel = (int)get_global_id(1);
    if (i >= k || panel * MR >= m) {
        return;
    }
    global float *to = packed + ((size_t)panel * k + i) * MR;
    UNROLL
    for (int y = 0; y < MR; ++y) {
        to[y] = panel * MR + y < m ? A_AT(panel * MR + y, i) : 0.0f;
    }
}

kernel void pack_b(int n, int k, global const float *restrict b, int ldb,
                   global float *restrict packed PLACE(b)) {
    MOVE_TO_PRODUCT(b);
    MOVE_TO_PACKED(packed, (n + NR - 1) / NR * NR * k);
    int i = (int)get_global_id(0), panel = (int)get_global_id(1);
    if (i >= k || panel * NR >= n) {
        return;
    }
    global float *to = packed + ((size_t)panel * k + i) * NR;
    if (!TB && panel * NR + NR <= n) {
        UNROLL
        for (int x = 0; x < NR; x += WIDE) {
            *(global wide *)(to + x) = *(global const wide_unaligned *)&B_AT(i, panel * NR + x);
        }
        return;
    }
    UNROLL
    for (int x = 0; x < NR; ++x) {
        to[x] = panel * NR + x < n ? B_AT(i, panel * NR + x) : 0.0f;
    }
}

/* One work item multiplies PANELS row panels with one column panel. Neighbouring items share the
 * column panel, so it stays in the nearest cache. Rows of A are read in order anyway, so A need not
 * be packed (-D PACK_A=0), which halves the preparation. */
#ifndef PANELS
#define PANELS 4 /* row panels per work item */
#endif
#ifndef PACK_A
#define PACK_A 1
#endif
kernel void sgemm_packed(int m, int n, int k, global const float *restrict a, int lda,
                         global const float *restrict packed_b, global float *restrict c,
                         int ldc PLACE(a) PLACE(c)) {
    MOVE_TO_PRODUCT(c);
    MOVE_TO_PACKED(packed_b, (n + NR - 1) / NR * NR * k);
    if (PACK_A) {
        MOVE_TO_PACKED(a, (m + MR - 1) / MR * MR * k);
    } else {
        MOVE_TO_PRODUCT(a);
    }
    int column_panel = (int)get_global_id(1);
    for (int turn = 0; turn < PANELS; ++turn) {
        int row_panel = PANELS * (int)get_global_id(0) + turn;
        int row = row_panel * MR, column = column_panel * NR;
        if (row >= m || column >= n) {
            return;
        }
        global const float *restrict from_a = a + (size_t)row_panel * k * MR;
        global const wide *restrict from_b =
            (global const wide *)(packed_b + (size_t)column_panel * k * NR);
        wide sum[MR][NR / WIDE];
        clear_tile(sum);
        UNROLL_BY(DEEP)
        for (int i = 0; i < k; ++i) {
            wide right[NR / WIDE];
            UNROLL
            for (int x = 0; x < NR / WIDE; ++x) {
                right[x] = from_b[x];
            }
            RANK1_UPDATE(sum, right, PACK_A ? from_a[y] : A_AT(min(row + y, m - 1), i))
            from_a += MR;
            from_b += NR / WIDE;
        }
        store_tile(sum, c, ldc, row, m, column, column, n);
    }
}

/* The same with both panels stored as half: half the bytes to load, all sums still in float.
 * Storing loses three decimal digits; summing loses nothing more. */
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

/* ---- images ---- */

/* Adreno loads images through a cache of their own, besides the one for buffers. So B becomes an
 * image, four columns per pixel, while A stays a buffer and both caches are used. */
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
