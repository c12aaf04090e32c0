/* sequences.c - embedding, LSTM and attention: products over (N, T, F), and little between them.
 *
 * The one rule: a sample, a moment or a head is chosen by pointer and stride, never by copying, so
 * that each product is a plain call of gemm.h. */
#include <math.h>
#include <string.h>

#include "../pool.h"
#include "check.h"
#include "gemm.h"
#include "ops.h"
#include "spread.h"
#include "vector.h"

static size_t lines(int64_t floats) { return (size_t)((floats + 15) / 16) * 64; }

static bool is_sequence(const struct tensor *x) { return x->rank == 3; }

static bool is_shaped(const struct tensor *x, int64_t n, int64_t t, int64_t f) {
    return is_sequence(x) && x->dim[0] == n && x->dim[1] == t && x->dim[2] == f;
}

static bool is_matrix(const struct tensor *x, int64_t rows, int64_t columns) {
    return x->rank == 2 && x->dim[0] == rows && x->dim[1] == columns;
}

/* --- embedding ----------------------------------------------------------------------------- */

/* A symbol that is not in the table is a row of zeros, and teaches nothing. */
static bool is_known(int32_t symbol, const struct tensor *table) {
    return symbol >= 0 && symbol < table->dim[0];
}

static const char *check_embedding(const struct tensor *tokens, const struct tensor *table,
                                   const struct tensor *y) {
    if (table->rank != 2)
        return "wants a table of two axes";
    int64_t count;
    if (__builtin_mul_overflow(tokens->count, table->dim[1], &count) || y->count != count)
        return "has symbols and rows that do not fit";
    return NULL;
}

static const char *embedding_check(const struct op *op) {
    const char *fault = check_form(op, "xf", "f", 0, 0);
    return fault ? fault : check_embedding(op->in[0], op->in[1], op->out[0]);
}

static void embedding_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *table = op->in[1];
    int64_t first, last, width = table->dim[1];
    size_t bytes = (size_t)width * sizeof(float);
    share_of(op->in[0]->count, part, parts, &first, &last);
    for (int64_t at = first; at < last; at++) {
        int32_t symbol = indices(op->in[0])[at];
        float *to = floats(op->out[0]) + at * width;
        if (is_known(symbol, table))
            memcpy(to, floats(table) + symbol * width, bytes);
        else
            memset(to, 0, bytes);
    }
}

static void embedding_run(const struct op *op, struct scene *scene) {
    spread(scene, op->in[0]->count, op->out[0]->count, embedding_part, (void *)op);
}

static const struct op_kind embedding_forward = {"embedding_forward", embedding_check, NULL, NULL,
                                                 embedding_run};

static const char *embedding_gradient_check(const struct op *op) {
    const char *fault = check_form(op, "xf", "f", 0, 0);
    return fault ? fault : check_embedding(op->in[0], op->out[0], op->in[1]);
}

/* Threads share the columns, not the symbols, since a symbol may come twice. */
static void embedding_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *table = op->out[0];
    int64_t first, last, width = table->dim[1];
    share_of_values(width, part, parts, &first, &last);
    if (first >= last)
        return;
    for (int64_t row = 0; row < table->dim[0]; row++)
        memset(floats(table) + row * width + first, 0, (size_t)(last - first) * sizeof(float));
    for (int64_t at = 0; at < op->in[0]->count; at++) {
        int32_t symbol = indices(op->in[0])[at];
        if (!is_known(symbol, table))
            continue;
        const float *from = floats(op->in[1]) + at * width;
        float *to = floats(table) + symbol * width;
        for (int64_t column = first; column < last; column++)
            to[column] += from[column];
    }
}

static void embedding_gradient_run(const struct op *op, struct scene *scene) {
    int64_t width = op->out[0]->dim[1];
    spread(scene, (width + 15) / 16, op->in[1]->count + op->out[0]->count, embedding_gradient_part,
           (void *)op);
}

