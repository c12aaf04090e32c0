/* verbs.h - the runner's verbs and what they may be told; runner.h says what they do. */
#ifndef FARMHAND_VERBS_H
#define FARMHAND_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "../engine/opencl/device.h"
#include "../engine/plan.h"
#include "say.h"

struct run_settings {
    const char *plan, *folder, *data;
    int64_t warmup, steps, trace_steps;
    double seconds, max_seconds, window_ms, period_ms;
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

/* Each answers the exit status, after it said its last word. */
int info(void);
int run(const struct run_settings *settings);
int sample(const struct sample_settings *settings);
int guard(const char *folder, double silence_s);
int dump(const struct run_settings *settings);
int tune(const struct tune_settings *settings);

/* Where numbers come from that are measured here, as JSON. */
const char *provenance(void);

/* Whether this processor has what the engine's code was compiled for. */
bool processor_fits(struct fault *fault);

/* The line that says who computes. */
void say_device(struct say *say, const struct device_facts *facts);

/* Reads and checks the plan of that path. */
struct plan *open_plan(const char *path, struct fault *fault);

/* Whether somebody has asked us to stop since listen_for_stop(). */
void listen_for_stop(void);
bool stop_asked(void);

#endif
