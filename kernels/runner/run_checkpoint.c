/* run_checkpoint.c - saves and restores the progress of a run; see run_checkpoint.h. */
#include "run_checkpoint.h"

#include <string.h>

#include "../engine/os.h"

static int64_t wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The name of this boot, or "". */
static void read_boot_id(char boot[BOOT_BYTES]) {
    if (read_file_start("/proc/sys/kernel/random/boot_id", boot, BOOT_BYTES) < 0) {
        boot[0] = '\0';
    }
}

/* The time since a checkpoint was written; -1: not known. Only the wall clock survives a reboot,
 * and it may have been set since: the checkpoint is at least as old as this boot. */
static int64_t time_since(const struct run_record *saved) {
    char boot[BOOT_BYTES];
    read_boot_id(boot);
    if (boot[0] != '\0' && strcmp(boot, saved->boot) == 0) {
        return now_ns() - saved->boot_ns;
    }
    int64_t elapsed = wall_ns() - saved->wall_ns;
    return elapsed < now_ns() ? -1 : elapsed;
}

static uint64_t device_hash(const struct executor *executor) {
    return executor->device == NULL ? 0 : device_facts(executor->device)->hash;
}

bool write_run_checkpoint(struct run_checkpoint *checkpoint, const struct executor *executor,
                          const struct run_progress *progress, struct jsonl_writer *out,
                          struct fault *fault) {
    struct run_record *saved = &checkpoint->saved;
    int64_t start = now_ns();
    *saved = (struct run_record){.wall_ns = wall_ns(),
                                 .boot_ns = start,
                                 .mask = checkpoint->mask,
                                 .device = device_hash(executor),
                                 .progress = *progress};
    read_boot_id(saved->boot);
    if (!checkpoint_write(&checkpoint->file, executor, saved, fault)) {
        return false;
    }
    checkpoint->written = now_ns();
    json_begin(out, "checkpoint");
    json_int(out, "step", progress->measured);
    json_int(out, "t_ns", start);
    json_int(out, "ns", checkpoint->written - start);
    json_end(out);
    return true;
}

void write_resume(const struct run_checkpoint *checkpoint, struct jsonl_writer *out) {
    int64_t lost_ns = time_since(&checkpoint->saved);
    json_begin(out, "resume");
    json_int(out, "step", checkpoint->saved.progress.measured);
    json_int(out, "t_ns", now_ns());
    json_bool(out, "same_cores", checkpoint->saved.mask == checkpoint->mask);
    if (lost_ns < 0) {
        json_null(out, "lost_ns");
    } else {
        json_int(out, "lost_ns", lost_ns);
    }
    json_end(out);
}

bool read_run_checkpoint(struct run_checkpoint *checkpoint, const struct run_settings *settings,
                         struct executor *executor, struct run_progress *progress,
                         struct fault *fault) {
    const struct run_progress *saved = &checkpoint->saved.progress;
    if (!checkpoint_open(&checkpoint->file, settings->checkpoint, executor->plan,
                         sizeof checkpoint->saved, fault) ||
        !checkpoint_read(&checkpoint->file, executor, &checkpoint->saved, &checkpoint->resumed,
                         fault)) {
        return false;
    }
    if (!checkpoint->resumed) {
        return true;
    }
    if (saved->measured < 0 || saved->measured_ns < 0 || saved->losses.seen < 0 ||
        saved->losses.epoch != progress->losses.epoch ||
        (int64_t)executor->exec.step != settings->warmup + saved->measured) {
        return checkpoint_refuse(fault, "belongs to a run with other settings");
    }
    *progress = *saved;
    return true;
}

bool check_resumed_device(const struct run_checkpoint *checkpoint, const struct executor *executor,
                          struct fault *fault) {
    return !checkpoint->resumed || device_hash(executor) == checkpoint->saved.device ||
           checkpoint_refuse(fault, "belongs to another OpenCL device, driver or kernel");
}
