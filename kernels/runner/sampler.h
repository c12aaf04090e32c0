/* sampler.h - reads the nodes of DIR/nodes once per period, and reports what that cost. */
#ifndef FARMHAND_SAMPLER_H
#define FARMHAND_SAMPLER_H

#include "jsonl.h"

struct sampler;
struct thread_pool;

/* Opens DIR/nodes and DIR/readings.jsonl. NULL without a fault: there is no DIR/nodes. */
struct sampler *sampler_open(const char *folder, double period_ms, struct fault *fault);

/* Takes one reading per period until that time, or until a stop is requested. */
void sampler_run_until(struct sampler *sampler, int64_t end_ns);

/* Opens a sampler and runs it on a thread, on a core outside the mask. The pool does the work that
 * is sampled. */
struct sampler *sampler_start(const char *folder, double period_ms, uint64_t mask,
                              const struct thread_pool *pool, struct fault *fault);

/* Whether readings could not be written. */
bool sampler_failed(const struct sampler *sampler);

/* Ends the thread, writes the last readings, and writes the record "sampler"; false: fault. */
bool sampler_end(struct sampler *sampler, struct jsonl_writer *out, struct fault *fault);

#endif
