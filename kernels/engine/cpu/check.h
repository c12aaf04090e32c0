/* check.h - the questions that every operation's check() asks first. */
#ifndef FARMHAND_CHECK_H
#define FARMHAND_CHECK_H

#include "../engine.h"

/* One letter for each operand: f float, x index, b byte. */
static inline const char *check_operands(const struct tensor *const *operands, const char *types) {
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

static inline int letters(const char *types) {
    int count = 0;
    while (types[count])
        count++;
    return count;
}

/* Exactly these operands and numbers, none left out; the numbers are finite. */
static inline const char *check_form(const struct op *op, const char *ins, const char *outs,
                                     int ints, int reals) {
    if (op->ins != letters(ins) || op->outs != letters(outs))
        return "has too few or too many operands";
    if (op->ints != ints || op->reals != reals)
        return "has too few or too many numbers";
    for (int n = 0; n < reals; n++)
        if (!(op->f[n] - op->f[n] == 0.0f))
            return "has a number that is not finite";
    const char *fault = check_operands(op->in, ins);
    return fault ? fault : check_operands(op->out, outs);
}

static inline bool same_shape(const struct tensor *a, const struct tensor *b) {
    if (a->rank != b->rank)
        return false;
    for (int axis = 0; axis < a->rank; axis++)
        if (a->dim[axis] != b->dim[axis])
            return false;
    return true;
}

#endif
