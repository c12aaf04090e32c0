/* launch_sequence.c - embeddings, LSTM, attention, and operations over time steps (embedding.cl,
 * lstm.cl, attention.cl).
 *
 * The one rule: a time step or a head is a place in a buffer, and its products are those of
 * launch_matmul.c, so that --kernel and a tuning file hold for them too. */
#include <math.h>

#include "launch.h"

#ifndef RUNNER_STATIC

#define SHAPE_OPS "shape_ops.cl"
#define LSTM "lstm.cl"
#define ATTENTION "attention.cl"

/* ---- embeddings and positions ---- */

static bool embedding_forward(struct launcher *to, const struct op *op) {
    const struct tensor *tokens = op->in[0], *table = op->in[1];
    int64_t width = table->dim[1];
    return LAUNCH(to, "embedding.cl", "embedding_forward", grid2(width, tokens->count),
                  INT(tokens->count), INT(table->dim[0]), INT(width), BUFFER(tokens), BUFFER(table),
                  BUFFER(op->out[0]));
}

static bool embedding_gradient_add(struct launcher *to, const struct op *op) {
    const struct tensor *tokens = op->in[0], *dtable = op->out[0];
    int64_t width = dtable->dim[1];
    return LAUNCH(to, "embedding.cl", "embedding_gradient", grid1(width), INT(tokens->count),
                  INT(dtable->dim[0]), INT(width), BUFFER(tokens), BUFFER(op->in[1]),
                  BUFFER(dtable));
}

static bool embedding_gradient(struct launcher *to, const struct op *op) {
    return launch_fill(to, op->out[0], 0.0f) && embedding_gradient_add(to, op);
}

static bool position_add(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *p = op->in[1], *y = op->out[0];
    return (in_place(x, y) || launch_accumulate(to, x, y, false)) &&
           launch_bias(to, p, y, p->count, 1);
}

static bool position_gradient(struct launcher *to, const struct op *op) {
    return launch_row_sum(to, op->in[0], op->out[0]->count, op->out[0]);
}

/* ---- time steps of (samples, steps, values) ---- */

/* The arguments of a copy between the last time steps of a sequence and rows. */
#define LAST_STEPS(sequence, rows)                                                                 \
    INT((rows)->count), INT((sequence)->dim[2]), INT((sequence)->dim[1] * (sequence)->dim[2]),     \
        INT(((sequence)->dim[1] - 1) * (sequence)->dim[2])

static bool last_moment(struct launcher *to, const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    return LAUNCH(to, SHAPE_OPS, "split_piece", grid1(y->count), LAST_STEPS(x, y), BUFFER(x),
                  BUFFER(y));
}

static bool last_moment_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dy = op->in[0], *dx = op->out[0];
    return launch_fill(to, dx, 0.0f) && LAUNCH(to, SHAPE_OPS, "concat_piece", grid1(dy->count),
                                               LAST_STEPS(dx, dy), BUFFER(dy), BUFFER(dx));
}

static bool repeat_moment(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0];
    return LAUNCH(to, SHAPE_OPS, "repeat_moment", grid1(y->count), INT(y->count), INT(y->dim[1]),
                  INT(y->dim[2]), BUFFER(op->in[0]), BUFFER(y));
}

static bool repeat_moment_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dy = op->in[0], *dx = op->out[0];
    return LAUNCH(to, SHAPE_OPS, "repeat_moment_gradient", grid1(dx->count), INT(dx->count),
                  INT(dy->dim[1]), INT(dy->dim[2]), BUFFER(dy), BUFFER(dx));
}

/* ---- LSTM ---- */

/* c (samples, columns) in a scratch slot = time step t of x, times op(w). x is (samples, steps,
 * values): y with `units` values, or gates with four times as many. */
static bool step_product(struct launcher *to, const struct tensor *x, int64_t t,
                         const struct tensor *w, bool transpose_w, int64_t columns, int slot) {
    struct matmul matmul;
    if (!matmul_of(&matmul, x, false, w, transpose_w, x, to->fault)) {
        return false;
    }
    matmul.c = SCRATCH(slot);
    matmul.m = (int32_t)x->dim[0];
    matmul.lda = (int32_t)(x->dim[1] * x->dim[2]);
    matmul.n = matmul.ldc = (int32_t)columns;
    matmul.batch = 1;
    matmul.at_a = (struct placement){(int32_t)(t * x->dim[2]), 0, 0, 1};
    matmul.at_b = matmul.at_c = (struct placement){0, 0, 0, 1};
    return launch_matmul(to, &matmul, NULL, "");
}

#define LSTM_SHAPE(y, t) INT((y)->dim[0]), INT((y)->dim[1]), INT((y)->dim[2]), INT(t)

