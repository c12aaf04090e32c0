/* ops.c - the CPU backend: all families of operations in one list, and what they share. */
#include "ops.h"

#include "parallel_for.h"

static const struct op_kind *const families[] = {
    conv_kinds,       matmul_kinds,  activation_kinds, batch_norm_kinds, batch_norm_gradient_kinds,
    layer_norm_kinds, pooling_kinds, shape_kinds,      embedding_kinds,  lstm_kinds,
    attention_kinds,  loss_kinds,    optimizer_kinds,  load_kinds,       NULL,
};

const struct backend cpu_backend = {"cpu", families};

const struct op_kind *backend_kind(const struct backend *backend, const char *name) {
    for (const struct op_kind *const *family = backend->families; *family != NULL; family++) {
        for (const struct op_kind *kind = *family; kind->name != NULL; kind++) {
            if (strcmp(kind->name, name) == 0) {
                return kind;
            }
        }
    }
    return NULL;
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
