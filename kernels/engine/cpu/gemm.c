/* gemm.c - a matrix product at the speed of the inner loop.
 *
 * The one rule: the inner loop reads memory in order and finds it in the nearest cache. A block of
 * a (MC x KC) is packed into slivers of six rows and stays in the second cache; a block of b
 * (KC x NC) is packed into panels of sixteen columns, of which one at a time stays in the first.
 * Whatever the strides of a and b are, packing takes care of them; edges are padded with zeros.
 *
 * With several threads, each has a rectangle of c and does all of this by itself; where c is too
 * small for that, each has a share of the depth and a sheet of its own, and the sheets are added.
 */
#include "gemm.h"


#include "../pool.h"
#include "tile.h"

enum { KC = 256, MC = 144, NC = 480 };
enum { DOT_DEPTH = 1024, DOT_THIN = 24 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* The size of equal blocks, none greater than `limit`, in whole `step`s. */
static int64_t even_block(int64_t count, int64_t limit, int64_t step) {
    int64_t blocks = most(1, pieces(count, limit));
    return pieces(pieces(count, blocks), step) * step;
}

static struct matrix from(struct matrix x, int64_t row, int64_t column) {
    x.data += row * x.row + column * x.column;
    return x;
}

static struct matrix turned(struct matrix x) {
    return (struct matrix){x.data, x.column, x.row};
}

/* ---- packing ---- */

typedef float v4 __attribute__((vector_size(16), may_alias));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef float v2 __attribute__((vector_size(8), may_alias));
typedef float v2_any __attribute__((vector_size(8), aligned(4), may_alias));

/* Four rows, four values of each, become four columns. */
ALWAYS_INLINE void turn4(const float *first, const float *second, const float *third,
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

/* Any sizes and strides: `wide` values a depth, of which `count` are there. */
static void pack_any(int64_t count, int64_t wide, int64_t depth, const float *x, int64_t across,
                     int64_t along, float *packed) {
    for (int64_t k = 0; k < depth; k++, packed += wide) {
        const float *at = x + k * along;
        for (int64_t n = 0; n < count; n++)
            packed[n] = at[n * across];
        for (int64_t n = count; n < wide; n++)
            packed[n] = 0.0f;
    }
}

/* Side by side already; four to six of them. */
static void pack_side_by_side(int64_t count, int64_t depth, const float *x, int64_t along,
                              float *packed) {
    for (int64_t k = 0; k < depth; k++, x += along, packed += 6) {
        *(v4_any *)packed = *(const v4_any *)x;
        packed[4] = count > 4 ? x[4] : 0.0f;
        packed[5] = count > 5 ? x[5] : 0.0f;
    }
}

/* Rows of memory; where there are fewer than six, the last stands in for the missing ones, which no
 * tile reads. */
static void pack_along(int64_t count, int64_t depth, const float *x, int64_t row, float *packed) {
    const float *rows[6];
    for (int n = 0; n < 6; n++)
        rows[n] = x + least(n, count - 1) * row;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, packed += 24) {
        v4 four[4], a = *(const v4_any *)(rows[4] + k), b = *(const v4_any *)(rows[5] + k);
        v4 two[2] = {__builtin_shufflevector(a, b, 0, 4, 1, 5),
                     __builtin_shufflevector(a, b, 2, 6, 3, 7)};
        turn4(rows[0] + k, rows[1] + k, rows[2] + k, rows[3] + k, four);
        UNROLL for (int n = 0; n < 4; n++) {
            v4 pair = two[n / 2];
            *(v4_any *)(packed + 6 * n) = four[n];
            *(v2_any *)(packed + 6 * n + 4) =
                n % 2 ? (v2){pair[2], pair[3]} : (v2){pair[0], pair[1]};
        }
    }
    for (; k < depth; k++, packed += 6)
        for (int n = 0; n < 6; n++)
            packed[n] = rows[n][k];
}

void pack_rows(int64_t rows, int64_t depth, struct matrix a, int64_t first, int64_t last,
               float *packed, int64_t pitch) {
    struct slivers slivers = slivers_of(rows);
    for (int64_t s = first; s < last; s++) {
        int64_t count = sliver_height(&slivers, s);
        float *to = packed + s * pitch * 6;
        const float *x = a.data + sliver_top(&slivers, s) * a.row;
        if (a.column == 1)
            pack_along(count, depth, x, a.row, to);
        else if (a.row == 1 && count >= 4)
            pack_side_by_side(count, depth, x, a.column, to);
        else
            pack_any(count, 6, depth, x, a.row, a.column, to);
    }
}

static void pack_sixteen_in_a_row(int64_t depth, const float *x, int64_t along, float *packed) {
    for (int64_t k = 0; k < depth; k++, x += along, packed += 16) {
        store8(packed, load8(x));
        store8(packed + 8, load8(x + 8));
    }
}

void pack_sixteen(int64_t depth, const float *const column[16], float *packed) {
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, packed += 64)
        UNROLL for (int n = 0; n < 16; n += 4) {
            v4 four[4];
            turn4(column[n] + k, column[n + 1] + k, column[n + 2] + k, column[n + 3] + k, four);
            UNROLL for (int d = 0; d < 4; d++)
                *(v4_any *)(packed + 16 * d + n) = four[d];
        }
    for (; k < depth; k++, packed += 16)
        for (int n = 0; n < 16; n++)
            packed[n] = column[n][k];
}

