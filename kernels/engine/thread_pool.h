/* thread_pool.h - the engine's threads: started once, each pinned to one core, woken per operation.
 *
 * An operation is split into parts, and thread_pool_run() returns when all parts are done. The
 * split depends on sizes and the number of threads only, and no result depends on which thread ran
 * a part: so a sum is rounded the same way in every run, although threads that finish early take
 * over parts that other threads have not begun. */
#ifndef FARMHAND_THREAD_POOL_H
#define FARMHAND_THREAD_POOL_H

#include <stdint.h>

struct thread_pool;

/* Runs part number `part` of `parts`. `worker`, 0 to threads - 1, selects per-thread scratch
 * memory. */
typedef void thread_pool_task(void *context, int part, int parts, int worker);

/* Starts `threads` threads, the caller being thread 0, and pins each to one core of `mask`, counted
 * around; NULL: a thread could not be started. */
struct thread_pool *thread_pool_open(int threads, uint64_t mask);
void thread_pool_close(struct thread_pool *pool);
int thread_pool_size(const struct thread_pool *pool);
void thread_pool_run(struct thread_pool *pool, int parts, thread_pool_task *task, void *context);

/* The range [first, last) of `count` items that belongs to part `part` of `parts`. */
void split_range(int64_t count, int part, int parts, int64_t *first, int64_t *last);

#endif
