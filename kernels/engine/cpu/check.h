/* check.h - what the check() of every operation begins with. */
#ifndef FARMHAND_CHECK_H
#define FARMHAND_CHECK_H

#include "../engine.h"

/* Why the operation does not have exactly these operands, none left out, and this number of integer
 * and float parameters, all finite; or NULL. One letter per operand: f float, x index, b byte. */
const char *check_signature(const struct op *op, const char *ins, const char *outs, int ints,
                            int reals);

/* The same for operations with an optional bias (x w b? : y). */
const char *check_signature_with_bias(const struct op *op, int ints);
static inline bool has_bias(const struct op *op) { return op->ins == 3 && op->in[2] != NULL; }

static inline bool same_shape(const struct tensor *a, const struct tensor *b) {
    if (a->rank != b->rank) {
        return false;
    }
    for (int axis = 0; axis < a->rank; axis++) {
        if (a->dim[axis] != b->dim[axis]) {
            return false;
        }
    }
    return true;
}

static inline bool same_memory(const struct tensor *a, const struct tensor *b) {
    return a->arena == b->arena && a->offset == b->offset;
}

static inline bool is_matrix(const struct tensor *x, int64_t rows, int64_t columns) {
    return x->rank == 2 && x->dim[0] == rows && x->dim[1] == columns;
}

/* (N, T, F). */
static inline bool is_sequence(const struct tensor *x) { return x->rank == 3; }

static inline bool has_shape(const struct tensor *x, int64_t n, int64_t t, int64_t f) {
    return is_sequence(x) && x->dim[0] == n && x->dim[1] == t && x->dim[2] == f;
}

static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

#endif
