/* dump.c - `dump`: every tensor before the first step and after each, as it lies in memory. */
#include <math.h>
#include <fcntl.h>
#include <unistd.h>

#include "../engine/work.h"
#include "system.h"
#include "verbs.h"

static bool write_bytes(int file, const void *bytes, size_t count, struct fault *fault) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t piece = write(file, at, count);
        if (piece <= 0) {
            return fault_say(fault, RUNNER_IO, "cannot write dump.bin: %s", system_reason());
        }
        at += piece;
        count -= (size_t)piece;
    }
    return true;
}

static bool write_moment(int file, const struct work *work, uint64_t number, struct fault *fault) {
    const struct plan *plan = work->plan;
    bool fine = write_bytes(file, &number, sizeof number, fault);
    for (int i = 0; i < plan->tensors && fine; i++) {
        const struct tensor *tensor = &plan->tensor[i];
        work_fetch(work, tensor);
        size_t size = tensor->type == TYPE_BYTE ? 1 : 4;
        fine = write_bytes(file, tensor->data, (size_t)tensor->count * size, fault);
    }
    return fine && (work->device == NULL || device_is_well(work->device, fault));
}

static bool dump_steps(struct work *work, int file, int64_t steps, struct fault *fault) {
    bool fine = write_moment(file, work, 0, fault);
    for (int64_t step = 0; step < steps && fine; step++) {
        for (int i = 0; i < work->stretches; i++) {
            work_run(work, work->step[i].first, work->step[i].last);
        }
        work_wait(work, true);
        work->scene.step++;
        fine = write_moment(file, work, work->scene.step, fault);
    }
    return fine;
}

static bool dump_plan(const struct run_settings *settings, struct fault *fault) {
    char path[PATH_BYTES];
    struct work work;
    struct plan *plan = processor_fits(fault) ? open_plan(settings->plan, fault) : NULL;
    if (plan == NULL ||
        !work_open(&work, plan, settings->data, &settings->device, system_mask(), fault)) {
        return false;
    }
    if (!join_path(path, settings->folder, "dump.bin")) {
        return fault_say(fault, RUNNER_IO, "the folder's path is too long");
    }
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) {
        return fault_say(fault, RUNNER_IO, "cannot write %.200s: %s", path, system_reason());
    }
    bool fine = dump_steps(&work, file, settings->steps, fault);
    close(file);
    return fine;
}

int dump(const struct run_settings *settings) {
    struct fault fault = {RUNNER_DONE, ""};
    struct say aloud;
    if (!dump_plan(settings, &fault)) {
        return say_fault(NULL, &fault);
    }
    say_aloud(&aloud, &fault);
    say_begin(&aloud, "done");
    say_int(&aloud, "steps", settings->steps);
    say_int(&aloud, "t_ns", now_ns());
    say_end(&aloud);
    return say_flush(&aloud) ? RUNNER_DONE : (int)fault.exit;
}
