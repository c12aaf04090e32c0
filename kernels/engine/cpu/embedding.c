/* embedding.c - embedding: looks up a row of a table per symbol, and the gradient of the table.
 *
 *   y[n] = table[tokens[n]], dtable[v] = the sum of dy[n] where tokens[n] = v
 *   embedding_gradient_add adds to the dtable that is there */
#include <string.h>

#include "ops.h"
#include "parallel_for.h"

static op_run embedding_forward_run, embedding_gradient_run;
static op_check check_in_place;

const struct op_kind embedding_kinds[] = {
    {"embedding_forward", "tokens[N] table(V,F) : y[N*F]", .run = embedding_forward_run},
    {"embedding_gradient", "tokens[N] dy[N*F] : dtable(V,F)", .run = embedding_gradient_run},
    {"embedding_gradient_add", "tokens[N] dy[N*F] dtable(V,F) : dtable(V,F)=dtable", check_in_place,
     .run = embedding_gradient_run},
    {.name = NULL},
};

/* A symbol outside the table becomes a row of zeros and has no gradient. */
static bool is_known(int32_t symbol, const struct tensor *table) {
    return symbol >= 0 && symbol < table->dim[0];
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

static void embedding_forward_run(const struct op *op, struct exec_context *exec) {
    parallel_for(exec, op->in[0]->count, op->out[0]->count, embedding_part, (void *)op);
}

static const char *check_in_place(const struct op *op) {
    const struct tensor *old = op->in[2], *sum = op->out[0];
    return old->arena == sum->arena && old->offset == sum->offset ? NULL : "must add in place";
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
