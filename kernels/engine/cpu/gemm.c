/* gemm.c - a matrix product at the speed of the microkernel.
 *
 * The one rule: the microkernel reads memory in order and finds it in the nearest cache. A block of
 * A (MC x KC) is packed into row panels and stays in the L2 cache; a block of B (KC x NC) is packed
 * into column panels, of which one at a time stays in the L1 cache. Packing handles any strides of
 * A and B, and pads edges with zeros.
 *
 * With several threads, each computes a rectangle of C on its own; where C is too small for that,
 * each sums a range of the depth into its own partial C, and the partial results are added. */
#include "gemm.h"

#include "../thread_pool.h"

enum { KC = 256, MC = 144, NC = 480 };
/* Dot products are used up to this many rows or columns, DOT_DEPTH depths at a time. */
enum { DOT_DEPTH = 1024, DOT_THIN = 24 };
#define LATE_SHARE 0.125 /* by how much of a part a thread is late; 0: all cores are equally fast */

static struct matrix submatrix(struct matrix x, int64_t row, int64_t column) {
    x.data += row * x.row + column * x.column;
    return x;
}

/* ---- packing ---- */

typedef float v2 __attribute__((vector_size(8), may_alias));
typedef float v2_any __attribute__((vector_size(8), aligned(4), may_alias));

/* Transposes a 4 x 4 block: four rows in, four columns out. */
ALWAYS_INLINE void transpose4(const float *first, const float *second, const float *third,
                              const float *fourth, v4 out[4]) {
    v4 a = *(const v4_any *)first, b = *(const v4_any *)second;
    v4 c = *(const v4_any *)third, d = *(const v4_any *)fourth;
    v4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    v4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    v4 AB = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v4 CD = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    out[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    out[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    out[2] = __builtin_shufflevector(AB, CD, 0, 1, 4, 5);
    out[3] = __builtin_shufflevector(AB, CD, 2, 3, 6, 7);
}

/* Packs a panel of any size and strides: `width` values per depth, of which `count` exist. */
static void pack_strided(int64_t count, int64_t width, int64_t depth, const float *x,
                         int64_t stride, int64_t depth_stride, float *packed) {
    for (int64_t k = 0; k < depth; k++, packed += width) {
        const float *at = x + k * depth_stride;
        for (int64_t n = 0; n < count; n++) {
            packed[n] = at[n * stride];
        }
        for (int64_t n = count; n < width; n++) {
            packed[n] = 0.0f;
        }
    }
}

/* Packs a row panel of a transposed A, whose 4 to MR values per depth are adjacent. */
static void pack_a_adjacent(int64_t count, int64_t depth, const float *x, int64_t depth_stride,
                            float *packed) {
    for (int64_t k = 0; k < depth; k++, x += depth_stride, packed += MR) {
        *(v4_any *)packed = *(const v4_any *)x;
        packed[4] = count > 4 ? x[4] : 0.0f;
        packed[5] = count > 5 ? x[5] : 0.0f;
    }
}

/* Packs a row panel of an A whose rows are contiguous. Missing rows of a panel are filled with the
 * last row; the microkernel does not read them. */
static void pack_a_rows(int64_t count, int64_t depth, const float *x, int64_t row, float *packed) {
    const float *rows[MR];
    for (int n = 0; n < MR; n++) {
        rows[n] = x + min_i64(n, count - 1) * row;
    }
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, packed += 4 * MR) {
        v4 four[4], a = *(const v4_any *)(rows[4] + k), b = *(const v4_any *)(rows[5] + k);
        v4 two[2] = {__builtin_shufflevector(a, b, 0, 4, 1, 5),
                     __builtin_shufflevector(a, b, 2, 6, 3, 7)};
        transpose4(rows[0] + k, rows[1] + k, rows[2] + k, rows[3] + k, four);
        UNROLL
        for (int n = 0; n < 4; n++) {
            v4 pair = two[n / 2];
            *(v4_any *)(packed + MR * n) = four[n];
            *(v2_any *)(packed + MR * n + 4) =
                n % 2 ? (v2){pair[2], pair[3]} : (v2){pair[0], pair[1]};
        }
    }
    for (; k < depth; k++, packed += MR) {
        for (int n = 0; n < MR; n++) {
            packed[n] = rows[n][k];
        }
    }
}

void pack_a(int64_t rows, int64_t depth, struct matrix a, int64_t first, int64_t last,
            float *packed, int64_t pitch) {
    struct row_panels panels = row_panels_of(rows);
    for (int64_t p = first; p < last; p++) {
        int64_t count = panel_rows(&panels, p);
        float *to = packed + p * pitch * MR;
        const float *x = a.data + panel_first_row(&panels, p) * a.row;
        if (a.column == 1) {
            pack_a_rows(count, depth, x, a.row, to);
        } else if (a.row == 1 && count >= 4) {
            pack_a_adjacent(count, depth, x, a.column, to);
        } else {
            pack_strided(count, MR, depth, x, a.row, a.column, to);
        }
    }
}

static void pack_b_adjacent(int64_t depth, const float *x, int64_t depth_stride, float *packed) {
    for (int64_t k = 0; k < depth; k++, x += depth_stride, packed += NR) {
        store8(packed, load8(x));
        store8(packed + 8, load8(x + 8));
    }
}

void pack_b_columns(int64_t depth, const float *const column[NR], float *packed) {
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, packed += 4 * NR) {
        UNROLL
        for (int n = 0; n < NR; n += 4) {
            v4 four[4];
            transpose4(column[n] + k, column[n + 1] + k, column[n + 2] + k, column[n + 3] + k,
                       four);
            UNROLL
            for (int d = 0; d < 4; d++) {
                *(v4_any *)(packed + NR * d + n) = four[d];
            }
        }
    }
    for (; k < depth; k++, packed += NR) {
        for (int n = 0; n < NR; n++) {
            packed[n] = column[n][k];
        }
    }
}

