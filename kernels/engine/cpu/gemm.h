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

/* c(m,n) = a(m,k) b(k,n) + (add ? c : 0), on all threads of the pool; workspace as asked for. */
size_t gemm_workspace(int64_t m, int64_t n, int64_t k, int threads);
void gemm(struct pool *pool, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b,
          struct matrix c, bool add, void *workspace);

/* The same on the calling thread alone, for batched products that are cut by batch. */
size_t gemm_alone_workspace(int64_t m, int64_t n, int64_t k);
void gemm_alone(int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, struct matrix c,
                bool add, void *workspace);

#endif
