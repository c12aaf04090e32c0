/* linear.c - linear layers, their gradients, and the plain matrix product sgemm.
 *
 * The one rule: all leading axes of a tensor are rows, and every product is one call of gemm(),
 * with strides that say what is transposed. */
#include "../thread_pool.h"
#include "check.h"
#include "conv.h"
#include "gemm.h"
#include "ops.h"
#include "parallel_for.h"
#include "vector.h"

static int64_t width_of(const struct tensor *x) { return x->dim[x->rank - 1]; }
static int64_t rows_of(const struct tensor *x) { return x->count / width_of(x); }

static bool is_rows(const struct tensor *x) { return x->rank >= 2; }

/* x is (rows, in), w is (out, in), y is (rows, out). */
static const char *check_linear(const struct tensor *x, const struct tensor *w,
                                const struct tensor *y) {
    if (!is_rows(x) || !is_rows(y)) {
        return "needs rows with at least two axes";
    }
    if (w->rank != 2) {
        return "needs a weight with two axes";
    }
    if (width_of(x) != w->dim[1] || width_of(y) != w->dim[0] || rows_of(x) != rows_of(y)) {
        return "has rows and a weight of different sizes";
    }
    if (!macs_fit(rows_of(x), w->dim[0], w->dim[1])) {
        return "is too large";
    }
    return NULL;
}

static int64_t linear_macs(const struct tensor *x, int64_t out) { return x->count * out; }

/* ---- y = x wT + b ---- */

static const char *forward_check(const struct op *op) {
    const char *fault = check_signature_with_bias(op, 0);
    if (!fault) {
        fault = check_linear(op->in[0], op->in[1], op->out[0]);
    }
    if (!fault && has_bias(op) && op->in[2]->count != op->in[1]->dim[0]) {
        fault = "has a bias of the wrong size";
    }
    return fault;
}

static size_t forward_workspace(const struct op *op, int threads) {
    return gemm_workspace(rows_of(op->in[0]), op->in[1]->dim[0], width_of(op->in[0]), threads);
}

static int64_t forward_macs(const struct op *op) {
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

static void forward_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *x = op->in[0], *w = op->in[1], *y = op->out[0];
    if (has_bias(op)) {
        parallel_for(exec, rows_of(y), y->count, fill_bias, (void *)op);
    }
    gemm(exec->pool, rows_of(x), w->dim[0], width_of(x), as_matrix(x), transposed(as_matrix(w)),
         as_matrix(y), has_bias(op), exec->workspace);
}

static const struct op_kind linear_forward = {"linear_forward", forward_check, forward_workspace,
                                              forward_macs, forward_run};

/* ---- dw = dyT x ---- */

static const char *weight_check(const struct op *op) {
    const char *fault = check_signature(op, "ff", "f", 0, 0);
    return fault ? fault : check_linear(op->in[0], op->out[0], op->in[1]);
}

static size_t weight_workspace(const struct op *op, int threads) {
    const struct tensor *x = op->in[0], *dw = op->out[0];
    return gemm_workspace(dw->dim[0], dw->dim[1], rows_of(x), threads);
}

static int64_t weight_macs(const struct op *op) {
    return linear_macs(op->in[0], op->out[0]->dim[0]);
}

static void weight_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *x = op->in[0], *dy = op->in[1], *dw = op->out[0];
    gemm(exec->pool, dw->dim[0], dw->dim[1], rows_of(x), transposed(as_matrix(dy)), as_matrix(x),
         as_matrix(dw), false, exec->workspace);
}

static const struct op_kind linear_weight_gradient = {"linear_weight_gradient", weight_check,
                                                      weight_workspace, weight_macs, weight_run};

/* ---- dx = dy w ---- */

static const char *input_check(const struct op *op) {
    const char *fault = check_signature(op, "ff", "f", 0, 0);
    return fault ? fault : check_linear(op->out[0], op->in[0], op->in[1]);
}

static size_t input_workspace(const struct op *op, int threads) {
    const struct tensor *dx = op->out[0];
    return gemm_workspace(rows_of(dx), width_of(dx), op->in[0]->dim[0], threads);
}

static int64_t input_macs(const struct op *op) {
    return linear_macs(op->out[0], op->in[0]->dim[0]);
}

static void input_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *w = op->in[0], *dy = op->in[1], *dx = op->out[0];
    gemm(exec->pool, rows_of(dx), width_of(dx), w->dim[0], as_matrix(dy), as_matrix(w),
         as_matrix(dx), false, exec->workspace);
}

static const struct op_kind linear_input_gradient = {"linear_input_gradient", input_check,
                                                     input_workspace, input_macs, input_run};

/* ---- db = the sum of the rows of dy ---- */

static const char *bias_check(const struct op *op) {
    const char *fault = check_signature(op, "f", "f", 0, 0);
    if (!fault && (!is_rows(op->in[0]) || op->out[0]->count != width_of(op->in[0]))) {
        fault = "has a bias of the wrong size";
    }
    return fault;
}

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

static void bias_run(const struct op *op, struct exec_context *exec) {
    int64_t width = width_of(op->in[0]);
    parallel_for(exec, div_up(width, CACHE_LINE_FLOATS), op->in[0]->count, sum_rows, (void *)op);
}

static const struct op_kind row_bias_gradient = {"row_bias_gradient", bias_check, NULL, NULL,
                                                 bias_run};

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
    const char *fault = check_signature(op, "ff", "f", 2, 0);
    if (fault) {
        return fault;
    }
    const struct tensor *a = op->in[0], *b = op->in[1], *c = op->out[0];
    if (a->rank != 2 || b->rank != 2 || c->rank != 2) {
        return "needs matrices with two axes";
    }
    if ((op->i[0] | op->i[1]) & ~(int64_t)1) {
        return "needs 0 or 1 for TA and TB";
    }
    struct gemm_size size = sgemm_sizes(op);
    if (b->dim[op->i[1] ? 1 : 0] != size.k || c->dim[0] != size.m || c->dim[1] != size.n) {
        return "has matrices of different sizes";
    }
    if (!macs_fit(size.m, size.n, size.k)) {
        return "is too large";
    }
    return NULL;
}

static size_t sgemm_workspace(const struct op *op, int threads) {
    struct gemm_size size = sgemm_sizes(op);
    return gemm_workspace(size.m, size.n, size.k, threads);
}

static int64_t sgemm_macs(const struct op *op) {
    struct gemm_size size = sgemm_sizes(op);
    return size.m * size.n * size.k;
}

static void sgemm_run(const struct op *op, struct exec_context *exec) {
    struct gemm_size size = sgemm_sizes(op);
    const struct tensor *a = op->in[0], *b = op->in[1];
    gemm(exec->pool, size.m, size.n, size.k, op->i[0] ? transposed(as_matrix(a)) : as_matrix(a),
         op->i[1] ? transposed(as_matrix(b)) : as_matrix(b), as_matrix(op->out[0]), false,
         exec->workspace);
}

static const struct op_kind sgemm = {"sgemm", sgemm_check, sgemm_workspace, sgemm_macs, sgemm_run};

const struct op_kind *const matmul_kinds[] = {
    &conv_forward,
    &conv_weight_gradient,
    &conv_input_gradient,
    &channel_bias,
    &channel_bias_gradient,
    &linear_forward,
    &linear_weight_gradient,
    &linear_input_gradient,
    &row_bias_gradient,
    &sgemm,
    NULL,
};