static void pack_sixteen_columns(int64_t depth, const float *x, int64_t stride, float *packed) {
    const float *column[16];
    for (int n = 0; n < 16; n++)
        column[n] = x + n * stride;
    pack_sixteen(depth, column, packed);
}

static void pack_columns(int64_t columns, int64_t depth, struct matrix b, float *packed) {
    for (int64_t n = 0; n < columns; n += 16, packed += depth * 16) {
        const float *x = b.data + n * b.column;
        if (columns - n >= 16 && b.column == 1)
            pack_sixteen_in_a_row(depth, x, b.row, packed);
        else if (columns - n >= 16 && b.row == 1)
            pack_sixteen_columns(depth, x, b.column, packed);
        else
            pack_any(least(16, columns - n), 16, depth, x, b.column, b.row, packed);
    }
}

/* ---- one tile of c ---- */

/* The part of a tile that c has room for. */
static void put_part(const float *tile, int64_t rows, int64_t columns, struct matrix c, bool add) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            float *to = c.data + row * c.row + column * c.column;
            float value = tile[row * TILE_COLUMNS + column];
            *to = add ? *to + value : value;
        }
}

void product_tile(int64_t rows, int64_t columns, int64_t depth, const float *sliver,
                  const float *panel, struct matrix c, bool add) {
    struct tile tile = {.depth = depth, .a = sliver, .left = panel, .right = panel + 8,
                        .step = TILE_COLUMNS};
    if (columns == TILE_COLUMNS && c.column == 1) {
        tile.to_left = c.data, tile.to_right = c.data + 8, tile.stride = c.row, tile.add = add;
        tile_run(&tile, rows);
        return;
    }
    float whole[TILE_ROWS * TILE_COLUMNS];
    tile.to_left = whole, tile.to_right = whole + 8, tile.stride = TILE_COLUMNS;
    tile_run(&tile, rows);
    put_part(whole, rows, columns, c, add);
}

/* ---- products whose both sides lie along the depth, and that are thin ---- */

static void dots_block(int64_t m, int64_t n, int64_t depth, struct matrix a, struct matrix b,
                       struct matrix c, bool add) {
    const float *rows[DOT_ROWS], *columns[DOT_COLUMNS];
    for (int r = 0; r < DOT_ROWS; r++)
        rows[r] = a.data + least(r, m - 1) * a.row;
    for (int k = 0; k < DOT_COLUMNS; k++)
        columns[k] = b.data + least(k, n - 1) * b.column;
    struct dots dots;
    dots_clear(&dots);
    int64_t whole = depth & -8;
    for (int64_t at = 0; at < whole; at += 8)
        dots_step(&dots, rows, columns, at);
    for (int64_t r = 0; r < least(m, DOT_ROWS); r++)
        for (int64_t k = 0; k < least(n, DOT_COLUMNS); k++) {
            float sum = sum8(dots.at[r][k]);
            for (int64_t at = whole; at < depth; at++)
                sum += rows[r][at] * columns[k][at];
            float *to = c.data + r * c.row + k * c.column;
            *to = add ? *to + sum : sum;
        }
}

static void dots_alone(int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b,
                       struct matrix c, bool add) {
    int64_t depth = even_block(k, DOT_DEPTH, 8);
    for (int64_t at = 0; at < k; at += depth)
        for (int64_t column = 0; column < n; column += DOT_COLUMNS)
            for (int64_t row = 0; row < m; row += DOT_ROWS)
                dots_block(m - row, n - column, least(depth, k - at), from(a, row, at),
                           from(b, at, column), from(c, row, column), add || at > 0);
}

/* ---- the blocks ---- */

size_t gemm_alone_workspace(int64_t m, int64_t n, int64_t k) {
    /* Either side may play a, since a product may be turned. */
    int64_t depth = even_block(k, KC, 1);
    int64_t long_side = least(NC, pieces(most(m, n), 16) * 16) + 16;
    return sizeof(float) * (size_t)(depth * (MC + 6 + long_side) + 32);
}