static const struct op_kind embedding_gradient = {
    "embedding_gradient", embedding_gradient_check, NULL, NULL, embedding_gradient_run};

/* --- LSTM ---------------------------------------------------------------------------------- */

/* One moment of all samples: (N, width) within (N, T, width). */
static struct matrix moment(const struct tensor *x, int64_t t) {
    return (struct matrix){floats(x) + t * x->dim[2], x->dim[1] * x->dim[2], 1};
}

static struct matrix plain(const struct tensor *x) {
    int64_t width = x->dim[x->rank - 1];
    return (struct matrix){floats(x), width, 1};
}

static struct matrix turned(struct matrix x) { return (struct matrix){x.data, x.column, x.row}; }

static const char *check_lstm(const struct tensor *y, const struct tensor *gates) {
    if (!is_sequence(y) || !is_sequence(gates))
        return "wants sequences of three axes";
    if (y->dim[2] > INT32_MAX || !is_shaped(gates, y->dim[0], y->dim[1], 4 * y->dim[2]))
        return "has gates that do not fit";
    if (!product_fits(y->count, 4 * y->dim[2], 2))
        return "is too large";
    return NULL;
}

/* x wi ws b : y gates cells */
static const char *lstm_check(const struct op *op) {
    const char *fault = check_form(op, "ffff", "fff", 0, 0);
    if (!fault)
        fault = check_lstm(op->out[0], op->out[1]);
    if (fault)
        return fault;
    const struct tensor *x = op->in[0], *y = op->out[0];
    int64_t units = y->dim[2];
    if (!is_sequence(x) || x->dim[0] != y->dim[0] || x->dim[1] != y->dim[1])
        return "has an input that does not fit";
    if (!is_matrix(op->in[1], 4 * units, x->dim[2]) || !is_matrix(op->in[2], 4 * units, units) ||
        op->in[3]->count != 4 * units)
        return "has a weight that does not fit";
    if (!same_shape(op->out[2], y))
        return "has cells that do not fit";
    return product_fits(x->count, 4 * units, 2) ? NULL : "is too large";
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t lstm_workspace(const struct op *op, int threads) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    int64_t units = y->dim[2];
    return larger(gemm_workspace(x->dim[0] * x->dim[1], 4 * units, x->dim[2], threads),
                  gemm_workspace(x->dim[0], 4 * units, units, threads));
}

static int64_t lstm_macs(const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    return x->dim[0] * x->dim[1] * 4 * y->dim[2] * (x->dim[2] + y->dim[2]);
}

/* A step through time is cut by units, the same way in every moment. */
struct stride_in_time {
    const struct op *op;
    int64_t t;
    float *dh, *dc; /* (N, H): what comes back from the moment after */
};

static void fill_bias(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *gates = op->out[1];
    int64_t width = gates->dim[2], first, last;
    share_of(gates->dim[0] * gates->dim[1], part, parts, &first, &last);
    for (int64_t row = first; row < last; row++)
        memcpy(floats(gates) + row * width, floats(op->in[3]), (size_t)width * sizeof(float));
}

struct cell {
    v8 in, forget, fresh, out, state;
};

static struct cell open_gates(struct cell before, v8 state) {
    struct cell cell = {sigmoid8(before.in), sigmoid8(before.forget), tanh8(before.fresh),
                        sigmoid8(before.out), state};
    cell.state = cell.forget * state + cell.in * cell.fresh;
    return cell;
}

