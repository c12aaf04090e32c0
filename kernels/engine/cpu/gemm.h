/* gemm.h - the packed matrix product that everything heavy is made of. */
#ifndef FARMHAND_GEMM_H
#define FARMHAND_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

/* A matrix as it lies in memory: value (r, c) is at data[r * row + c * column]. A transposed one
 * has its strides exchanged; nothing else is needed to transpose. */
struct matrix {
    float *data;
    int64_t row, column;
};

/* Whether m n k multiply-adds can be counted at all; what a check() asks first. */
static inline bool product_fits(int64_t m, int64_t n, int64_t k) {
    int64_t area, volume;
    return !__builtin_mul_overflow(m, n, &area) && !__builtin_mul_overflow(area, k, &volume) &&
           volume < INT64_MAX / 16;
}

/* c(m,n) = a(m,k) b(k,n) + (add ? c : 0), on all threads of the pool; workspace as asked for. */
size_t gemm_workspace(int64_t m, int64_t n, int64_t k, int threads);
void gemm(struct pool *pool, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b,
          struct matrix c, bool add, void *workspace);

/* The same on the calling thread alone, for batched products that are cut by batch. */
size_t gemm_alone_workspace(int64_t m, int64_t n, int64_t k);
void gemm_alone(int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, struct matrix c,
                bool add, void *workspace);

/* Rows of a matrix as tiles want them: slivers of up to six rows, six values a depth; sliver s lies
 * at s * depth * 6. Rows are dealt out evenly, so that no sliver is much thinner than others. */
struct slivers {
    int64_t count, rows, thicker; /* the first `thicker` ones have one row more */
};

static inline struct slivers slivers_of(int64_t rows) {
    int64_t count = (rows + 5) / 6;
    return (struct slivers){count, count ? rows / count : 0, count ? rows % count : 0};
}

static inline int64_t sliver_top(const struct slivers *slivers, int64_t s) {
    return s * slivers->rows + (s < slivers->thicker ? s : slivers->thicker);
}

static inline int64_t sliver_height(const struct slivers *slivers, int64_t s) {
    return slivers->rows + (s < slivers->thicker);
}

/* Packs the slivers [first, last) of all `rows`; slivers lie `pitch` depths apart. */
void pack_rows(int64_t rows, int64_t depth, struct matrix a, int64_t first, int64_t last,
               float *packed, int64_t pitch);

/* Packs sixteen columns, each of which lies in memory order along the depth. */
void pack_sixteen(int64_t depth, const float *const column[16], float *packed);

/* c(rows, columns) = or += a sliver by a panel; rows up to 6, columns up to 16. */
void product_tile(int64_t rows, int64_t columns, int64_t depth, const float *sliver,
                  const float *panel, struct matrix c, bool add);

#endif
