/* reductions.h - sums over contiguous values. They return one partial sum per lane, so that sums of
 * several pieces are added lane by lane and reduced once (hsum8). */
#ifndef FARMHAND_REDUCTIONS_H
#define FARMHAND_REDUCTIONS_H

#include "vector.h"

static inline v8 square8(v8 x) { return x * x; }

v8 sum_lanes(const float *x, int64_t count);
/* Sums (x - mean)^2. */
v8 squared_distance_lanes(const float *x, int64_t count, float mean);

float max_value(const float *x, int64_t count);

/* y = e^(x - max) / sum over a row; returns the sum. */
float softmax_row(const float *x, float *y, int64_t length, float max);

#endif
