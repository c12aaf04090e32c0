/* device.h - a plan on an OpenCL device: its tensors there, its operations as launches.
 *
 * Everything is made in device_open(): memory, programs, and for every operation the kernels with
 * their arguments set. A step then only enqueues. Tensors have a place on the host too, at tensor->
 * data, which is untouched memory until a value is brought there. */
#ifndef FARMHAND_DEVICE_H
#define FARMHAND_DEVICE_H

#include "../plan.h"
#include "opencl.h"

struct device;

struct device_settings {
    const char *kernels;  /* the folder of the .cl files */
    const char *tuned;    /* a tuning file, or NULL */
    int64_t number;       /* of the device */
    const char *fallback; /* "cpu": it may do what is lacking; else NULL */
};

/* What was opened, and what that cost. */
struct device_facts {
    struct opencl_device device;
    int64_t build_ns, copy_ns;
    int programs, tuned, fallbacks;
};

/* How a step went by the device's own clock (runner.h, "device_ns"). */
enum device_time { DEVICE_COPY, DEVICE_QUEUE, DEVICE_COMPUTE, DEVICE_TIMES };
struct device_tally {
    bool known; /* the stamps make sense */
    int64_t ns[DEVICE_TIMES];
    int64_t phase_ns[PHASES]; /* that a phase's commands took, waiting included; not of load */
};

/* Takes memory on the device, builds kernels, copies first values there. NULL: fault. */
struct device *device_open(const struct plan *plan, const struct device_settings *settings,
                           struct fault *fault);
const struct device_facts *device_facts(const struct device *device);

/* Enqueues one operation, or has the host do it: loading, or what falls back. */
void device_run(struct device *device, const struct op *op, struct scene *scene);

/* Hands over what was enqueued so far. */
void device_flush(struct device *device);

/* Waits for everything enqueued, and brings the plan's loss to the host if asked to. */
void device_wait(struct device *device, bool loss);

/* Brings a tensor to the host. */
void device_fetch(struct device *device, const struct tensor *tensor);

/* Adds up what was done since the last tally, after a wait. */
void device_tell(struct device *device, struct device_tally *tally);

/* Whether all went well so far; if not, what did not. */
bool device_is_well(const struct device *device, struct fault *fault);

#endif
