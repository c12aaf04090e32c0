/* checkpoint.h - saves what a run needs to continue after it was killed, and restores it.
 *
 * A checkpoint is one file: a line of text, then the record of the caller, the arena "parameter"
 * and the arena "state". Everything else follows from the plan, its seed and the number of the
 * step, so that a run that continues computes the same bits as one that was never interrupted. The
 * file is written beside its place, synchronized with the storage and renamed: a run that is killed
 * while it writes, or a full disk, leaves the last good checkpoint. */
#ifndef FARMHAND_CHECKPOINT_H
#define FARMHAND_CHECKPOINT_H

#include "executor.h"

/* What the caller keeps in a checkpoint besides the arenas. */
struct checkpoint_record {
    void *bytes;
    size_t count;
};

/* Reserves the folder of `path` for this process; false: fault, because it cannot be written to, or
 * another run uses it. Two runs would rename each other's unfinished files. */
bool checkpoint_open(const char *path, struct fault *fault);

/* Writes the checkpoint at `path`; false: fault, and the last good one is still there. */
bool checkpoint_write(const struct executor *executor, const char *path,
                      struct checkpoint_record record, struct fault *fault);

/* A hash of both arenas: equal after equal training. */
uint64_t checkpoint_digest(const struct executor *executor);

/* Restores arenas, step and record from `path`, before a device copies its initial values.
 * `*found`: there was a checkpoint. False: fault, because it is damaged or of another run. */
bool checkpoint_read(struct executor *executor, const char *path, struct checkpoint_record record,
                     bool *found, struct fault *fault);

#endif
