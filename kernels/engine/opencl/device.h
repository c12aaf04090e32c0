/* device.h - a plan on an OpenCL device: its tensors are there, its operations are launches.
 *
 * device_open() allocates all memory, builds all programs, and prepares the kernels of every
 * operation with their arguments, in command buffers where the driver has them. A step then only
 * enqueues. Tensors have a place on the host too,
 * at tensor->data: memory that is not touched until a value is copied there. With FEED_COPIED the
 * values on the host are those that count, and an operation borrows the memory of the device. */
#ifndef FARMHAND_DEVICE_H
#define FARMHAND_DEVICE_H

#include "../plan.h"
#include "opencl.h"

struct device;

/* How data reach the device (runner.h, --feed). */
enum feed { FEED_COPIED, FEED_MAPPED, FEED_RESIDENT, FEED_PRELOADED, FEEDS };
extern const char *const FEED_NAMES[FEEDS + 1];

/* What is submitted to the device at once (runner.h, --submit). */
enum submission { SUBMIT_STEP, SUBMIT_LAUNCH, SUBMIT_RECORDED, SUBMISSIONS };
extern const char *const SUBMISSION_NAMES[SUBMISSIONS + 1];

/* What --kernel takes, NULL at the end: variants of launch_matmul.c, and "tuned", the last one. */
extern const char *const KERNEL_NAMES[];

struct device_settings {
    const char *kernels;  /* the folder of the .cl files */
    const char *tuned;    /* a tuning file, or NULL */
    int64_t number;       /* of the device */
    const char *fallback; /* "cpu": runs the operations that the device lacks; NULL: not allowed */
    const char *kernel;   /* the variant of every matrix product; NULL: tuned */
    enum feed feed;
    enum submission submission;
};

enum { FILE_BYTES = 64, OPTIONS_BYTES = 256, PROGRAMS_MAX = 256 };

/* Files of kernels/opencl, built after common.cl with these options. */
struct program {
    char files[FILE_BYTES], options[OPTIONS_BYTES];
    uint64_t digest; /* of the source text, common.cl included */
    cl_handle built;
};

/* What was opened, and what that cost. */
struct device_facts {
    struct opencl_device device;
    int64_t build_ns, copy_ns;
    struct program program[PROGRAMS_MAX];
    int programs, tuned, fallbacks;
    int recorded;   /* parts of a step that are one command each */
    uint64_t hash;  /* of what decides its results: device, driver, kernels, sizes of launches */
    char note[160]; /* why command buffers are not used, where the driver has them; or empty */
};

/* The times of a step by the clock of the device (runner.h, "device_ns"). */
enum device_time { DEVICE_COPY, DEVICE_QUEUE, DEVICE_COMPUTE, DEVICE_TIMES };
struct device_times {
    bool valid; /* the timestamps make sense */
    int64_t ns[DEVICE_TIMES];
    int64_t phase_ns[PHASES]; /* of the commands of a phase, waiting included; not for load */
};

/* Opens a device for a plan and copies initial values there, with FEED_PRELOADED also the data
 * set. NULL: fault. */
struct device *device_open(const struct plan *plan, const struct dataset *dataset,
                           const struct device_settings *settings, struct fault *fault);
const struct device_facts *device_facts(const struct device *device);

/* Enqueues operations [first, last) and submits them. Those that were recorded together are one
 * command if all of them are within this range. Load, and operations that fall back to the CPU, run
 * on the host. */
void device_run(struct device *device, int first, int last, struct exec_context *exec);

/* Waits for everything enqueued, and copies the loss to the host if `loss`. */
void device_wait(struct device *device, bool loss);

/* Copies a tensor to the host. */
void device_fetch(struct device *device, const struct tensor *tensor);

/* Sums the times of all commands since the last call, after device_wait(). */
void device_collect_times(struct device *device, struct device_times *times);

/* Whether all calls succeeded so far; false: fault. */
bool device_check(const struct device *device, struct fault *fault);

#endif