static void pack_b_transposed(int64_t depth, const float *x, int64_t stride, float *packed) {
    const float *column[NR];
    for (int n = 0; n < NR; n++) {
        column[n] = x + n * stride;
    }
    pack_b_columns(depth, column, packed);
}

static void pack_b(int64_t columns, int64_t depth, struct matrix b, float *packed) {
    for (int64_t n = 0; n < columns; n += NR, packed += depth * NR) {
        const float *x = b.data + n * b.column;
        if (columns - n >= NR && b.column == 1) {
            pack_b_adjacent(depth, x, b.row, packed);
        } else if (columns - n >= NR && b.row == 1) {
            pack_b_transposed(depth, x, b.column, packed);
        } else {
            pack_strided(min_i64(NR, columns - n), NR, depth, x, b.column, b.row, packed);
        }
    }
}

/* ---- one tile of C ---- */

/* Stores the part of a tile that lies inside C. */
static void store_tile(const float *tile, int64_t rows, int64_t columns, struct matrix c,
                       bool accumulate) {
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++) {
            float *to = c.data + row * c.row + column * c.column;
            float value = tile[row * NR + column];
            *to = accumulate ? *to + value : value;
        }
    }
}

void multiply_panels(int64_t rows, int64_t columns, int64_t depth, const float *row_panel,
                     const float *column_panel, struct matrix c, bool accumulate) {
    struct tile tile = {.depth = depth, .a = row_panel, .b_left = column_panel};
    if (columns == NR && c.column == 1) {
        tile.c_left = c.data;
        tile.c_right = c.data + 8;
        tile.c_stride = c.row;
        tile.accumulate = accumulate;
        microkernel(&tile, rows);
        return;
    }
    float whole[MR * NR];
    tile.c_left = whole;
    tile.c_right = whole + 8;
    tile.c_stride = NR;
    microkernel(&tile, rows);
    store_tile(whole, rows, columns, c, accumulate);
}

/* ---- thin products, both operands contiguous along the depth: dot products ---- */

static void dot_block(int64_t m, int64_t n, int64_t depth, struct matrix a, struct matrix b,
                      struct matrix c, bool accumulate) {
    const float *rows[DOT_ROWS], *columns[DOT_COLUMNS];
    for (int r = 0; r < DOT_ROWS; r++) {
        rows[r] = a.data + min_i64(r, m - 1) * a.row;
    }
    for (int k = 0; k < DOT_COLUMNS; k++) {
        columns[k] = b.data + min_i64(k, n - 1) * b.column;
    }
    struct dot_tile tile;
    dot_tile_clear(&tile);
    int64_t whole = depth & -LANES;
    for (int64_t at = 0; at < whole; at += LANES) {
        dot_tile_step(&tile, rows, columns, at);
    }
    for (int64_t r = 0; r < min_i64(m, DOT_ROWS); r++) {
        for (int64_t k = 0; k < min_i64(n, DOT_COLUMNS); k++) {
            float sum = hsum8(tile.sum[r][k]);
            for (int64_t at = whole; at < depth; at++) {
                sum += rows[r][at] * columns[k][at];
            }
            float *to = c.data + r * c.row + k * c.column;
            *to = accumulate ? *to + sum : sum;
        }
    }
}

