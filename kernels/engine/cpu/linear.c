/* linear.c - products of rows by a weight: linear layers, their gradients, and sgemm itself.
 *
 * The one rule: all leading axes of a tensor are rows, its last axis is what is multiplied, and
 * every product is one call of gemm() with the strides that say what is turned. */
#include "../pool.h"
#include "check.h"
#include "gemm.h"
#include "ops.h"
#include "products.h"
#include "spread.h"
#include "vector.h"

static int64_t width_of(const struct tensor *x) { return x->dim[x->rank - 1]; }
static int64_t rows_of(const struct tensor *x) { return x->count / width_of(x); }

static bool is_rows(const struct tensor *x) { return x->rank >= 2; }

static struct matrix plain(const struct tensor *x) {
    return (struct matrix){floats(x), width_of(x), 1};
}

static struct matrix turned(const struct tensor *x) {
    return (struct matrix){floats(x), 1, width_of(x)};
}

/* x (rows, in), w (out, in), y (rows, out) agree. */
static const char *check_linear(const struct tensor *x, const struct tensor *w,
                                const struct tensor *y) {
    if (!is_rows(x) || !is_rows(y))
        return "wants rows of at least two axes";
    if (w->rank != 2)
        return "wants a weight of two axes";
    if (width_of(x) != w->dim[1] || width_of(y) != w->dim[0] || rows_of(x) != rows_of(y))
        return "has rows and a weight that do not fit";
    if (!product_fits(rows_of(x), w->dim[0], w->dim[1]))
        return "is too large";
    return NULL;
}

static int64_t product_macs(const struct tensor *x, int64_t out) { return x->count * out; }

/* ---- y = x wT + b ---- */

static const char *forward_check(const struct op *op) {
    bool biased = op->ins == 3 && op->in[2];
    if (op->ins != 2 && op->ins != 3)
        return "has too few or too many operands";
    struct op plain_form = *op;
    plain_form.ins = biased ? 3 : 2;
    const char *fault = check_form(&plain_form, biased ? "fff" : "ff", "f", 0, 0);
    if (!fault)
        fault = check_linear(op->in[0], op->in[1], op->out[0]);
    if (!fault && biased && op->in[2]->count != op->in[1]->dim[0])
        fault = "has a bias that does not fit";
    return fault;
}

static size_t forward_workspace(const struct op *op, int threads) {
    return gemm_workspace(rows_of(op->in[0]), op->in[1]->dim[0], width_of(op->in[0]), threads);
}

static int64_t forward_macs(const struct op *op) {
    return product_macs(op->in[0], op->in[1]->dim[0]);
}

static void put_bias(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *y = op->out[0];
    int64_t width = width_of(y), first, last;
    share_of(rows_of(y), part, parts, &first, &last);
    for (int64_t row = first; row < last; row++)
        memcpy(floats(y) + row * width, floats(op->in[2]), (size_t)width * sizeof(float));
}

static void forward_run(const struct op *op, struct scene *scene) {
    const struct tensor *x = op->in[0], *w = op->in[1], *y = op->out[0];
    bool biased = op->ins == 3 && op->in[2];
    if (biased)
        spread(scene, rows_of(y), y->count, put_bias, (void *)op);
    gemm(scene->pool, rows_of(x), w->dim[0], width_of(x), plain(x), turned(w), plain(y), biased,
         scene->workspace);
}

static const struct op_kind linear_forward = {"linear_forward", forward_check, forward_workspace,
                                              forward_macs, forward_run};

/* ---- dw = dyT x ---- */

static const char *weight_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 0);
    return fault ? fault : check_linear(op->in[0], op->out[0], op->in[1]);
}

static size_t weight_workspace(const struct op *op, int threads) {
    const struct tensor *x = op->in[0], *dw = op->out[0];
    return gemm_workspace(dw->dim[0], dw->dim[1], rows_of(x), threads);
}

static int64_t weight_macs(const struct op *op) {
    return product_macs(op->in[0], op->out[0]->dim[0]);
}

static void weight_run(const struct op *op, struct scene *scene) {
    const struct tensor *x = op->in[0], *dy = op->in[1], *dw = op->out[0];
    gemm(scene->pool, dw->dim[0], dw->dim[1], rows_of(x), turned(dy), plain(x), plain(dw), false,
         scene->workspace);
}

static const struct op_kind linear_weight_gradient = {
    "linear_weight_gradient", weight_check, weight_workspace, weight_macs, weight_run};

