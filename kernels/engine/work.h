/* work.h - a plan that has its memory, its data and its threads, ready to be run. */
#ifndef FARMHAND_WORK_H
#define FARMHAND_WORK_H

#include "opencl/device.h"
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
    struct device *device; /* of an OpenCL plan, else NULL */
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

/* Takes all memory, makes the data set, sets first values and starts the threads; of an OpenCL plan,
 * makes the device ready with these settings. False: fault. */
bool work_open(struct work *work, struct plan *plan, const char *data_file,
               const struct device_settings *settings, uint64_t mask, struct fault *fault);

/* Runs the operations [first, last) in order. A device may still be at it afterwards. */
void work_run(struct work *work, int first, int last);

/* Waits for a device, and brings the loss over when a step ends; the CPU is never behind. */
void work_wait(struct work *work, bool step_ends);

/* Brings a tensor to where the host can read it. */
void work_fetch(const struct work *work, const struct tensor *tensor);

/* How many of the learned tensors differ from their first values. */
int work_moved(const struct work *work);

/* The largest error of the plan's products against a reference in double precision, relative to
 * the size of their terms; negative where the plan has no product of its own (sgemm). */
double work_answer_error(const struct work *work);

/* The same of one product, whose values are in hand. */
double product_error(const struct op *op);

#endif
