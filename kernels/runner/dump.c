/* dump.c - the command `dump`: writes every tensor before the first step and after each step. */
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "../engine/executor.h"
#include "../engine/os.h"
#include "commands.h"

static bool write_bytes(int file, const void *bytes, size_t count, struct fault *fault) {
    return write_fully(file, bytes, count) ||
           fault_set(fault, STATUS_IO, "cannot write dump.bin: %s", os_error_text());
}

static bool write_tensors(int file, const struct executor *executor, uint64_t number,
                          struct fault *fault) {
    const struct plan *plan = executor->plan;
    bool fine = write_bytes(file, &number, sizeof number, fault);
    for (int i = 0; i < plan->tensors && fine; i++) {
        const struct tensor *tensor = &plan->tensor[i];
        executor_fetch(executor, tensor);
        fine = write_bytes(file, tensor->data, tensor_bytes(tensor), fault);
    }
    return fine && executor_check(executor, fault);
}

static bool dump_steps(struct executor *executor, int file, int64_t steps, struct fault *fault) {
    bool fine = write_tensors(file, executor, 0, fault);
    for (int64_t step = 0; step < steps && fine; step++) {
        for (int i = 0; i < executor->step_ranges; i++) {
            executor_run(executor, executor->step[i].first, executor->step[i].last);
        }
        executor_wait(executor, true);
        executor->exec.step++;
        fine = write_tensors(file, executor, executor->exec.step, fault);
    }
    return fine;
}

static bool dump_plan(const struct run_settings *settings, struct fault *fault) {
    char path[PATH_BYTES];
    struct executor executor;
    const struct dataset_settings data = {.file = settings->data};
    struct plan *plan = processor_is_supported(fault) ? open_plan(settings->plan, fault) : NULL;
    if (plan == NULL ||
        !executor_open(&executor, plan, &data, &settings->device, affinity_mask(), fault) ||
        !executor_open_device(&executor, &settings->device, fault)) {
        return false;
    }
    if (!join_path(path, settings->folder, "dump.bin")) {
        return fault_set(fault, STATUS_IO, "the path of the folder is too long");
    }
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) {
        return fault_set(fault, STATUS_IO, "cannot write %.200s: %s", path, os_error_text());
    }
    bool fine = dump_steps(&executor, file, settings->steps, fault);
    close(file);
    return fine;
}

int dump_main(const struct run_settings *settings) {
    struct fault fault = {STATUS_DONE, ""};
    struct jsonl_writer out;
    if (!dump_plan(settings, &fault)) {
        return report_fault(NULL, &fault);
    }
    jsonl_to_stdout(&out, &fault);
    json_begin(&out, "done");
    json_int(&out, "steps", settings->steps);
    json_int(&out, "t_ns", now_ns());
    json_end(&out);
    return jsonl_flush(&out) ? STATUS_DONE : (int)fault.status;
}
