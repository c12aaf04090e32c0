/* embedding.c - embedding: looks up a row of a table per symbol, and the gradient of the table. */
#include <string.h>

#include "check.h"
#include "ops.h"
#include "parallel_for.h"

/* A symbol outside the table becomes a row of zeros and has no gradient. */
static bool is_known(int32_t symbol, const struct tensor *table) {
    return symbol >= 0 && symbol < table->dim[0];
}

static const char *check_embedding(const struct tensor *tokens, const struct tensor *table,
                                   const struct tensor *y) {
    if (table->rank != 2) {
        return "needs a table with two axes";
    }
    int64_t count;
    if (__builtin_mul_overflow(tokens->count, table->dim[1], &count) || y->count != count) {
        return "has an output that is not one row per symbol";
    }
    return NULL;
}

static const char *embedding_check(const struct op *op) {
    const char *fault = check_signature(op, "xf", "f", 0, 0);
    return fault ? fault : check_embedding(op->in[0], op->in[1], op->out[0]);
}

static void embedding_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *table = op->in[1];
    int64_t first, last, width = table->dim[1];
    size_t bytes = (size_t)width * sizeof(float);
    split_range(op->in[0]->count, part, parts, &first, &last);
    for (int64_t at = first; at < last; at++) {
        int32_t symbol = indices(op->in[0])[at];
        float *to = floats(op->out[0]) + at * width;
        if (is_known(symbol, table)) {
            memcpy(to, floats(table) + symbol * width, bytes);
        } else {
            memset(to, 0, bytes);
        }
    }
}

static void embedding_run(const struct op *op, struct exec_context *exec) {
    parallel_for(exec, op->in[0]->count, op->out[0]->count, embedding_part, (void *)op);
}

static const struct op_kind embedding_forward = {"embedding_forward", embedding_check, NULL, NULL,
                                                 embedding_run};

static const char *embedding_gradient_check(const struct op *op) {
    const char *fault = check_signature(op, "xf", "f", 0, 0);
    return fault ? fault : check_embedding(op->in[0], op->out[0], op->in[1]);
}

static const char *embedding_gradient_add_check(const struct op *op) {
    const char *fault = check_signature(op, "xff", "f", 0, 0);
    if (!fault && (!same_memory(op->in[2], op->out[0]) || !same_shape(op->in[2], op->out[0]))) {
        fault = "must add in place";
    }
    return fault ? fault : check_embedding(op->in[0], op->out[0], op->in[1]);
}

/* Threads split the columns, not the symbols, since a symbol may occur twice. */
static void embedding_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    bool adds = op->ins == 3;
    const struct tensor *table = op->out[0];
    int64_t first, last, width = table->dim[1];
    split_range_by_cache_line(width, part, parts, &first, &last);
    if (first >= last) {
        return;
    }
    for (int64_t row = 0; row < table->dim[0] && !adds; row++) {
        memset(floats(table) + row * width + first, 0, (size_t)(last - first) * sizeof(float));
    }
    for (int64_t at = 0; at < op->in[0]->count; at++) {
        int32_t symbol = indices(op->in[0])[at];
        if (!is_known(symbol, table)) {
            continue;
        }
        const float *from = floats(op->in[1]) + at * width;
        float *to = floats(table) + symbol * width;
        for (int64_t column = first; column < last; column++) {
            to[column] += from[column];
        }
    }
}

static void embedding_gradient_run(const struct op *op, struct exec_context *exec) {
    int64_t width = op->out[0]->dim[1];
    parallel_for(exec, div_up(width, CACHE_LINE_FLOATS), op->in[1]->count + op->out[0]->count,
                 embedding_gradient_part, (void *)op);
}

static const struct op_kind embedding_gradient = {"embedding_gradient", embedding_gradient_check,
                                                  NULL, NULL, embedding_gradient_run};

static const struct op_kind embedding_gradient_add = {
    "embedding_gradient_add", embedding_gradient_add_check, NULL, NULL, embedding_gradient_run};

const struct op_kind *const embedding_kinds[] = {
    &embedding_forward,
    &embedding_gradient,
    &embedding_gradient_add,
    NULL,
};