static void lstm_moment(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct stride_in_time *now = context;
    const struct tensor *y = now->op->out[0], *gates = now->op->out[1], *cells = now->op->out[2];
    int64_t units = y->dim[2], first, last;
    share_of(y->dim[0], part, parts, &first, &last);
    for (int64_t n = first; n < last; n++) {
        int64_t row = n * y->dim[1] + now->t;
        float *gate = floats(gates) + row * 4 * units, *state = floats(cells) + row * units;
        float *out = floats(y) + row * units;
        for (int64_t u = 0; u < units; u += LANES) {
            int64_t count = units - u < LANES ? units - u : LANES;
            v8 part_of[4], old = all8(0.0f);
            for (int g = 0; g < 4; g++)
                part_of[g] = load8_up_to(gate + g * units + u, count);
            if (now->t > 0)
                old = load8_up_to(state - units + u, count);
            struct cell cell = open_gates(
                (struct cell){part_of[0], part_of[1], part_of[2], part_of[3], old}, old);
            store8_up_to(gate + u, cell.in, count);
            store8_up_to(gate + units + u, cell.forget, count);
            store8_up_to(gate + 2 * units + u, cell.fresh, count);
            store8_up_to(gate + 3 * units + u, cell.out, count);
            store8_up_to(state + u, cell.state, count);
            store8_up_to(out + u, cell.out * tanh8(cell.state), count);
        }
    }
}

static void lstm_run(const struct op *op, struct scene *scene) {
    const struct tensor *x = op->in[0], *y = op->out[0], *gates = op->out[1];
    int64_t units = y->dim[2], rows = x->dim[0] * x->dim[1];
    spread(scene, rows, gates->count, fill_bias, (void *)op);
    gemm(scene->pool, rows, 4 * units, x->dim[2], plain(x), turned(plain(op->in[1])), plain(gates),
         true, scene->workspace);
    for (int64_t t = 0; t < y->dim[1]; t++) {
        if (t > 0)
            gemm(scene->pool, y->dim[0], 4 * units, units, moment(y, t - 1),
                 turned(plain(op->in[2])), moment(gates, t), true, scene->workspace);
        struct stride_in_time now = {op, t, NULL, NULL};
        spread(scene, y->dim[0], 32 * y->dim[0] * units, lstm_moment, &now);
    }
}

static const struct op_kind lstm_forward = {"lstm_forward", lstm_check, lstm_workspace, lstm_macs,
                                            lstm_run};

/* dy gates cells ws : dgates */
static const char *lstm_gradient_check(const struct op *op) {
    const char *fault = check_form(op, "ffff", "f", 0, 0);
    if (!fault)
        fault = check_lstm(op->in[0], op->in[1]);
    if (fault)
        return fault;
    int64_t units = op->in[0]->dim[2];
    if (!same_shape(op->in[2], op->in[0]))
        return "has cells that do not fit";
    if (!is_matrix(op->in[3], 4 * units, units))
        return "has a weight that does not fit";
    return same_shape(op->out[0], op->in[1]) ? NULL : "has an output that does not fit";
}

static size_t lstm_gradient_workspace(const struct op *op, int threads) {
    const struct tensor *dy = op->in[0];
    return 2 * lines(dy->dim[0] * dy->dim[2]) +
           gemm_workspace(dy->dim[0], dy->dim[2], 4 * dy->dim[2], threads);
}

static int64_t lstm_gradient_macs(const struct op *op) {
    return op->in[0]->count * 4 * op->in[0]->dim[2];
}

