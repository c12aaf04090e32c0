/* commands.h - the commands of the runner and their options; runner.h defines what they do. */
#ifndef FARMHAND_COMMANDS_H
#define FARMHAND_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>

#include "../engine/opencl/device.h"
#include "../engine/plan.h"
#include "jsonl.h"

/* Where batches come from (runner.h, --input). */
enum input { INPUT_MEMORY, INPUT_STORAGE, INPUTS };
extern const char *const INPUT_NAMES[INPUTS + 1];

struct run_settings {
    const char *plan, *folder, *data, *checkpoint;
    int64_t warmup, steps, trace_steps;
    double seconds, max_seconds, window_ms, period_ms, checkpoint_s;
    enum input input;
    struct device_settings device;
};

struct tune_settings {
    const char *folder;
    int64_t launches, rounds;
    struct device_settings device;
};

struct sample_settings {
    const char *folder;
    double period_ms, seconds;
};

/* Each writes its records, if it has any, the last one included, and returns the exit status. */
int info_main(void);
int run_main(const struct run_settings *settings);
int sample_main(const struct sample_settings *settings);
int watchdog_main(const char *folder, double timeout_s);
int wait_main(int64_t pid, double seconds);
int dump_main(const struct run_settings *settings);
int memory_main(const char *plan);
int tune_main(const struct tune_settings *settings);

/* The provenance of what is measured here, as JSON. */
const char *provenance(void);

/* Whether this processor has the instructions that the engine was compiled for; false: fault. */
bool processor_is_supported(struct fault *fault);

/* Writes the record "device". */
void write_device(struct jsonl_writer *out, const struct device_facts *facts);

/* Writes the members of a program: its files, build options and digest. */
void write_program(struct jsonl_writer *out, const struct program *program);

/* Reads and checks the plan in a file; NULL: fault. */
struct plan *open_plan(const char *path, struct fault *fault);

/* Whether SIGTERM arrived since install_stop_handler(). */
void install_stop_handler(void);
bool stop_requested(void);

#endif
