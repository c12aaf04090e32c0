/* ops.c - the CPU backend: all families of operations in one list, and what they share. */
#include "ops.h"

#include "check.h"
#include "parallel_for.h"

static const struct op_kind *const *const families[] = {
    matmul_kinds,     activation_kinds,
    batch_norm_kinds, batch_norm_gradient_kinds,
    layer_norm_kinds, pooling_kinds,
    shape_kinds,      embedding_kinds,
    lstm_kinds,       attention_kinds,
    loss_kinds,       optimizer_kinds,
    load_kinds,       NULL,
};

const struct backend cpu_backend = {"cpu", families};

const struct op_kind *backend_kind(const struct backend *backend, const char *name) {
    for (const struct op_kind *const *const *family = backend->families; *family; family++) {
        for (const struct op_kind *const *kind = *family; *kind; kind++) {
            if (strcmp((*kind)->name, name) == 0) {
                return *kind;
            }
        }
    }
    return NULL;
}

static const char *check_types(const struct tensor *const *operands, const char *types) {
    for (int n = 0; types[n]; n++) {
        if (operands[n] == NULL) {
            return "lacks an operand";
        }
        enum type expected = types[n] == 'f'   ? TYPE_FLOAT
                             : types[n] == 'x' ? TYPE_INDEX
                                               : TYPE_BYTE;
        if (operands[n]->type != expected) {
            return "has an operand of the wrong type";
        }
        if (operands[n]->count < 1) {
            return "has an operand without values";
        }
    }
    return NULL;
}

const char *check_signature(const struct op *op, const char *ins, const char *outs, int ints,
                            int reals) {
    if (op->ins != (int)strlen(ins) || op->outs != (int)strlen(outs)) {
        return "has the wrong number of operands";
    }
    if (op->ints != ints || op->reals != reals) {
        return "has the wrong number of parameters";
    }
    for (int n = 0; n < reals; n++) {
        if (!(op->f[n] - op->f[n] == 0.0f)) {
            return "has a parameter that is not finite";
        }
    }
    const char *fault = check_types(op->in, ins);
    return fault ? fault : check_types(op->out, outs);
}

const char *check_signature_with_bias(const struct op *op, int ints) {
    struct op present = *op; /* without an absent bias */
    if (op->ins == 3 && !has_bias(op)) {
        present.ins = 2;
    }
    return check_signature(&present, has_bias(op) ? "fff" : "ff", "f", ints, 0);
}

int parallel_for_parts(const struct exec_context *exec, int64_t max_parts, int64_t values) {
    int threads = thread_pool_size(exec->pool);
    if (values < PARALLEL_MIN_VALUES || threads < 2) {
        return 1;
    }
    int64_t parts = max_i64(threads, values / PART_MIN_VALUES);
    return thread_pool_parts(exec->pool, min_i64(max_parts, parts));
}

void parallel_for(const struct exec_context *exec, int64_t max_parts, int64_t values,
                  thread_pool_task *task, void *context) {
    int parts = parallel_for_parts(exec, max_parts, values);
    if (parts == 1) {
        task(context, 0, 1, 0);
    } else {
        thread_pool_run(exec->pool, parts, task, context);
    }
}

void split_range_by_cache_line(int64_t count, int part, int parts, int64_t *first, int64_t *last) {
    split_range(div_up(count, CACHE_LINE_FLOATS), part, parts, first, last);
    *first *= CACHE_LINE_FLOATS;
    *last = min_i64(*last * CACHE_LINE_FLOATS, count);
}
