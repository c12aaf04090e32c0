/* spread.h - work over memory, spread over the threads where that pays.
 *
 * Waking the others costs some microseconds, in which one core moves a few ten thousand bytes; less
 * work than that stays on the calling thread. The cut depends on sizes and thread count alone, so
 * a sum has the same rounding in every run. */
#ifndef FARMHAND_SPREAD_H
#define FARMHAND_SPREAD_H

#include "../engine.h"
#include "../pool.h"

enum { SPREAD_VALUES = 16384 }; /* fewer, read or written, are not worth waking for */

/* Runs work over at most `most` parts; values: about how many are touched in all. spread_parts says
 * how many parts that will be. */
int spread_parts(const struct scene *scene, int64_t most, int64_t values);
void spread(const struct scene *scene, int64_t most, int64_t values, pool_work *work,
            void *context);

/* The share of count values, cut at whole cache lines so that no line has two writers. */
void share_of_values(int64_t count, int part, int parts, int64_t *first, int64_t *last);

#endif
