/* ops.c - the CPU backend: all families in one list. */
#include "ops.h"

#include <string.h>

static const struct op_kind *const *const families[] = {
    product_kinds,  activation_kinds, norm_kinds,   pooling_kinds, plumbing_kinds,
    sequence_kinds, loss_kinds,       update_kinds, load_kinds,    NULL,
};

const struct backend cpu_backend = {"cpu", families};

const struct op_kind *backend_kind(const struct backend *backend, const char *name) {
    for (const struct op_kind *const *const *family = backend->families; *family; family++)
        for (const struct op_kind *const *kind = *family; *kind; kind++)
            if (strcmp((*kind)->name, name) == 0)
                return *kind;
    return NULL;
}
