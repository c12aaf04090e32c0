/* check.h - the questions that every operation's check() asks first. */
#ifndef FARMHAND_CHECK_H
#define FARMHAND_CHECK_H

#include "../engine.h"

/* Why the operation does not have exactly these operands, none left out, and so many numbers, all
 * finite; or NULL. Operands: one letter each, f float, x index, b byte. */
const char *check_form(const struct op *op, const char *ins, const char *outs, int ints, int reals);

static inline bool same_shape(const struct tensor *a, const struct tensor *b) {
    if (a->rank != b->rank)
        return false;
    for (int axis = 0; axis < a->rank; axis++)
        if (a->dim[axis] != b->dim[axis])
            return false;
    return true;
}

#endif