/* ---- dx = dy w ---- */

static const char *input_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 0);
    return fault ? fault : check_linear(op->out[0], op->in[0], op->in[1]);
}

static size_t input_workspace(const struct op *op, int threads) {
    const struct tensor *dx = op->out[0];
    return gemm_workspace(rows_of(dx), width_of(dx), op->in[0]->dim[0], threads);
}

static int64_t input_macs(const struct op *op) {
    return product_macs(op->out[0], op->in[0]->dim[0]);
}

static void input_run(const struct op *op, struct scene *scene) {
    const struct tensor *w = op->in[0], *dy = op->in[1], *dx = op->out[0];
    gemm(scene->pool, rows_of(dx), width_of(dx), w->dim[0], plain(dy), plain(w), plain(dx), false,
         scene->workspace);
}

static const struct op_kind linear_input_gradient = {
    "linear_input_gradient", input_check, input_workspace, input_macs, input_run};

/* ---- db = sum of the rows of dy ---- */

static const char *bias_check(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 0, 0);
    if (!fault && (!is_rows(op->in[0]) || op->out[0]->count != width_of(op->in[0])))
        fault = "has rows and a bias that do not fit";
    return fault;
}

static void sum_rows(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    int64_t width = width_of(op->in[0]), rows = rows_of(op->in[0]), first, last;
    share_of_values(width, part, parts, &first, &last);
    float *db = floats(op->out[0]);
    for (int64_t column = first; column < last; column++)
        db[column] = 0.0f;
    for (int64_t row = 0; row < rows; row++) {
        const float *dy = floats(op->in[0]) + row * width;
        for (int64_t column = first; column < last; column++)
            db[column] += dy[column];
    }
}

static void bias_run(const struct op *op, struct scene *scene) {
    int64_t width = width_of(op->in[0]);
    spread(scene, (width + 15) / 16, op->in[0]->count, sum_rows, (void *)op);
}

static const struct op_kind row_bias_gradient = {"row_bias_gradient", bias_check, NULL, NULL,
                                                 bias_run};

/* ---- c = op(a) op(b) ---- */

struct sizes {
    int64_t m, n, k;
};

static struct sizes sgemm_sizes(const struct op *op) {
    const struct tensor *a = op->in[0], *b = op->in[1];
    return (struct sizes){a->dim[op->i[0] ? 1 : 0], b->dim[op->i[1] ? 0 : 1],
                          a->dim[op->i[0] ? 0 : 1]};
}

static const char *sgemm_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 2, 0);
    if (fault)
        return fault;
    const struct tensor *a = op->in[0], *b = op->in[1], *c = op->out[0];
    if (a->rank != 2 || b->rank != 2 || c->rank != 2)
        return "wants matrices of two axes";
    if ((op->i[0] | op->i[1]) & ~(int64_t)1)
        return "wants 0 or 1 for each turn";
    struct sizes size = sgemm_sizes(op);
    if (b->dim[op->i[1] ? 1 : 0] != size.k || c->dim[0] != size.m || c->dim[1] != size.n)
        return "has matrices that do not fit";
    if (!product_fits(size.m, size.n, size.k))
        return "is too large";
    return NULL;
}

static size_t sgemm_workspace(const struct op *op, int threads) {
    struct sizes size = sgemm_sizes(op);
    return gemm_workspace(size.m, size.n, size.k, threads);
}

static int64_t sgemm_macs(const struct op *op) {
    struct sizes size = sgemm_sizes(op);
    return size.m * size.n * size.k;
}

static void sgemm_run(const struct op *op, struct scene *scene) {
    struct sizes size = sgemm_sizes(op);
    const struct tensor *a = op->in[0], *b = op->in[1];
    gemm(scene->pool, size.m, size.n, size.k, op->i[0] ? turned(a) : plain(a),
         op->i[1] ? turned(b) : plain(b), plain(op->out[0]), false, scene->workspace);
}

static const struct op_kind sgemm = {"sgemm", sgemm_check, sgemm_workspace, sgemm_macs, sgemm_run};

const struct op_kind *const product_kinds[] = {
    &conv_forward,   &conv_weight_gradient,   &conv_input_gradient,   &channel_bias,
    &channel_bias_gradient, &linear_forward,  &linear_weight_gradient, &linear_input_gradient,
    &row_bias_gradient,     &sgemm,           NULL,
};
