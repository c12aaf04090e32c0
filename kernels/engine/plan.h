/* plan.h - a plan as the engine holds it, after every line was checked. */
#ifndef FARMHAND_PLAN_H
#define FARMHAND_PLAN_H

#include "data.h"
#include "engine.h"
#include "fault.h"

enum { CASE_BYTES = 129, THREADS_MAX = 64, PLAN_BYTES_MAX = 64 << 20 };

struct plan {
    char digest[CASE_BYTES]; /* of the case */
    bool opencl; /* the backend: a device's, or else the CPU's */
    int threads;
    bool training;
    int64_t samples;
    uint64_t seed;
    int64_t evaluate; /* after every so many steps; 0: never */
    size_t arena[ARENAS];
    struct stream stream[STREAMS_MAX];
    int streams;
    struct tensor *tensor;
    int tensors;
    struct op *op;
    int ops;
    int entries;               /* operations of the header that some op is part of, at most */
    const struct tensor *loss; /* NULL: none */
};

/* Reads a whole plan file, header included, which is only stepped over. The bytes are cut to words
 * where they lie. Answers NULL with one sentence in fault; what it answers is never freed, since a
 * runner runs one plan. */
struct plan *plan_read(char *bytes, size_t count, struct fault *fault);

#endif
