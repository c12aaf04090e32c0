/* sums.h - sums over values that lie side by side; what is left of eight lanes is the caller's. */
#ifndef FARMHAND_SUMS_H
#define FARMHAND_SUMS_H

#include "vector.h"

static inline v8 square8(v8 x) { return x * x; }

v8 sum_of(const float *x, int64_t count);
v8 squares_of(const float *x, int64_t count, float mean); /* of the distances from a mean */

#endif
