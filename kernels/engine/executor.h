/* executor.h - a plan with its memory, data set and threads, ready to run. */
#ifndef FARMHAND_EXECUTOR_H
#define FARMHAND_EXECUTOR_H

#include "opencl/device.h"
#include "plan.h"

/* Consecutive operations of one phase. A step is a few of these ranges, one after another. */
struct phase_range {
    enum phase phase;
    int first, last; /* operations [first, last) of the plan */
};

/* A tensor that an update writes, with a hash of its initial values. */
struct learned_tensor {
    const struct tensor *tensor;
    uint64_t initial_hash;
};

struct executor {
    struct plan *plan;
    struct device *device; /* for an OpenCL plan, else NULL */
    struct thread_pool *pool;
    struct dataset *dataset;
    struct exec_context exec;
    char *arena[ARENAS]; /* on the host */
    size_t workspace_bytes;
    struct phase_range *step; /* of the phases load to update */
    int step_ranges;
    struct phase_range *evaluation;
    int evaluation_ranges;
    struct learned_tensor *learned;
    int learned_count;
    int64_t parameters; /* values of the parameter arena that a step reads */
    int64_t macs;       /* multiply-adds of the forward operations of a step */
    int64_t epoch;      /* steps until the data set starts over */
    int64_t load_bytes; /* of the data set that a step loads */
};

/* Bytes of workspace that the operations of a plan share, on the host, for its threads. */
size_t plan_workspace(const struct plan *plan);

/* Allocates all memory, makes the data set, sets initial values and starts the threads. False:
 * fault. `data` may leave read_bytes out. */
bool executor_open(struct executor *executor, struct plan *plan,
                   const struct dataset_settings *data, const struct device_settings *settings,
                   uint64_t mask, struct fault *fault);

/* For an OpenCL plan, opens the device with these settings, with the values that tensors have now.
 * False: fault. */
bool executor_open_device(struct executor *executor, const struct device_settings *settings,
                          struct fault *fault);

/* Runs the operations [first, last) in order. A device may still be running them on return. */
void executor_run(struct executor *executor, int first, int last);

/* Waits for a device, and copies the loss to the host at the end of a step. The CPU backend never
 * has anything outstanding. */
void executor_wait(struct executor *executor, bool step_ends);

/* Whether the device and the data set worked so far; false: fault. */
bool executor_check(const struct executor *executor, struct fault *fault);

/* Copies a tensor to where the host can read it. */
void executor_fetch(const struct executor *executor, const struct tensor *tensor);

/* How many of the learned tensors differ from their initial values. */
int executor_changed_tensors(const struct executor *executor);

/* The largest error of the plan's matrix products (operation sgemm) against double precision,
 * relative to the sum of the absolute terms; negative: the plan has none. */
double executor_matmul_error(const struct executor *executor);

/* The same for one operation sgemm, whose operands are on the host. */
double matmul_error(const struct op *op);

#endif
