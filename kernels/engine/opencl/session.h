/* session.h - an opened device with a command queue: its programs, its prepared launches, its
 * timing.
 *
 * device.c runs a plan with it, and the command `tune` runs single products. */
#ifndef FARMHAND_SESSION_H
#define FARMHAND_SESSION_H

#include "device.h"

enum { SCRATCH_SLOTS = 4, DIMS = 3, PARAM_NAME_BYTES = 16 };

/* Arguments that change in every step. */
enum per_step {
    PER_STEP_NONE,
    PER_STEP_FIRST_SAMPLE,
    PER_STEP_DROPOUT_KEY,
    PER_STEP_BIAS_CORRECTION
};

/* A kernel with its arguments set, ready to be enqueued. */
struct launch {
    cl_handle kernel;
    const struct program *program;
    int dims;
    size_t size[DIMS], group[DIMS];
    int scratch[SCRATCH_SLOTS]; /* the number of the argument; -1: none */
    enum per_step per_step;
    int per_step_arg; /* the number of the argument */
};

/* A record of the tuning file. */
struct tuned {
    int32_t m, n, k;
    bool transpose_a, transpose_b;
    const char *variant, *params; /* params: "NAME=VALUE ..." */
};

/* An enqueued command whose timestamps will be read. */
struct timed_command {
    cl_handle event;
    enum phase phase;
    bool is_copy;
};

struct session {
    struct opencl cl;
    struct command_buffers buffers;
    bool records; /* the command buffers of the driver work */
    bool untimed; /* but their timestamps do not */
    struct device_facts facts;
    cl_handle context, queue;
    const char *kernels; /* the folder of the .cl files */
    const char *kernel;  /* the variant of every matrix product; NULL: tuned */
    const struct stream *stream;
    cl_handle stream_memory[STREAMS_MAX]; /* of a preloaded data set */
    struct launch *launch;
    int launches, launch_room;
    size_t scratch_bytes[SCRATCH_SLOTS], scratch_allocated[SCRATCH_SLOTS];
    cl_handle scratch[SCRATCH_SLOTS];
    struct tuned *tuned;
    int tuned_count;
    struct timed_command *timed;
    int timed_count, timed_room;
    struct fault fault; /* of a call that failed while a plan runs */
    cl_handle (*memory_of)(void *owner, const struct tensor *tensor);
    void *owner;
};

struct matmul;

bool session_open(struct session *session, const struct device_settings *settings,
                  struct fault *fault);

/* Sets the fault of an OpenCL call that failed; always false. */
bool session_fault(const struct session *session, const char *call, int32_t status,
                   struct fault *fault);

/* Allocates a buffer on the device, if `mappable` where the host reaches it; NULL: fault. */
cl_handle session_buffer(struct session *session, size_t bytes, bool mappable, struct fault *fault);

/* Appends the launches of an operation; false: fault. *lacking: the backend cannot run it. */
bool session_add_op(struct session *session, const struct op *op, bool *lacking,
                    struct fault *fault);

/* Appends the launches of a product by the named variant (launch.h). */
bool session_add_matmul(struct session *session, const struct matmul *matmul, const char *variant,
                        const char *params, struct fault *fault);
bool matmul_variant_exists(const char *name);

/* Allocates scratch memory, once all launches are known, and sets it as their argument. */
bool session_allocate_scratch(struct session *session, struct fault *fault);

/* Tests the command buffers of the driver, if it has any; facts.note says why they are not used.
 * `forced`: use them even if they are slow, or their timestamps wrong. */
void session_test_recording(struct session *session, bool forced);

/* Records `count` launches, whose arguments are set and do not change; NULL: launch them singly. */
cl_handle session_record(struct session *session, const struct launch *launch, int count);

/* Enqueues recorded launches; false: the driver refused, and nothing was enqueued. */
bool session_submit(struct session *session, cl_handle recorded, enum phase phase);

/* Where the event of the next command is stored; NULL: its timestamps are not wanted. */
cl_handle *session_next_event(struct session *session, enum phase phase, bool is_copy);

/* Enqueues one launch; op and exec may be NULL where no argument changes per step. */
void session_launch(struct session *session, struct launch *launch, const struct op *op,
                    const struct exec_context *exec);

/* Enqueues a copy to the device or from it, and waits for it if `wait`. */
void session_copy(struct session *session, cl_handle memory, void *host, size_t bytes,
                  bool to_device, bool wait, enum phase phase);

/* Waits for the queue and maps a buffer for writing; NULL: failed. */
void *session_map(struct session *session, cl_handle memory, size_t bytes, enum phase phase);
void session_unmap(struct session *session, cl_handle memory, void *mapped, enum phase phase);

void session_wait(struct session *session);
/* Sums the timestamps of all commands since the last call. */
void session_collect_times(struct session *session, struct device_times *times);

/* Reads a tuning file (runner.h); false: fault. */
bool tuned_read(struct session *session, const char *path, struct fault *fault);

/* Parses M N K TA TB VARIANT [NAME=VALUE ...], ending words where they are; false: malformed. */
bool tuned_parse(char *text, struct tuned *tuned);

/* The record that is nearest to a product in size, with the same transposes; NULL: none. */
const struct tuned *tuned_for(const struct session *session, const struct matmul *matmul);

#endif