static void lstm_gradient_moment(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct stride_in_time *now = context;
    const struct op *op = now->op;
    const struct tensor *dy = op->in[0];
    int64_t units = dy->dim[2], first, last;
    share_of(dy->dim[0], part, parts, &first, &last);
    for (int64_t n = first; n < last; n++) {
        int64_t row = n * dy->dim[1] + now->t;
        const float *gate = floats(op->in[1]) + row * 4 * units;
        const float *state = floats(op->in[2]) + row * units, *slope = floats(dy) + row * units;
        float *dgate = floats(op->out[0]) + row * 4 * units;
        float *dh = now->dh + n * units, *dc = now->dc + n * units;
        for (int64_t u = 0; u < units; u += LANES) {
            int64_t count = units - u < LANES ? units - u : LANES;
            v8 in = load8_up_to(gate + u, count);
            v8 forget = load8_up_to(gate + units + u, count);
            v8 fresh = load8_up_to(gate + 2 * units + u, count);
            v8 out = load8_up_to(gate + 3 * units + u, count);
            v8 old = now->t > 0 ? load8_up_to(state - units + u, count) : all8(0.0f);
            v8 bent = tanh8(load8_up_to(state + u, count));
            v8 h = load8_up_to(slope + u, count) + load8_up_to(dh + u, count);
            v8 c = load8_up_to(dc + u, count) + h * out * (1.0f - bent * bent);
            store8_up_to(dgate + u, c * fresh * in * (1.0f - in), count);
            store8_up_to(dgate + units + u, c * old * forget * (1.0f - forget), count);
            store8_up_to(dgate + 2 * units + u, c * in * (1.0f - fresh * fresh), count);
            store8_up_to(dgate + 3 * units + u, h * bent * out * (1.0f - out), count);
            store8_up_to(dc + u, c * forget, count);
        }
    }
}

static void lstm_gradient_run(const struct op *op, struct scene *scene) {
    const struct tensor *dy = op->in[0];
    int64_t samples = dy->dim[0], units = dy->dim[2];
    size_t bytes = lines(samples * units);
    struct stride_in_time now = {op, 0, scene->workspace,
                                 (float *)((char *)scene->workspace + bytes)};
    void *rest = (char *)scene->workspace + 2 * bytes;
    memset(scene->workspace, 0, 2 * bytes);
    for (now.t = dy->dim[1] - 1; now.t >= 0; now.t--) {
        spread(scene, samples, 32 * samples * units, lstm_gradient_moment, &now);
        if (now.t > 0)
            gemm(scene->pool, samples, units, 4 * units, moment(op->out[0], now.t),
                 plain(op->in[3]), (struct matrix){now.dh, units, 1}, false, rest);
    }
}

static const struct op_kind lstm_gradient = {"lstm_gradient", lstm_gradient_check,
                                             lstm_gradient_workspace, lstm_gradient_macs,
                                             lstm_gradient_run};

/* x y dgates : dwi dws */
static const char *lstm_weight_check(const struct op *op) {
    const char *fault = check_form(op, "fff", "ff", 0, 0);
    if (!fault)
        fault = check_lstm(op->in[1], op->in[2]);
    if (fault)
        return fault;
    const struct tensor *x = op->in[0], *y = op->in[1];
    int64_t units = y->dim[2];
    if (!is_sequence(x) || x->dim[0] != y->dim[0] || x->dim[1] != y->dim[1])
        return "has an input that does not fit";
    if (!is_matrix(op->out[0], 4 * units, x->dim[2]) || !is_matrix(op->out[1], 4 * units, units))
        return "has a weight that does not fit";
    return product_fits(x->count, 4 * units, 2) ? NULL : "is too large";
}

/* State by state the gates of a moment meet the output of the moment before; either all moments of
 * one sample are summed at once, or all samples of one moment, whichever are more. */
static bool goes_by_sample(const struct tensor *y) { return y->dim[0] <= y->dim[1] - 1; }

static size_t lstm_weight_workspace(const struct op *op, int threads) {
    const struct tensor *x = op->in[0], *y = op->in[1];
    int64_t units = y->dim[2];
    int64_t depth = goes_by_sample(y) ? y->dim[1] - 1 : y->dim[0];
    return larger(gemm_workspace(4 * units, x->dim[2], x->dim[0] * x->dim[1], threads),
                  gemm_workspace(4 * units, units, depth, threads));
}

static int64_t lstm_weight_macs(const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->in[1];
    return x->dim[0] * x->dim[1] * 4 * y->dim[2] * (x->dim[2] + y->dim[2]);
}

