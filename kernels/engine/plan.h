/* plan.h - a parsed plan, every line of which was checked. */
#ifndef FARMHAND_PLAN_H
#define FARMHAND_PLAN_H

#include "dataset.h"
#include "engine.h"
#include "fault.h"

enum { CASE_BYTES = 129, THREADS_MAX = 64, PLAN_BYTES_MAX = 64 << 20 };

struct plan {
    char digest[CASE_BYTES]; /* of the case */
    uint64_t hash;           /* of the whole body */
    bool opencl;             /* the backend: OpenCL, or the CPU */
    int threads;
    bool training;
    int64_t samples;
    uint64_t seed;
    int64_t evaluate; /* steps between two evaluations; 0: never */
    size_t arena[ARENAS];
    struct stream stream[STREAMS_MAX];
    int streams;
    struct tensor *tensor;
    int tensors;
    struct op *op;
    int ops;
    int entries;               /* one more than the largest entry number of an op */
    const struct tensor *loss; /* NULL: none */
};

/* Bytes of its lists. */
static inline size_t plan_bytes(const struct plan *plan) {
    return (size_t)plan->ops * sizeof *plan->op + (size_t)plan->tensors * sizeof *plan->tensor;
}

/* Parses a whole plan file; the JSON header is skipped. The bytes are modified: words are ended
 * where they are; nothing points to them afterwards. NULL: fault. The plan is never freed, since a
 * process runs one plan. */
struct plan *plan_read(char *bytes, size_t count, struct fault *fault);

#endif
