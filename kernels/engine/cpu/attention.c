/* attention.c - multi-head attention over (N, T, 3F): scores, values, and their gradients.
 *
 * The one rule: a head is selected by pointer and stride, never copied, so that each product is a
 * plain call of gemm_serial(). */
#include <math.h>
#include <string.h>

#include "../thread_pool.h"
#include "check.h"
#include "gemm.h"
#include "ops.h"

/* The heads of an operation. qkv is (N, T, 3F): queries, keys and values side by side. */
struct heads {
    const struct op *op;
    int64_t samples, steps, features, heads, size;
    bool causal;
    char *scratch;
    size_t scratch_bytes;
};

static struct heads heads_of(const struct op *op, const struct tensor *qkv) {
    struct heads heads = {.op = op,
                          .samples = qkv->dim[0],
                          .steps = qkv->dim[1],
                          .features = qkv->dim[2] / 3,
                          .heads = op->i[0],
                          .causal = op->ints > 1 && op->i[1] != 0};
    heads.size = heads.features / heads.heads;
    return heads;
}

enum qkv_part { QUERY, KEY, VALUE };

/* (T, size) within (N, T, 3F). */
static struct matrix qkv_matrix(const struct heads *heads, const struct tensor *qkv, int64_t n,
                                int64_t head, enum qkv_part part) {
    int64_t row = 3 * heads->features;
    return (struct matrix){
        floats(qkv) + n * heads->steps * row + part * heads->features + head * heads->size, row, 1};
}

/* (T, size) within (N, T, F). */
static struct matrix head_matrix(const struct heads *heads, const struct tensor *x, int64_t n,
                                 int64_t head) {
    return (struct matrix){floats(x) + n * heads->steps * heads->features + head * heads->size,
                           heads->features, 1};
}

/* (T, T) within (N, HEADS, T, T). */
static struct matrix scores_matrix(const struct heads *heads, const struct tensor *x,
                                   int64_t number) {
    return (struct matrix){floats(x) + number * heads->steps * heads->steps, heads->steps, 1};
}

static const char *check_heads(const struct op *op, const struct tensor *qkv,
                               const struct tensor *scores) {
    if (!is_sequence(qkv) || qkv->dim[2] % 3) {
        return "needs queries, keys and values side by side";
    }
    if (op->i[0] < 1 || qkv->dim[2] / 3 % op->i[0]) {
        return "has heads that do not divide the features";
    }
    if (scores->rank != 4 || scores->dim[0] != qkv->dim[0] || scores->dim[1] != op->i[0] ||
        scores->dim[2] != qkv->dim[1] || scores->dim[3] != qkv->dim[1]) {
        return "has scores of the wrong shape";
    }
    if (!macs_fit(qkv->count, qkv->dim[1], 2) || scores->dim[0] * scores->dim[1] > INT32_MAX) {
        return "is too large";
    }
    return NULL;
}

static size_t head_scratch(const struct heads *heads) {
    size_t product = max_size(gemm_serial_workspace(heads->steps, heads->steps, heads->size),
                              gemm_serial_workspace(heads->steps, heads->size, heads->steps));
    return cache_line_bytes(heads->steps * heads->steps) +
           (size_t)round_up((int64_t)product, CACHE_LINE_BYTES);
}

static size_t heads_workspace(const struct op *op, int threads) {
    struct heads heads = heads_of(op, op->in[0]);
    return (size_t)threads * head_scratch(&heads);
}

static void run_per_head(const struct op *op, struct exec_context *exec, thread_pool_task *work) {
    struct heads heads = heads_of(op, op->in[0]);
    heads.scratch = exec->workspace;
    heads.scratch_bytes = head_scratch(&heads);
    thread_pool_run(exec->pool, (int)(heads.samples * heads.heads), work, &heads);
}

static void *product_scratch(const struct heads *heads, int worker) {
    return heads->scratch + (size_t)worker * heads->scratch_bytes +
           cache_line_bytes(heads->steps * heads->steps);
}

static int64_t scores_macs(const struct op *op) {
    struct heads heads = heads_of(op, op->in[0]);
    return heads.samples * heads.steps * heads.steps * heads.features;
}

static int64_t two_products_macs(const struct op *op) { return 2 * scores_macs(op); }

/* qkv : scores : HEADS CAUSAL */
static const char *scores_check(const struct op *op) {
    const char *fault = check_signature(op, "f", "f", 2, 0);
    return fault ? fault : check_heads(op, op->in[0], op->out[0]);
}

static void scores_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *heads = context;
    int64_t n = part / heads->heads, head = part % heads->heads, steps = heads->steps;
    const struct tensor *qkv = heads->op->in[0];
    struct matrix scores = scores_matrix(heads, heads->op->out[0], part);
    gemm_serial(steps, steps, heads->size, qkv_matrix(heads, qkv, n, head, QUERY),
                transposed(qkv_matrix(heads, qkv, n, head, KEY)), scores, false,
                product_scratch(heads, worker));
    float scale = 1.0f / sqrtf((float)heads->size);
    for (int64_t t = 0; t < steps; t++) {
        float *row = scores.data + t * steps;
        int64_t visible = heads->causal ? t + 1 : steps;
        for (int64_t s = 0; s < visible; s++) {
            row[s] *= scale;
        }
        for (int64_t s = visible; s < steps; s++) {
            row[s] = -1e30f;
        }
    }
}

static void scores_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, scores_head);
}

static const struct op_kind attention_scores = {"attention_scores", scores_check, heads_workspace,
                                                scores_macs, scores_run};

