/* pool.h - the engine's threads: made once, each bound to its own core, woken for every operation.
 *
 * An operation is cut into parts; pool_run() returns when all parts are done. How it is cut depends
 * on sizes and thread count alone, and no result on who does a part: so a sum has the same rounding in
 * every run, although whoever is done early takes over what others have not begun. */
#ifndef FARMHAND_POOL_H
#define FARMHAND_POOL_H

#include <stdint.h>

struct pool;

/* One part of the work: part counts from 0 to parts - 1; worker from 0 to threads - 1, for scratch
 * memory of one's own. */
typedef void pool_work(void *context, int part, int parts, int worker);

struct pool *pool_open(int threads, uint64_t mask); /* mask: the cores to bind to, one each in turn */
void pool_close(struct pool *pool);
int pool_threads(const struct pool *pool);
void pool_run(struct pool *pool, int parts, pool_work *work, void *context);

/* The share [first, last) of count items that part `part` of `parts` has. */
void share_of(int64_t count, int part, int parts, int64_t *first, int64_t *last);

#endif
