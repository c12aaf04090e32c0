/* ops.c - the CPU backend: all families in one list, and what they share. */
#include "ops.h"
#include "check.h"
#include "spread.h"

#include <string.h>

static const struct op_kind *const *const families[] = {
    product_kinds,    activation_kinds, batch_norm_kinds, batch_norm_gradient_kinds,
    layer_norm_kinds, pooling_kinds,    plumbing_kinds,   sequence_kinds,
    loss_kinds,       update_kinds,     load_kinds,       NULL,
};

const struct backend cpu_backend = {"cpu", families};

const struct op_kind *backend_kind(const struct backend *backend, const char *name) {
    for (const struct op_kind *const *const *family = backend->families; *family; family++)
        for (const struct op_kind *const *kind = *family; *kind; kind++)
            if (strcmp((*kind)->name, name) == 0)
                return *kind;
    return NULL;
}

static const char *check_operands(const struct tensor *const *operands, const char *types) {
    for (int n = 0; types[n]; n++) {
        if (operands[n] == NULL)
            return "lacks an operand";
        enum type wanted = types[n] == 'f' ? TYPE_FLOAT : types[n] == 'x' ? TYPE_INDEX : TYPE_BYTE;
        if (operands[n]->type != wanted)
            return "has an operand of the wrong type";
        if (operands[n]->count < 1)
            return "has an operand without values";
    }
    return NULL;
}

const char *check_form(const struct op *op, const char *ins, const char *outs, int ints,
                       int reals) {
    if (op->ins != (int)strlen(ins) || op->outs != (int)strlen(outs))
        return "has too few or too many operands";
    if (op->ints != ints || op->reals != reals)
        return "has too few or too many numbers";
    for (int n = 0; n < reals; n++)
        if (!(op->f[n] - op->f[n] == 0.0f))
            return "has a number that is not finite";
    const char *fault = check_operands(op->in, ins);
    return fault ? fault : check_operands(op->out, outs);
}

int spread_parts(const struct scene *scene, int64_t most, int64_t values) {
    int threads = pool_threads(scene->pool);
    if (values < SPREAD_VALUES || threads < 2)
        return 1;
    return most < threads ? (int)most : threads;
}

void spread(const struct scene *scene, int64_t most, int64_t values, pool_work *work,
            void *context) {
    int parts = spread_parts(scene, most, values);
    if (parts == 1)
        work(context, 0, 1, 0);
    else
        pool_run(scene->pool, parts, work, context);
}

void share_of_values(int64_t count, int part, int parts, int64_t *first, int64_t *last) {
    share_of((count + 15) / 16, part, parts, first, last);
    *first *= 16;
    *last = *last * 16 < count ? *last * 16 : count;
}
