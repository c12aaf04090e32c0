/* work.h - a plan that has its memory, its data and its threads, ready to be run. */
#ifndef FARMHAND_WORK_H
#define FARMHAND_WORK_H

#include "plan.h"

/* Consecutive operations of one phase. A step is a few of these, one after another. */
struct stretch {
    enum phase phase;
    int first, last; /* operations [first, last) of the plan */
};

/* A tensor that some update writes, and what it looked like before the first step. */
struct learned {
    const struct tensor *tensor;
    uint64_t first_hash;
};

struct work {
    struct plan *plan;
    struct pool *pool;
    struct dataset *dataset;
    struct scene scene;
    size_t workspace_bytes;
    struct stretch *step; /* of the phases load to update */
    int stretches;
    struct stretch *evaluation;
    int evaluations;
    struct learned *learned;
    int learned_count;
    int64_t parameters; /* values of the parameter arena that a step reads */
    int64_t macs;       /* multiply-adds of a step's forward operations */
    int64_t round;      /* steps until the data set begins anew */
};

/* Takes all memory, makes the data set, sets first values and starts the threads. False: fault. */
bool work_open(struct work *work, struct plan *plan, const char *data_file, uint64_t mask,
               struct fault *fault);

/* Runs the operations [first, last) in order. */
void work_run(struct work *work, int first, int last);

/* How many of the learned tensors differ from their first values. */
int work_moved(const struct work *work);

/* The largest error of the plan's products against a reference in double precision, relative to
 * the size of their terms; negative where the plan has no product of its own (sgemm). */
double work_answer_error(const struct work *work);

#endif