/* qkv probs : out : HEADS */
static const char *values_check(const struct op *op) {
    const char *fault = check_signature(op, "ff", "f", 1, 0);
    if (!fault) {
        fault = check_heads(op, op->in[0], op->in[1]);
    }
    const struct tensor *qkv = op->in[0];
    if (!fault && !has_shape(op->out[0], qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3)) {
        fault = "has an output of the wrong shape";
    }
    return fault;
}

static void values_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *heads = context;
    int64_t n = part / heads->heads, head = part % heads->heads;
    gemm_serial(
        heads->steps, heads->size, heads->steps, scores_matrix(heads, heads->op->in[1], part),
        qkv_matrix(heads, heads->op->in[0], n, head, VALUE),
        head_matrix(heads, heads->op->out[0], n, head), false, product_scratch(heads, worker));
}

static void values_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, values_head);
}

static const struct op_kind attention_values = {"attention_values", values_check, heads_workspace,
                                                scores_macs, values_run};

/* qkv probs dout : dprobs dqkv : HEADS */
static const char *values_gradient_check(const struct op *op) {
    const char *fault = check_signature(op, "fff", "ff", 1, 0);
    if (!fault) {
        fault = check_heads(op, op->in[0], op->in[1]);
    }
    const struct tensor *qkv = op->in[0];
    if (!fault && !has_shape(op->in[2], qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3)) {
        fault = "has a gradient of the wrong shape";
    }
    if (!fault && (!same_shape(op->out[0], op->in[1]) || !same_shape(op->out[1], qkv))) {
        fault = "has an output of the wrong shape";
    }
    return fault;
}

static void values_gradient_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *heads = context;
    const struct op *op = heads->op;
    int64_t n = part / heads->heads, head = part % heads->heads;
    struct matrix dout = head_matrix(heads, op->in[2], n, head);
    gemm_serial(heads->steps, heads->steps, heads->size, dout,
                transposed(qkv_matrix(heads, op->in[0], n, head, VALUE)),
                scores_matrix(heads, op->out[0], part), false, product_scratch(heads, worker));
    gemm_serial(
        heads->steps, heads->size, heads->steps, transposed(scores_matrix(heads, op->in[1], part)),
        dout, qkv_matrix(heads, op->out[1], n, head, VALUE), false, product_scratch(heads, worker));
}

static void values_gradient_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, values_gradient_head);
}

static const struct op_kind attention_values_gradient = {"attention_values_gradient",
                                                         values_gradient_check, heads_workspace,
                                                         two_products_macs, values_gradient_run};

/* qkv dscores dqkv : dqkv= : HEADS CAUSAL */
static const char *scores_gradient_check(const struct op *op) {
    const char *fault = check_signature(op, "fff", "f", 2, 0);
    if (!fault) {
        fault = check_heads(op, op->in[0], op->in[1]);
    }
    if (!fault && (!same_shape(op->in[2], op->in[0]) || !same_shape(op->out[0], op->in[0]))) {
        fault = "has an output of the wrong shape";
    }
    return fault;
}

/* dscores, scaled; zero where the mask hides a key. */
static struct matrix scaled_dscores(const struct heads *heads, int64_t part, int worker) {
    int64_t steps = heads->steps;
    float *to = (float *)(heads->scratch + (size_t)worker * heads->scratch_bytes);
    const float *from = scores_matrix(heads, heads->op->in[1], part).data;
    float scale = 1.0f / sqrtf((float)heads->size);
    for (int64_t t = 0; t < steps; t++) {
        int64_t visible = heads->causal ? t + 1 : steps;
        for (int64_t s = 0; s < visible; s++) {
            to[t * steps + s] = from[t * steps + s] * scale;
        }
        for (int64_t s = visible; s < steps; s++) {
            to[t * steps + s] = 0.0f;
        }
    }
    return (struct matrix){to, steps, 1};
}

static void copy_values(const struct heads *heads, int64_t n, int64_t head) {
    struct matrix from = qkv_matrix(heads, heads->op->in[2], n, head, VALUE);
    struct matrix to = qkv_matrix(heads, heads->op->out[0], n, head, VALUE);
    if (from.data == to.data) {
        return;
    }
    for (int64_t t = 0; t < heads->steps; t++) {
        memmove(to.data + t * to.row, from.data + t * from.row,
                (size_t)heads->size * sizeof(float));
    }
}

static void scores_gradient_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *heads = context;
    const struct op *op = heads->op;
    int64_t n = part / heads->heads, head = part % heads->heads;
    struct matrix slopes = scaled_dscores(heads, part, worker);
    copy_values(heads, n, head);
    gemm_serial(
        heads->steps, heads->size, heads->steps, slopes, qkv_matrix(heads, op->in[0], n, head, KEY),
        qkv_matrix(heads, op->out[0], n, head, QUERY), false, product_scratch(heads, worker));
    gemm_serial(heads->steps, heads->size, heads->steps, transposed(slopes),
                qkv_matrix(heads, op->in[0], n, head, QUERY),
                qkv_matrix(heads, op->out[0], n, head, KEY), false, product_scratch(heads, worker));
}

static void scores_gradient_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, scores_gradient_head);
}

static const struct op_kind attention_scores_gradient = {"attention_scores_gradient",
                                                         scores_gradient_check, heads_workspace,
                                                         two_products_macs, scores_gradient_run};

const struct op_kind *const attention_kinds[] = {
    &attention_scores,
    &attention_values,
    &attention_values_gradient,
    &attention_scores_gradient,
    NULL,
};
