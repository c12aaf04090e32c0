/* checkpoint.h - saves what a run needs to continue after it was killed, and restores it.
 *
 * A checkpoint is one file: a line of text, then the record of the caller, the arena "parameter"
 * and the arena "state". Everything else follows from the plan, its seed and the number of the
 * step, so that a run that continues computes the same bits as one that was never interrupted. The
 * line names what these bits depend on: the plan, its threads, and this very build of the runner.
 * The file is written beside its place, synchronized with the storage and renamed: a run that is
 * killed while it writes, or a full disk, leaves the last good checkpoint. */
#ifndef FARMHAND_CHECKPOINT_H
#define FARMHAND_CHECKPOINT_H

#include "executor.h"

enum { CHECKPOINT_HEAD_BYTES = 384 };

struct checkpoint {
    const char *path;
    size_t record_bytes;                  /* what the caller keeps besides the arenas */
    char identity[CHECKPOINT_HEAD_BYTES]; /* the line of text up to the step */
};

/* Reserves the folder of `path` for this process; false: fault, because it cannot be written to, or
 * another run uses it. Two runs would rename each other's unfinished files. */
bool checkpoint_open(struct checkpoint *checkpoint, const char *path, const struct plan *plan,
                     size_t record_bytes, struct fault *fault);

/* Writes the checkpoint; false: fault, and the last good one is still there. */
bool checkpoint_write(const struct checkpoint *checkpoint, const struct executor *executor,
                      void *record, struct fault *fault);

/* Restores arenas, step and record, before a device copies its initial values. `*found`: there was
 * a checkpoint. False: fault, because it is damaged or of another run. */
bool checkpoint_read(const struct checkpoint *checkpoint, struct executor *executor, void *record,
                     bool *found, struct fault *fault);

/* Sets the fault of a checkpoint that cannot be used; always false. */
bool checkpoint_refuse(struct fault *fault, const char *why);

/* A hash of both arenas: equal after equal training. */
uint64_t checkpoint_digest(const struct executor *executor);

#endif
