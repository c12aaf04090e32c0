/* linear.c - linear layers, their gradients, and the plain matrix product sgemm.
 *
 *   y = x wT + b, dw = dyT x, dx = dy w, db = the sum of the rows of dy
 *   sgemm: c = op(a) op(b), where op transposes if TA or TB is 1
 *
 * The one rule: all leading axes of a tensor are rows, and every product is one call of gemm(),
 * with strides that say what is transposed. */
#include "../thread_pool.h"
#include "gemm.h"
#include "ops.h"
#include "parallel_for.h"
#include "vector.h"

static op_run linear_forward_run, linear_weight_gradient_run, linear_input_gradient_run;
static op_run row_bias_gradient_run, sgemm_run;
static op_workspace linear_forward_workspace, linear_weight_gradient_workspace;
static op_workspace linear_input_gradient_workspace, sgemm_workspace;
static op_macs linear_forward_macs, linear_weight_gradient_macs, linear_input_gradient_macs;
static op_macs sgemm_macs;
static op_check sgemm_check;

const struct op_kind matmul_kinds[] = {
    {"linear_forward", "x(R..,I) w(O,I) b[O]? : y(R..,O)", NULL, linear_forward_workspace,
     linear_forward_macs, linear_forward_run},
    {"linear_weight_gradient", "x(R..,I) dy(R..,O) : dw(O,I)", NULL,
     linear_weight_gradient_workspace, linear_weight_gradient_macs, linear_weight_gradient_run},
    {"linear_input_gradient", "w(O,I) dy(R..,O) : dx(R..,I)", NULL, linear_input_gradient_workspace,
     linear_input_gradient_macs, linear_input_gradient_run},
    {"row_bias_gradient", "dy(R..,O) : db[O]", .run = row_bias_gradient_run},
    {"sgemm", "a(I,J) b(K,L) : c(M,N) : TA TB", sgemm_check, sgemm_workspace, sgemm_macs,
     sgemm_run},
    {.name = NULL},
};

static int64_t width_of(const struct tensor *x) { return x->dim[x->rank - 1]; }
static int64_t rows_of(const struct tensor *x) { return x->count / width_of(x); }

static int64_t linear_macs(const struct tensor *x, int64_t out) {
    return mul_saturated(x->count, out);
}

/* ---- y = x wT + b ---- */

static size_t linear_forward_workspace(const struct op *op, int threads) {
    return gemm_workspace(rows_of(op->in[0]), op->in[1]->dim[0], width_of(op->in[0]), threads);
}

static int64_t linear_forward_macs(const struct op *op) {
    return linear_macs(op->in[0], op->in[1]->dim[0]);
}

static void fill_bias(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *y = op->out[0];
    int64_t width = width_of(y), first, last;
    split_range(rows_of(y), part, parts, &first, &last);
    for (int64_t row = first; row < last; row++) {
        memcpy(floats(y) + row * width, floats(op->in[2]), (size_t)width * sizeof(float));
    }
}

static void linear_forward_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *x = op->in[0], *w = op->in[1], *y = op->out[0];
    if (has_bias(op)) {
        parallel_for(exec, rows_of(y), y->count, fill_bias, (void *)op);
    }
    gemm(exec->pool, rows_of(x), w->dim[0], width_of(x), as_matrix(x), transposed(as_matrix(w)),
         as_matrix(y), has_bias(op), exec->workspace);
}

/* ---- dw = dyT x ---- */

static size_t linear_weight_gradient_workspace(const struct op *op, int threads) {
    const struct tensor *x = op->in[0], *dw = op->out[0];
    return gemm_workspace(dw->dim[0], dw->dim[1], rows_of(x), threads);
}

static int64_t linear_weight_gradient_macs(const struct op *op) {
    return linear_macs(op->in[0], op->out[0]->dim[0]);
}

static void linear_weight_gradient_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *x = op->in[0], *dy = op->in[1], *dw = op->out[0];
    gemm(exec->pool, dw->dim[0], dw->dim[1], rows_of(x), transposed(as_matrix(dy)), as_matrix(x),
         as_matrix(dw), false, exec->workspace);
}

/* ---- dx = dy w ---- */

static size_t linear_input_gradient_workspace(const struct op *op, int threads) {
    const struct tensor *dx = op->out[0];
    return gemm_workspace(rows_of(dx), width_of(dx), op->in[0]->dim[0], threads);
}

static int64_t linear_input_gradient_macs(const struct op *op) {
    return linear_macs(op->out[0], op->in[0]->dim[0]);
}

static void linear_input_gradient_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *w = op->in[0], *dy = op->in[1], *dx = op->out[0];
    gemm(exec->pool, rows_of(dx), width_of(dx), w->dim[0], as_matrix(dy), as_matrix(w),
         as_matrix(dx), false, exec->workspace);
}

/* ---- db = the sum of the rows of dy ---- */

static void sum_rows(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    int64_t width = width_of(op->in[0]), rows = rows_of(op->in[0]), first, last;
    split_range_by_cache_line(width, part, parts, &first, &last);
    float *db = floats(op->out[0]);
    for (int64_t column = first; column < last; column++) {
        db[column] = 0.0f;
    }
    for (int64_t row = 0; row < rows; row++) {
        const float *dy = floats(op->in[0]) + row * width;
        for (int64_t column = first; column < last; column++) {
            db[column] += dy[column];
        }
    }
}

static void row_bias_gradient_run(const struct op *op, struct exec_context *exec) {
    int64_t width = width_of(op->in[0]);
    parallel_for(exec, div_up(width, CACHE_LINE_FLOATS), op->in[0]->count, sum_rows, (void *)op);
}

/* ---- c = op(a) op(b) ---- */

struct gemm_size {
    int64_t m, n, k;
};

static struct gemm_size sgemm_sizes(const struct op *op) {
    const struct tensor *a = op->in[0], *b = op->in[1];
    return (struct gemm_size){a->dim[op->i[0] ? 1 : 0], b->dim[op->i[1] ? 0 : 1],
                              a->dim[op->i[0] ? 0 : 1]};
}

static const char *sgemm_check(const struct op *op) {
    if ((op->i[0] | op->i[1]) & ~(int64_t)1) {
        return "needs 0 or 1 for TA and TB";
    }
    const struct tensor *b = op->in[1], *c = op->out[0];
    struct gemm_size size = sgemm_sizes(op);
    return b->dim[op->i[1] ? 1 : 0] == size.k && c->dim[0] == size.m && c->dim[1] == size.n
               ? NULL
               : "has matrices of different sizes";
}

static size_t sgemm_workspace(const struct op *op, int threads) {
    struct gemm_size size = sgemm_sizes(op);
    return gemm_workspace(size.m, size.n, size.k, threads);
}

static int64_t sgemm_macs(const struct op *op) {
    struct gemm_size size = sgemm_sizes(op);
    return mul_saturated(mul_saturated(size.m, size.n), size.k);
}

static void sgemm_run(const struct op *op, struct exec_context *exec) {
    struct gemm_size size = sgemm_sizes(op);
    const struct tensor *a = op->in[0], *b = op->in[1];
    gemm(exec->pool, size.m, size.n, size.k, op->i[0] ? transposed(as_matrix(a)) : as_matrix(a),
         op->i[1] ? transposed(as_matrix(b)) : as_matrix(b), as_matrix(op->out[0]), false,
         exec->workspace);
}