void gemm_alone(int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, struct matrix c,
                bool add, void *workspace) {
    int64_t upright = pieces(m, 6) * pieces(n, 16), lying = pieces(n, 6) * pieces(m, 16);
    if (c.column != 1 ? c.row == 1 || lying < upright : lying * 5 < upright * 4) {
        struct matrix swap = a;
        a = turned(b), b = turned(swap), c = turned(c);
        int64_t size = m;
        m = n, n = size;
    }
    if (a.column == 1 && b.row == 1 && least(m, n) <= DOT_THIN && k >= 32) {
        dots_alone(m, n, k, a, b, c, add);
        return;
    }
    int64_t depth = even_block(k, KC, 1);
    int64_t height = even_block(m, MC, 6), width = even_block(n, NC, 16);
    float *panels = workspace, *slivers = panels + depth * width;
    for (int64_t left = 0; left < n; left += width)
        for (int64_t at = 0; at < k; at += depth) {
            int64_t columns = least(width, n - left), deep = least(depth, k - at);
            pack_columns(columns, deep, from(b, at, left), panels);
            for (int64_t top = 0; top < m; top += height) {
                int64_t rows = least(height, m - top);
                struct slivers cut = slivers_of(rows);
                pack_rows(rows, deep, from(a, top, at), 0, cut.count, slivers, deep);
                for (int64_t n0 = 0; n0 < columns; n0 += 16)
                    for (int64_t s = 0; s < cut.count; s++)
                        product_tile(sliver_height(&cut, s), least(16, columns - n0), deep,
                                     slivers + s * deep * 6, panels + n0 * deep,
                                     from(c, top + sliver_top(&cut, s), left + n0), add || at > 0);
            }
        }
}

/* ---- on several threads ---- */

/* How the work is cut: so many pieces of each measure. */
struct cut {
    int m, n, k;
};

static struct cut cut_for(int64_t m, int64_t n, int64_t k, int threads) {
    struct cut best = {1, 1, 1};
    if (threads < 2 || m * n <= 0 || (double)m * (double)n * (double)k < 50000)
        return best;
    double least_cost = 1e300;
    for (int cm = 1; cm <= threads; cm++)
        for (int cn = 1; cm * cn <= threads; cn++)
            for (int ck = 1; cm * cn * ck <= threads; ck++) {
                double rows = (double)pieces(pieces(m, 6), cm) * 6;
                double columns = (double)pieces(pieces(n, 16), cn) * 16;
                double deep = (double)pieces(k, ck);
                if (ck > 1 && deep < 128)
                    continue;
                double cost = rows * columns * deep / 16 + (rows + columns) * deep / 2;
                if (ck > 1)
                    cost += 2000 + (double)m * (double)n * (1 + (double)ck / threads) / 4;
                if (cost < least_cost) {
                    least_cost = cost;
                    best = (struct cut){cm, cn, ck};
                }
            }
    return best;
}

struct job {
    int64_t m, n, k;
    struct matrix a, b, c;
    bool add;
    struct cut cut;
    char *scratch;
    size_t scratch_bytes; /* of one worker */
    float *sheets;        /* m x n for every piece of the depth but the first */
};

static size_t one_scratch(int64_t m, int64_t n, int64_t k) {
    return (gemm_alone_workspace(m, n, k) + 63) & ~(size_t)63;
}

size_t gemm_workspace(int64_t m, int64_t n, int64_t k, int threads) {
    struct cut cut = cut_for(m, n, k, threads);
    return (size_t)threads * one_scratch(m, n, k) + sizeof(float) * (size_t)(m * n * (cut.k - 1));
}

static void do_piece(void *context, int part, int parts, int worker) {
    (void)parts;
    struct job *job = context;
    int pm = part % job->cut.m, pn = part / job->cut.m % job->cut.n;
    int pk = part / (job->cut.m * job->cut.n);
    int64_t top, bottom, left, right, first, last;
    share_of(pieces(job->m, 6), pm, job->cut.m, &top, &bottom);
    share_of(pieces(job->n, 16), pn, job->cut.n, &left, &right);
    share_of(job->k, pk, job->cut.k, &first, &last);
    top *= 6, bottom = least(bottom * 6, job->m);
    left *= 16, right = least(right * 16, job->n);
    struct matrix c = job->c;
    if (pk > 0)
        c = (struct matrix){job->sheets + (pk - 1) * job->m * job->n, job->n, 1};
    gemm_alone(bottom - top, right - left, last - first, from(job->a, top, first),
               from(job->b, first, left), from(c, top, left), pk == 0 && job->add,
               job->scratch + (size_t)worker * job->scratch_bytes);
}

static void add_sheets(void *context, int part, int parts, int worker) {
    (void)worker;
    struct job *job = context;
    int64_t first, last;
    share_of(job->m, part, parts, &first, &last);
    for (int pk = 1; pk < job->cut.k; pk++)
        for (int64_t row = first; row < last; row++) {
            const float *sheet = job->sheets + ((pk - 1) * job->m + row) * job->n;
            float *c = job->c.data + row * job->c.row;
            for (int64_t column = 0; column < job->n; column++)
                c[column * job->c.column] += sheet[column];
        }
}

void gemm(struct pool *pool, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b,
          struct matrix c, bool add, void *workspace) {
    int threads = pool_threads(pool);
    struct job job = {m, n, k, a, b, c, add, cut_for(m, n, k, threads), workspace,
                      one_scratch(m, n, k), NULL};
    job.sheets = (float *)(job.scratch + (size_t)threads * job.scratch_bytes);
    pool_run(pool, job.cut.m * job.cut.n * job.cut.k, do_piece, &job);
    if (job.cut.k > 1)
        pool_run(pool, (int)least(threads, m), add_sheets, &job);
}