static void gemm_by_dots(int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b,
                         struct matrix c, bool accumulate) {
    int64_t depth = balanced_block(k, DOT_DEPTH, LANES);
    for (int64_t at = 0; at < k; at += depth) {
        for (int64_t column = 0; column < n; column += DOT_COLUMNS) {
            for (int64_t row = 0; row < m; row += DOT_ROWS) {
                dot_block(m - row, n - column, min_i64(depth, k - at), submatrix(a, row, at),
                          submatrix(b, at, column), submatrix(c, row, column),
                          accumulate || at > 0);
            }
        }
    }
}

/* ---- blocks ---- */

size_t gemm_serial_workspace(int64_t m, int64_t n, int64_t k) {
    /* Either side may become A, since a product may be computed transposed. */
    int64_t depth = balanced_block(k, KC, 1);
    int64_t columns = min_i64(NC, round_up(max_i64(m, n), NR)) + NR;
    return sizeof(float) * (size_t)(depth * (MC + MR + columns) + 32);
}

/* Whether computing C transposed wastes less of the MR x NR tiles, or stores whole rows of it. */
static bool is_better_transposed(int64_t m, int64_t n, struct matrix c) {
    int64_t tiles = div_up(m, MR) * div_up(n, NR), tiles_transposed = div_up(n, MR) * div_up(m, NR);
    return c.column != 1 ? c.row == 1 || tiles_transposed < tiles
                         : tiles_transposed * 5 < tiles * 4;
}

void gemm_serial(int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, struct matrix c,
                 bool accumulate, void *workspace) {
    if (is_better_transposed(m, n, c)) {
        struct matrix left = a;
        a = transposed(b);
        b = transposed(left);
        c = transposed(c);
        int64_t rows = m;
        m = n;
        n = rows;
    }
    if (a.column == 1 && b.row == 1 && min_i64(m, n) <= DOT_THIN && k >= 32) {
        gemm_by_dots(m, n, k, a, b, c, accumulate);
        return;
    }
    int64_t depth = balanced_block(k, KC, 1);
    int64_t height = balanced_block(m, MC, MR), width = balanced_block(n, NC, NR);
    float *packed_b = workspace, *packed_a = packed_b + depth * width;
    for (int64_t left = 0; left < n; left += width) {
        for (int64_t at = 0; at < k; at += depth) {
            int64_t columns = min_i64(width, n - left), deep = min_i64(depth, k - at);
            pack_b(columns, deep, submatrix(b, at, left), packed_b);
            for (int64_t top = 0; top < m; top += height) {
                int64_t rows = min_i64(height, m - top);
                struct row_panels panels = row_panels_of(rows);
                pack_a(rows, deep, submatrix(a, top, at), 0, panels.count, packed_a, deep);
                for (int64_t n0 = 0; n0 < columns; n0 += NR) {
                    for (int64_t p = 0; p < panels.count; p++) {
                        multiply_panels(panel_rows(&panels, p), min_i64(NR, columns - n0), deep,
                                        packed_a + p * deep * MR, packed_b + n0 * deep,
                                        submatrix(c, top + panel_first_row(&panels, p), left + n0),
                                        accumulate || at > 0);
                    }
                }
            }
        }
    }
}

/* ---- several threads ---- */

/* Into how many parts each dimension is split. */
struct split {
    int m, n, k;
};

/* The estimated time of a part: multiply-adds and packing. */
static double part_cost(int64_t m, int64_t n, int64_t k, struct split split) {
    double rows = (double)div_up(div_up(m, MR), split.m) * MR;
    double columns = (double)div_up(div_up(n, NR), split.n) * NR;
    double deep = (double)div_up(k, split.k);
    return rows * columns * deep / 16 + (rows + columns) * deep / 2;
}

/* Cuts the part of each thread further as long as packing more costs less than waiting for a thread
 * that is late by a share of its last part. */
static struct split cut_parts(int64_t m, int64_t n, int64_t k, struct split split) {
    struct split best = split;
    double least_cost = 1e300;
    for (int more = 1; more <= PARTS_PER_THREAD; more *= 2) {
        for (int rows = 1; rows <= more; rows *= 2) {
            struct split finer = {split.m * rows, split.n * (more / rows), split.k};
            double cost = part_cost(m, n, k, finer) * (more + LATE_SHARE);
            if (cost < least_cost) {
                least_cost = cost;
                best = finer;
            }
        }
    }
    return best;
}

