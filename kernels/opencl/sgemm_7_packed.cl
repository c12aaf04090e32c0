/* sgemm_7_packed.cl - register tiles over packed panels: for large products, whose rows lie too far
 * apart for the nearest cache.
 *
 * A is packed in row panels of MR rows, B in column panels of NR columns, in the order in which the
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
