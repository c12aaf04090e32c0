/* sampler.h - looks at the nodes of DIR/nodes once a period, and says what that cost. */
#ifndef FARMHAND_SAMPLER_H
#define FARMHAND_SAMPLER_H

#include "say.h"

struct sampler;

/* Opens DIR/nodes and DIR/readings.jsonl. NULL without a fault: there is no list of nodes. */
struct sampler *sampler_open(const char *folder, double period_ms, struct fault *fault);

/* Looks once a period until that moment, or until somebody asks to stop. */
void sampler_look_until(struct sampler *sampler, int64_t end_ns);

/* Opens a sampler and lets it run on a thread of its own, on a core outside the mask. */
struct sampler *sampler_beside(const char *folder, double period_ms, uint64_t mask,
                               struct fault *fault);

/* Whether it had to give up. */
bool sampler_failed(const struct sampler *sampler);

/* Ends it, hands over the last readings, and says the cost; false: fault. */
bool sampler_end(struct sampler *sampler, struct say *say, struct fault *fault);

#endif