static void lstm_weight_run(const struct op *op, struct scene *scene) {
    const struct tensor *x = op->in[0], *y = op->in[1], *dgates = op->in[2];
    int64_t samples = y->dim[0], moments = y->dim[1], units = y->dim[2];
    gemm(scene->pool, 4 * units, x->dim[2], samples * moments, turned(plain(dgates)), plain(x),
         plain(op->out[0]), false, scene->workspace);
    if (moments == 1)
        memset(floats(op->out[1]), 0, (size_t)op->out[1]->count * sizeof(float));
    else if (goes_by_sample(y))
        for (int64_t n = 0; n < samples; n++) {
            struct matrix later = {floats(dgates) + (n * moments + 1) * 4 * units, 1, 4 * units};
            struct matrix before = {floats(y) + n * moments * units, units, 1};
            gemm(scene->pool, 4 * units, units, moments - 1, later, before, plain(op->out[1]),
                 n > 0, scene->workspace);
        }
    else
        for (int64_t t = 1; t < moments; t++)
            gemm(scene->pool, 4 * units, units, samples, turned(moment(dgates, t)),
                 moment(y, t - 1), plain(op->out[1]), t > 1, scene->workspace);
}

static const struct op_kind lstm_weight_gradient = {"lstm_weight_gradient", lstm_weight_check,
                                                    lstm_weight_workspace, lstm_weight_macs,
                                                    lstm_weight_run};

/* --- attention ----------------------------------------------------------------------------- */

/* What one head of one sample works on. qkv is (N, T, 3F): queries, keys, values. */
struct heads {
    const struct op *op;
    int64_t samples, moments, features, heads, size;
    bool causal;
    char *scratch;
    size_t scratch_bytes;
};

static struct heads heads_of(const struct op *op, const struct tensor *qkv) {
    struct heads all = {.op = op, .samples = qkv->dim[0], .moments = qkv->dim[1],
                        .features = qkv->dim[2] / 3, .heads = op->i[0],
                        .causal = op->ints > 1 && op->i[1] != 0};
    all.size = all.features / all.heads;
    return all;
}

enum third { QUERY, KEY, VALUE };

/* (T, size) within (N, T, 3F). */
static struct matrix third_of(const struct heads *all, const struct tensor *qkv, int64_t n,
                              int64_t head, enum third third) {
    int64_t row = 3 * all->features;
    return (struct matrix){floats(qkv) + n * all->moments * row + third * all->features +
                               head * all->size,
                           row, 1};
}

/* (T, size) within (N, T, F). */
static struct matrix mixed_of(const struct heads *all, const struct tensor *x, int64_t n,
                              int64_t head) {
    return (struct matrix){floats(x) + n * all->moments * all->features + head * all->size,
                           all->features, 1};
}

/* (T, T) within (N, HEADS, T, T). */
static struct matrix pairs_of(const struct heads *all, const struct tensor *x, int64_t number) {
    return (struct matrix){floats(x) + number * all->moments * all->moments, all->moments, 1};
}

static const char *check_heads(const struct op *op, const struct tensor *qkv,
                               const struct tensor *pairs) {
    if (!is_sequence(qkv) || qkv->dim[2] % 3)
        return "wants queries, keys and values side by side";
    if (op->i[0] < 1 || qkv->dim[2] / 3 % op->i[0])
        return "has heads that do not divide the features";
    if (pairs->rank != 4 || pairs->dim[0] != qkv->dim[0] || pairs->dim[1] != op->i[0] ||
        pairs->dim[2] != qkv->dim[1] || pairs->dim[3] != qkv->dim[1])
        return "has scores that do not fit";
    if (!product_fits(qkv->count, qkv->dim[1], 2) || pairs->dim[0] * pairs->dim[1] > INT32_MAX)
        return "is too large";
    return NULL;
}