/* Chooses the split with the least estimated time: multiply-adds of the slowest thread, its
 * packing, and the adding of partial results where the depth is split. */
static struct split choose_split(int64_t m, int64_t n, int64_t k, int threads) {
    struct split best = {1, 1, 1};
    if (threads < 2 || m * n <= 0 || (double)m * (double)n * (double)k < 50000) {
        return best;
    }
    double least_cost = 1e300;
    for (int sm = 1; sm <= threads; sm++) {
        for (int sn = 1; sm * sn <= threads; sn++) {
            for (int sk = 1; sm * sn * sk <= threads; sk++) {
                if (sk > 1 && div_up(k, sk) < 128) {
                    continue;
                }
                double cost = part_cost(m, n, k, (struct split){sm, sn, sk});
                if (sk > 1) {
                    cost += 2000 + (double)m * (double)n * (1 + (double)sk / threads) / 4;
                }
                if (cost < least_cost) {
                    least_cost = cost;
                    best = (struct split){sm, sn, sk};
                }
            }
        }
    }
    return best.k > 1 ? best : cut_parts(m, n, k, best);
}

struct gemm_job {
    int64_t m, n, k;
    struct matrix a, b, c;
    bool accumulate;
    struct split split;
    char *scratch;
    size_t scratch_bytes; /* per worker */
    float *partial;       /* m x n for every range of the depth but the first */
};

static size_t worker_scratch(int64_t m, int64_t n, int64_t k) {
    return (size_t)round_up((int64_t)gemm_serial_workspace(m, n, k), CACHE_LINE_BYTES);
}

size_t gemm_workspace(int64_t m, int64_t n, int64_t k, int threads) {
    struct split split = choose_split(m, n, k, threads);
    return (size_t)threads * worker_scratch(m, n, k) +
           sizeof(float) * (size_t)(m * n * (split.k - 1));
}

static void gemm_part(void *context, int part, int parts, int worker) {
    (void)parts;
    struct gemm_job *job = context;
    int pm = part % job->split.m, pn = part / job->split.m % job->split.n;
    int pk = part / (job->split.m * job->split.n);
    int64_t top, bottom, left, right, first, last;
    split_range(div_up(job->m, MR), pm, job->split.m, &top, &bottom);
    split_range(div_up(job->n, NR), pn, job->split.n, &left, &right);
    split_range(job->k, pk, job->split.k, &first, &last);
    top *= MR;
    bottom = min_i64(bottom * MR, job->m);
    left *= NR;
    right = min_i64(right * NR, job->n);
    struct matrix c = job->c;
    if (pk > 0) {
        c = (struct matrix){job->partial + (pk - 1) * job->m * job->n, job->n, 1};
    }
    gemm_serial(bottom - top, right - left, last - first, submatrix(job->a, top, first),
                submatrix(job->b, first, left), submatrix(c, top, left), pk == 0 && job->accumulate,
                job->scratch + (size_t)worker * job->scratch_bytes);
}

static void add_partial(void *context, int part, int parts, int worker) {
    (void)worker;
    struct gemm_job *job = context;
    int64_t first, last;
    split_range(job->m, part, parts, &first, &last);
    for (int pk = 1; pk < job->split.k; pk++) {
        for (int64_t row = first; row < last; row++) {
            const float *partial = job->partial + ((pk - 1) * job->m + row) * job->n;
            float *c = job->c.data + row * job->c.row;
            for (int64_t column = 0; column < job->n; column++) {
                c[column * job->c.column] += partial[column];
            }
        }
    }
}

void gemm(struct thread_pool *pool, int64_t m, int64_t n, int64_t k, struct matrix a,
          struct matrix b, struct matrix c, bool accumulate, void *workspace) {
    int threads = thread_pool_size(pool);
    struct gemm_job job = {
        .m = m,
        .n = n,
        .k = k,
        .a = a,
        .b = b,
        .c = c,
        .accumulate = accumulate,
        .split = choose_split(m, n, k, threads),
        .scratch = workspace,
        .scratch_bytes = worker_scratch(m, n, k),
    };
    job.partial = (float *)(job.scratch + (size_t)threads * job.scratch_bytes);
    thread_pool_run(pool, job.split.m * job.split.n * job.split.k, gemm_part, &job);
    if (job.split.k > 1) {
        thread_pool_run(pool, (int)min_i64(threads, m), add_partial, &job);
    }
}
