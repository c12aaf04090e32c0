/* parallel_for.h - element-wise work, spread over the threads where that pays.
 *
 * Waking the other threads costs some microseconds, in which one core moves a few ten thousand
 * bytes; less work than that stays on the calling thread. The split depends on sizes and the number
 * of threads only, so a sum is rounded the same way in every run. */
#ifndef FARMHAND_PARALLEL_FOR_H
#define FARMHAND_PARALLEL_FOR_H

#include "../engine.h"
#include "../int_math.h"
#include "../thread_pool.h"

/* Work that reads or writes fewer values than this is not worth waking threads for, or not worth a
 * part more than there are threads. */
enum { PARALLEL_MIN_VALUES = 16384, PART_MIN_VALUES = 4096 };

/* Runs the task in at most `max_parts` parts; `values`: about how many are read or written in all.
 * parallel_for_parts() returns the number of parts, at most PARTS_PER_THREAD per thread. */
int parallel_for_parts(const struct exec_context *exec, int64_t max_parts, int64_t values);
void parallel_for(const struct exec_context *exec, int64_t max_parts, int64_t values,
                  thread_pool_task *task, void *context);

/* Like split_range(), but splits between whole cache lines, so that no line has two writers. */
void split_range_by_cache_line(int64_t count, int part, int parts, int64_t *first, int64_t *last);

#endif