static size_t head_scratch(const struct heads *all) {
    size_t product = larger(gemm_alone_workspace(all->moments, all->moments, all->size),
                            gemm_alone_workspace(all->moments, all->size, all->moments));
    return lines(all->moments * all->moments) + ((product + 63) & ~(size_t)63);
}

static size_t heads_workspace(const struct op *op, int threads) {
    struct heads all = heads_of(op, op->in[0]);
    return (size_t)threads * head_scratch(&all);
}

static void each_head(const struct op *op, struct scene *scene, pool_work *work) {
    struct heads all = heads_of(op, op->in[0]);
    all.scratch = scene->workspace;
    all.scratch_bytes = head_scratch(&all);
    pool_run(scene->pool, (int)(all.samples * all.heads), work, &all);
}

static void *product_scratch(const struct heads *all, int worker) {
    return all->scratch + (size_t)worker * all->scratch_bytes + lines(all->moments * all->moments);
}

static int64_t pairs_macs(const struct op *op) {
    struct heads all = heads_of(op, op->in[0]);
    return all.samples * all.moments * all.moments * all.features;
}

static int64_t two_pairs_macs(const struct op *op) { return 2 * pairs_macs(op); }

/* qkv : scores : HEADS CAUSAL */
static const char *scores_check(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 2, 0);
    return fault ? fault : check_heads(op, op->in[0], op->out[0]);
}

static void scores_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *all = context;
    int64_t n = part / all->heads, head = part % all->heads, moments = all->moments;
    const struct tensor *qkv = all->op->in[0];
    struct matrix scores = pairs_of(all, all->op->out[0], part);
    gemm_alone(moments, moments, all->size, third_of(all, qkv, n, head, QUERY),
               turned(third_of(all, qkv, n, head, KEY)), scores, false,
               product_scratch(all, worker));
    float scale = 1.0f / sqrtf((float)all->size);
    for (int64_t t = 0; t < moments; t++) {
        float *row = scores.data + t * moments;
        int64_t seen = all->causal ? t + 1 : moments;
        for (int64_t s = 0; s < seen; s++)
            row[s] *= scale;
        for (int64_t s = seen; s < moments; s++)
            row[s] = -1e30f;
    }
}

static void scores_run(const struct op *op, struct scene *scene) {
    each_head(op, scene, scores_head);
}

static const struct op_kind attention_scores = {"attention_scores", scores_check, heads_workspace,
                                                pairs_macs, scores_run};

/* qkv shares : out : HEADS */
static const char *values_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 1, 0);
    if (!fault)
        fault = check_heads(op, op->in[0], op->in[1]);
    const struct tensor *qkv = op->in[0];
    if (!fault && !is_shaped(op->out[0], qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3))
        fault = "has an output that does not fit";
    return fault;
}

static void values_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *all = context;
    int64_t n = part / all->heads, head = part % all->heads;
    gemm_alone(all->moments, all->size, all->moments, pairs_of(all, all->op->in[1], part),
               third_of(all, all->op->in[0], n, head, VALUE),
               mixed_of(all, all->op->out[0], n, head), false, product_scratch(all, worker));
}

static void values_run(const struct op *op, struct scene *scene) {
    each_head(op, scene, values_head);
}

static const struct op_kind attention_values = {"attention_values", values_check, heads_workspace,
                                                pairs_macs, values_run};

/* qkv shares dout : dshares dqkv : HEADS */
static const char *values_gradient_check(const struct op *op) {
    const char *fault = check_form(op, "fff", "ff", 1, 0);
    if (!fault)
        fault = check_heads(op, op->in[0], op->in[1]);
    const struct tensor *qkv = op->in[0];
    if (!fault && !is_shaped(op->in[2], qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3))
        fault = "has a gradient that does not fit";
    if (!fault && (!same_shape(op->out[0], op->in[1]) || !same_shape(op->out[1], qkv)))
        fault = "has an output that does not fit";
    return fault;
}