/* x wi ws b : y gates cells */
static bool lstm_forward(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0], *gates = op->out[1];
    int64_t samples = y->dim[0], units = y->dim[2];
    bool launched = scratch(to, SLOT_C, mul_saturated(samples, 4 * units)) &&
                    launch_product(to, op->in[0], false, op->in[1], true, gates);
    for (int64_t t = 0; t < y->dim[1] && launched; t++) {
        launched = (t == 0 || step_product(to, y, t - 1, op->in[2], true, 4 * units, SLOT_C)) &&
                   LAUNCH(to, LSTM, "lstm_step", grid2(units, samples), LSTM_SHAPE(y, t),
                          BUFFER(op->in[3]), SCRATCH(SLOT_C), BUFFER(y), BUFFER(gates),
                          BUFFER(op->out[2]));
    }
    return launched;
}

/* dy gates cells ws : dgates */
static bool lstm_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dy = op->in[0], *dgates = op->out[0];
    int64_t samples = dy->dim[0], units = dy->dim[2];
    bool launched = scratch(to, SLOT_C, mul_saturated(samples, units)) &&
                    scratch(to, SLOT_D, mul_saturated(samples, units));
    for (int64_t t = dy->dim[1] - 1; t >= 0 && launched; t--) {
        launched = LAUNCH(to, LSTM, "lstm_gradient_step", grid2(units, samples), LSTM_SHAPE(dy, t),
                          BUFFER(dy), BUFFER(op->in[1]), BUFFER(op->in[2]), SCRATCH(SLOT_C),
                          SCRATCH(SLOT_D), BUFFER(dgates)) &&
                   (t == 0 || step_product(to, dgates, t, op->in[3], false, units, SLOT_C));
    }
    return launched;
}

/* x y dgates : dwi dws */
static bool lstm_weight_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->in[1], *dgates = op->in[2];
    struct matmul matmul;
    if (!launch_product(to, dgates, true, op->in[0], false, op->out[0]) ||
        !matmul_of(&matmul, dgates, true, y, false, op->out[1], to->fault)) {
        return false;
    }
    matmul.b = SCRATCH(SLOT_C);
    return scratch(to, SLOT_C, y->count) &&
           LAUNCH(to, LSTM, "previous_states", grid1(y->count), INT(y->count), INT(y->dim[1]),
                  INT(y->dim[2]), BUFFER(y), SCRATCH(SLOT_C)) &&
           launch_matmul(to, &matmul, NULL, "");
}

/* ---- attention ---- */

/* qkv is (N, T, 3F): queries, keys and values side by side. Scores are (N, HEADS, T, T). */
enum qkv_part { QUERY, KEY, VALUE };

/* One matrix per sample and head: where it is, and the length of its rows. */
struct head_matrix {
    struct arg memory;
    struct placement at;
    int64_t row;
};

struct heads {
    int64_t samples, steps, features, heads, size;
};

/* False: fault. */
static bool heads_of(struct launcher *to, const struct op *op, const struct tensor *scores,
                     struct heads *heads) {
    const struct tensor *qkv = op->in[0];
    *heads = (struct heads){.samples = qkv->dim[0],
                            .steps = qkv->dim[1],
                            .features = qkv->dim[2] / 3,
                            .heads = op->i[0],
                            .size = qkv->dim[2] / 3 / op->i[0]};
    return (qkv->count <= INT32_MAX && scores->count <= INT32_MAX) ||
           fault_set(to->fault, STATUS_UNSUPPORTED,
                     "an attention is too large for the device; use a smaller batch");
}

static struct head_matrix head_matrix(const struct heads *h, struct arg memory, int64_t first,
                                      int64_t outer, int64_t step, int64_t row) {
    const struct placement at = {(int32_t)first, (int32_t)outer, (int32_t)step, (int32_t)h->heads};
    return (struct head_matrix){memory, at, row};
}

/* (T, size) within (N, T, 3F). */
static struct head_matrix qkv_matrix(const struct heads *h, const struct tensor *qkv,
                                     enum qkv_part part) {
    int64_t row = 3 * h->features;
    return head_matrix(h, BUFFER(qkv), part * h->features, h->steps * row, h->size, row);
}

/* (T, size) within (N, T, F). */
static struct head_matrix output_matrix(const struct heads *h, const struct tensor *x) {
    return head_matrix(h, BUFFER(x), 0, h->steps * h->features, h->size, h->features);
}

/* (T, T) within (N, HEADS, T, T). */
static struct head_matrix scores_matrix(const struct heads *h, struct arg memory) {
    int64_t values = h->steps * h->steps;
    return head_matrix(h, memory, 0, h->heads * values, values, h->steps);
}

