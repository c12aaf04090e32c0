/* run_checkpoint.h - the checkpoints of a run: what they keep besides the arenas, and their records
 * in out.jsonl. */
#ifndef FARMHAND_RUN_CHECKPOINT_H
#define FARMHAND_RUN_CHECKPOINT_H

#include "../engine/checkpoint.h"
#include "commands.h"

enum { LOSSES_MAX = 4096, BOOT_BYTES = 40 };

/* The losses of the first and the last epoch. */
struct losses {
    int64_t epoch, seen;
    double first_sum;
    float last[LOSSES_MAX]; /* a ring of `epoch` values */
};

/* What a run has measured so far. */
struct run_progress {
    int64_t measured, measured_ns;
    struct losses losses;
};

/* What a checkpoint keeps of a run. */
struct run_record {
    int64_t wall_ns, boot_ns; /* when it was written; boot_ns counts from the boot `boot` */
    char boot[BOOT_BYTES];
    uint64_t mask;
    uint64_t device; /* facts of the OpenCL device that its bits depend on, or 0 */
    struct run_progress progress;
};

struct run_checkpoint {
    struct checkpoint file;
    struct run_record saved; /* in the last checkpoint */
    uint64_t mask;           /* of this run */
    int64_t written;         /* when the last one was written, or this run began */
    bool resumed;
};

/* Restores executor and progress from the checkpoint in the settings, if there is one, and sets
 * `resumed`; false: fault, also where it belongs to another run. */
bool read_run_checkpoint(struct run_checkpoint *checkpoint, const struct run_settings *settings,
                         struct executor *executor, struct run_progress *progress,
                         struct fault *fault);

/* Writes a checkpoint and the record "checkpoint". */
bool write_run_checkpoint(struct run_checkpoint *checkpoint, const struct executor *executor,
                          const struct run_progress *progress, struct jsonl_writer *out,
                          struct fault *fault);

/* Writes the record "resume". */
void write_resume(const struct run_checkpoint *checkpoint, struct jsonl_writer *out);

/* Whether the device computes the same bits as the one before the checkpoint; false: fault. */
bool check_resumed_device(const struct run_checkpoint *checkpoint, const struct executor *executor,
                          struct fault *fault);

#endif
