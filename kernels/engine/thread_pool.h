/* thread_pool.h - the engine's threads: started once, each pinned to one core, woken per operation.
 *
 * An operation is split into parts, and thread_pool_run() returns when all parts are done. The
 * split depends on sizes and the number of threads only, and no result depends on which thread ran
 * a part: so a sum is rounded the same way in every run, although threads that finish early take
 * over parts that other threads have not begun. */
#ifndef FARMHAND_THREAD_POOL_H
#define FARMHAND_THREAD_POOL_H

#include <stdint.h>

#include "int_math.h"

struct thread_pool;

/* Into how many parts an operation is cut for every thread, where cutting costs little: the smaller
 * a part, the less a slow core delays the others. */
enum { PARTS_PER_THREAD = 4 };

/* Runs part number `part` of `parts`. `worker`, 0 to threads - 1, selects per-thread scratch
 * memory. */
typedef void thread_pool_task(void *context, int part, int parts, int worker);

/* Starts `threads` threads, the caller being thread 0, and pins each to a core of its own: the
 * fastest ones of `mask`, thread 0 to the fastest. With more threads than cores they are counted
 * around. All threads are on their cores when it returns. NULL: a thread could not be started. */
struct thread_pool *thread_pool_open(int threads, uint64_t mask);
void thread_pool_close(struct thread_pool *pool);
int thread_pool_size(const struct thread_pool *pool);
void thread_pool_run(struct thread_pool *pool, int parts, thread_pool_task *task, void *context);
/* Lets the caller use all cores of the mask, and pins it again. Threads that other code starts in
 * between inherit all cores. */
void thread_pool_unpin_caller(const struct thread_pool *pool);
void thread_pool_pin_caller(const struct thread_pool *pool);
/* The core that a thread was pinned to, by the kernel's id of the thread; -1: none. */
int thread_pool_core_of(const struct thread_pool *pool, long thread);
/* How long the caller has slept so far, until other threads had finished their parts. */
int64_t thread_pool_waited_ns(const struct thread_pool *pool);

/* The number of parts for work that can be cut into `most` parts. */
static inline int thread_pool_parts(const struct thread_pool *pool, int64_t most) {
    int threads = thread_pool_size(pool);
    return (int)min_i64(most, threads == 1 ? 1 : threads * PARTS_PER_THREAD);
}

/* How many parts faster workers finish while worker number `worker` runs one: so many are left to
 * them, since it would hold them up. A part of each is half done on average. 0 for the fastest. */
static inline int parts_for_faster(const float *speeds, int workers, int worker) {
    int parts = 0;
    for (int other = 0; other < workers; other++) {
        float ratio = speeds[other] / speeds[worker] - 0.5f;
        parts += ratio >= 1.0f ? (int)ratio : 0;
    }
    return parts;
}

/* The range [first, last) of `count` items that belongs to part `part` of `parts`. */
void split_range(int64_t count, int part, int parts, int64_t *first, int64_t *last);

#endif