/* c = op(a) op(b) for every sample and head; c has T rows of n values. */
static bool head_products(struct launcher *to, const struct heads *h, struct head_matrix a,
                          bool transpose_a, struct head_matrix b, bool transpose_b,
                          struct head_matrix c, int64_t n, int64_t k) {
    const struct matmul matmul = {
        .a = a.memory,
        .b = b.memory,
        .c = c.memory,
        .m = (int32_t)h->steps,
        .n = (int32_t)n,
        .k = (int32_t)k,
        .lda = (int32_t)a.row,
        .ldb = (int32_t)b.row,
        .ldc = (int32_t)c.row,
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .batch = (int32_t)(h->samples * h->heads),
        .at_a = a.at,
        .at_b = b.at,
        .at_c = c.at,
    };
    return launch_matmul(to, &matmul, NULL, "");
}

static float score_scale(const struct heads *h) { return 1.0f / sqrtf((float)h->size); }

/* qkv : scores : HEADS CAUSAL */
static bool attention_scores(struct launcher *to, const struct op *op) {
    const struct tensor *qkv = op->in[0], *scores = op->out[0];
    struct heads h;
    return heads_of(to, op, scores, &h) &&
           head_products(to, &h, qkv_matrix(&h, qkv, QUERY), false, qkv_matrix(&h, qkv, KEY), true,
                         scores_matrix(&h, BUFFER(scores)), h.steps, h.size) &&
           LAUNCH(to, ATTENTION, "mask_scores", grid1(scores->count), INT(scores->count),
                  INT(h.steps), INT(op->i[1] != 0), FLOAT(score_scale(&h)), BUFFER(scores));
}

/* qkv probs : out : HEADS */
static bool attention_values(struct launcher *to, const struct op *op) {
    const struct tensor *qkv = op->in[0], *probs = op->in[1];
    struct heads h;
    return heads_of(to, op, probs, &h) &&
           head_products(to, &h, scores_matrix(&h, BUFFER(probs)), false,
                         qkv_matrix(&h, qkv, VALUE), false, output_matrix(&h, op->out[0]), h.size,
                         h.steps);
}

/* qkv probs dout : dprobs dqkv : HEADS */
static bool attention_values_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *qkv = op->in[0], *probs = op->in[1], *dout = op->in[2];
    struct heads h;
    return heads_of(to, op, probs, &h) &&
           head_products(to, &h, output_matrix(&h, dout), false, qkv_matrix(&h, qkv, VALUE), true,
                         scores_matrix(&h, BUFFER(op->out[0])), h.steps, h.size) &&
           head_products(to, &h, scores_matrix(&h, BUFFER(probs)), true, output_matrix(&h, dout),
                         false, qkv_matrix(&h, op->out[1], VALUE), h.size, h.steps);
}

/* qkv dscores dqkv : dqkv= : HEADS CAUSAL */
static bool attention_scores_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *qkv = op->in[0], *dscores = op->in[1], *dqkv = op->out[0];
    struct heads h;
    if (!heads_of(to, op, dscores, &h) || !scratch(to, SLOT_C, dscores->count) ||
        (!in_place(op->in[2], dqkv) && !launch_accumulate(to, op->in[2], dqkv, false))) {
        return false;
    }
    struct head_matrix scaled = scores_matrix(&h, SCRATCH(SLOT_C));
    return LAUNCH(to, ATTENTION, "mask_scores_gradient", grid1(dscores->count), INT(dscores->count),
                  INT(h.steps), INT(op->i[1] != 0), FLOAT(score_scale(&h)), BUFFER(dscores),
                  SCRATCH(SLOT_C)) &&
           head_products(to, &h, scaled, false, qkv_matrix(&h, qkv, KEY), false,
                         qkv_matrix(&h, dqkv, QUERY), h.size, h.steps) &&
           head_products(to, &h, scaled, true, qkv_matrix(&h, qkv, QUERY), false,
                         qkv_matrix(&h, dqkv, KEY), h.size, h.steps);
}

const struct launch_entry sequence_launches[] = {
    {"embedding_forward", embedding_forward, 0},
    {"embedding_gradient", embedding_gradient, 0},
    {"embedding_gradient_add", embedding_gradient_add, 0},
    {"position_add", position_add, 0},
    {"position_gradient", position_gradient, 0},
    {"last_moment", last_moment, 0},
    {"last_moment_gradient", last_moment_gradient, 0},
    {"repeat_moment", repeat_moment, 0},
    {"repeat_moment_gradient", repeat_moment_gradient, 0},
    {"lstm_forward", lstm_forward, 0},
    {"lstm_gradient", lstm_gradient, 0},
    {"lstm_weight_gradient", lstm_weight_gradient, 0},
    {"attention_scores", attention_scores, 0},
    {"attention_values", attention_values, 0},
    {"attention_values_gradient", attention_values_gradient, 0},
    {"attention_scores_gradient", attention_scores_gradient, 0},
    {"", NULL, 0},
};

#endif
