/* attention.c - multi-head attention over (N, T, 3F): scores, values, and their gradients.
 *
 *   scores = q kT / sqrt(D)      per sample and head; D = F / HEADS values per head
 *            -1e30 where CAUSAL is 1 and the key comes after the query
 *   out = probs v                probs: the softmax of scores
 *   dprobs = dout vT, dv = probsT dout
 *   dq = dscores k / sqrt(D), dk = dscoresT q / sqrt(D)
 *
 * qkv has queries, keys and values side by side. values_gradient writes the values of dqkv, and
 * scores_gradient its queries and keys.
 *
 * The one rule: a head is selected by pointer and stride, never copied, so that each product is a
 * plain call of gemm_serial(). */
#include <math.h>
#include <string.h>

#include "../thread_pool.h"
#include "gemm.h"
#include "ops.h"

static op_run attention_scores_run, attention_values_run, attention_values_gradient_run;
static op_run attention_scores_gradient_run;
static op_workspace heads_workspace;
static op_macs scores_macs, two_products_macs;
static op_check check_heads;

const struct op_kind attention_kinds[] = {
    {"attention_scores", "qkv(N,T,3*HEADS*D) : scores(N,HEADS,T,T) : HEADS CAUSAL", check_heads,
     heads_workspace, scores_macs, attention_scores_run},
    {"attention_values", "qkv(N,T,3*HEADS*D) probs(N,HEADS,T,T) : out(N,T,HEADS*D) : HEADS",
     check_heads, heads_workspace, scores_macs, attention_values_run},
    {"attention_values_gradient",
     "qkv(N,T,3*HEADS*D) probs(N,HEADS,T,T) dout(N,T,HEADS*D)"
     " : dprobs(N,HEADS,T,T) dqkv(N,T,3*HEADS*D) : HEADS",
     check_heads, heads_workspace, two_products_macs, attention_values_gradient_run},
    {"attention_scores_gradient",
     "qkv(N,T,3*HEADS*D) dscores(N,HEADS,T,T) dqkv(N,T,3*HEADS*D)"
     " : dqkv(N,T,3*HEADS*D)=dqkv : HEADS CAUSAL",
     check_heads, heads_workspace, two_products_macs, attention_scores_gradient_run},
    {.name = NULL},
};

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

/* Heads are numbered by an int. */
static const char *check_heads(const struct op *op) {
    return op->in[0]->dim[0] * op->i[0] > INT32_MAX ? "has too many heads" : NULL;
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
    return mul_saturated(heads.samples * heads.steps * heads.features, heads.steps);
}

static int64_t two_products_macs(const struct op *op) { return mul_saturated(2, scores_macs(op)); }

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

static void attention_scores_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, scores_head);
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

static void attention_values_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, values_head);
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

static void attention_values_gradient_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, values_gradient_head);
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

static void attention_scores_gradient_run(const struct op *op, struct exec_context *exec) {
    run_per_head(op, exec, scores_gradient_head);
}
