/* generators.h - the samples of a generated stream; dataset.h lists the generators. */
#ifndef FARMHAND_GENERATORS_H
#define FARMHAND_GENERATORS_H

#include "dataset.h"

/* Generates samples [first, last) of stream `number`, as they are in memory; nothing for a stream
 * from a file. */
void generate_samples(const struct stream *stream, int number, uint64_t seed, int64_t first,
                      int64_t last, void *out);

#endif