static void values_gradient_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *all = context;
    const struct op *op = all->op;
    int64_t n = part / all->heads, head = part % all->heads;
    struct matrix dout = mixed_of(all, op->in[2], n, head);
    gemm_alone(all->moments, all->moments, all->size, dout,
               turned(third_of(all, op->in[0], n, head, VALUE)), pairs_of(all, op->out[0], part),
               false, product_scratch(all, worker));
    gemm_alone(all->moments, all->size, all->moments, turned(pairs_of(all, op->in[1], part)), dout,
               third_of(all, op->out[1], n, head, VALUE), false, product_scratch(all, worker));
}

static void values_gradient_run(const struct op *op, struct scene *scene) {
    each_head(op, scene, values_gradient_head);
}

static const struct op_kind attention_values_gradient = {
    "attention_values_gradient", values_gradient_check, heads_workspace, two_pairs_macs,
    values_gradient_run};

/* qkv dscores dqkv : dqkv= : HEADS CAUSAL */
static const char *scores_gradient_check(const struct op *op) {
    const char *fault = check_form(op, "fff", "f", 2, 0);
    if (!fault)
        fault = check_heads(op, op->in[0], op->in[1]);
    if (!fault && (!same_shape(op->in[2], op->in[0]) || !same_shape(op->out[0], op->in[0])))
        fault = "has an output that does not fit";
    return fault;
}

/* The slopes of what may be seen, scaled; the rest is zero. */
static struct matrix scaled_slopes(const struct heads *all, int64_t part, int worker) {
    int64_t moments = all->moments;
    float *to = (float *)(all->scratch + (size_t)worker * all->scratch_bytes);
    const float *from = pairs_of(all, all->op->in[1], part).data;
    float scale = 1.0f / sqrtf((float)all->size);
    for (int64_t t = 0; t < moments; t++) {
        int64_t seen = all->causal ? t + 1 : moments;
        for (int64_t s = 0; s < seen; s++)
            to[t * moments + s] = from[t * moments + s] * scale;
        for (int64_t s = seen; s < moments; s++)
            to[t * moments + s] = 0.0f;
    }
    return (struct matrix){to, moments, 1};
}

static void keep_values(const struct heads *all, int64_t n, int64_t head) {
    struct matrix from = third_of(all, all->op->in[2], n, head, VALUE);
    struct matrix to = third_of(all, all->op->out[0], n, head, VALUE);
    if (from.data == to.data)
        return;
    for (int64_t t = 0; t < all->moments; t++)
        memmove(to.data + t * to.row, from.data + t * from.row, (size_t)all->size * sizeof(float));
}

static void scores_gradient_head(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct heads *all = context;
    const struct op *op = all->op;
    int64_t n = part / all->heads, head = part % all->heads;
    struct matrix slopes = scaled_slopes(all, part, worker);
    keep_values(all, n, head);
    gemm_alone(all->moments, all->size, all->moments, slopes,
               third_of(all, op->in[0], n, head, KEY), third_of(all, op->out[0], n, head, QUERY),
               false, product_scratch(all, worker));
    gemm_alone(all->moments, all->size, all->moments, turned(slopes),
               third_of(all, op->in[0], n, head, QUERY), third_of(all, op->out[0], n, head, KEY),
               false, product_scratch(all, worker));
}

static void scores_gradient_run(const struct op *op, struct scene *scene) {
    each_head(op, scene, scores_gradient_head);
}

static const struct op_kind attention_scores_gradient = {
    "attention_scores_gradient", scores_gradient_check, heads_workspace, two_pairs_macs,
    scores_gradient_run};

const struct op_kind *const sequence_kinds[] = {
    &embedding_forward,
    &embedding_gradient,
    &lstm_forward,
    &lstm_gradient,
    &lstm_weight_gradient,
    &attention_scores,
    &attention_values,
    &attention_values_gradient,
    &attention_scores_gradient,
    NULL,
};
