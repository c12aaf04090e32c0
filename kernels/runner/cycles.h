/* cycles.h - counts the processor cycles of this process, where the kernel lets it. Cycles are the
 * only evidence of a clock that no driver and no firmware can state wrongly. */
#ifndef FARMHAND_CYCLES_H
#define FARMHAND_CYCLES_H

#include <stdbool.h>
#include <stdint.h>

/* Starts counting, also for threads that are created later. */
void cycles_open(void);

/* The cycles so far, and the time in which they were counted, of all threads together; false: the
 * kernel does not count for this process. */
bool cycles_read(int64_t *cycles, int64_t *ns);

#endif
