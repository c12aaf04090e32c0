/* run.c - the command `run`: the timed loop.
 *
 * The one rule: a timed step contains nothing but the step. Timestamps are taken at the boundaries
 * of its phases (of its operations, in a traced step); records are formatted and written between
 * two windows, which no measured time covers. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/executor.h"
#include "../engine/int_math.h"
#include "../engine/os.h"
#include "../engine/thread_pool.h"
#include "commands.h"
#include "cycles.h"
#include "run_checkpoint.h"
#include "sampler.h"

enum {
    STEP_PHASES = PHASE_EVALUATE,
    TRACES_MAX = 1024,
    TRACE_RECORD_OPS = 2000,
    BUFFER_BYTES = 1 << 18
};

static const int64_t FLUSH_NS = 500000000;

/* Consecutive steps that are reported together. */
struct window {
    int64_t first, steps, start, ns, shortest, longest;
    int64_t phase_ns[STEP_PHASES];
    int64_t device_ns[DEVICE_TIMES];
    double loss_sum;
    bool device_times_invalid; /* the timestamps of some step make no sense */
};

/* The first and last engine operation of an operation of the header; -1: none. */
struct op_range {
    int first, last;
};

struct run_state {
    const struct run_settings *settings;
    struct executor executor;
    struct jsonl_writer out;
    struct fault fault;
    struct window window;
    struct run_progress progress;
    struct run_checkpoint checkpoint;
    uint64_t mask;
    struct sampler *sampler;
    int64_t *stamps;            /* when each operation of a traced step ended */
    struct op_range *op_ranges; /* by entry */
    int64_t traced, trace_start;
    int64_t window_ns, flushed;
    int64_t hello_ns, first_step_ns;
    int64_t measured_before_ns; /* in earlier launches of this run */
    int64_t started, windows;
    int64_t waited_before; /* the first step that is measured */
};

static volatile sig_atomic_t stop_flag;

static void on_sigterm(int signal_number) {
    (void)signal_number;
    stop_flag = 1;
}

void install_stop_handler(void) { signal(SIGTERM, on_sigterm); }

bool stop_requested(void) { return stop_flag != 0; }

struct plan *open_plan(const char *path, struct fault *fault) {
    size_t count = 0;
    char *bytes = read_file(path, PLAN_BYTES_MAX, &count);
    if (bytes == NULL) {
        fault_set(fault, STATUS_BAD_PLAN, "cannot read the plan %.200s: %s", path, os_error_text());
        return NULL;
    }
    struct plan *plan = plan_read(bytes, count, fault);
    free(bytes);
    return plan;
}

/* ---- records ---- */

static void write_hello(struct run_state *state, uint64_t mask) {
    char hex[20];
    format_text(hex, sizeof hex, "%llx", (unsigned long long)mask);
    json_begin(&state->out, "hello");
    json_int(&state->out, "contract", RUNNER_CONTRACT);
    json_int(&state->out, "pid", getpid());
    json_string(&state->out, "case", state->executor.plan->digest);
    json_string(&state->out, "mask", hex);
    json_int(&state->out, "threads", state->executor.plan->threads);
    json_int(&state->out, "t_ns", state->hello_ns = now_ns());
    json_raw(&state->out, "provenance", provenance());
    json_end(&state->out);
}

static void write_memory(struct jsonl_writer *out, const struct plan *plan, size_t dataset) {
    static const char *const names[] = {"parameter", "gradient", "state", "activation", "input"};
    json_begin(out, "memory");
    for (int arena = 0; arena < ARENAS; arena++) {
        json_int(out, names[arena], (int64_t)plan->arena[arena]);
    }
    json_int(out, "workspace", (int64_t)(plan_workspace(plan) + plan_bytes(plan)));
    json_int(out, "dataset", (int64_t)dataset);
    json_end(out);
}

static void write_input(struct run_state *state) {
    json_begin(&state->out, "input");
    json_string(&state->out, "source", INPUT_NAMES[INPUT_STORAGE]);
    json_bool(&state->out, "direct", dataset_is_direct(state->executor.dataset));
    json_int(&state->out, "batch_bytes", state->executor.load_bytes);
    json_end(&state->out);
}

void write_device(struct jsonl_writer *out, const struct device_facts *facts) {
    json_begin(out, "device");
    json_string(out, "platform", facts->device.platform);
    json_string(out, "device", facts->device.name);
    json_string(out, "version", facts->device.version);
    json_string(out, "driver", facts->device.driver);
    json_int(out, "build_ns", facts->build_ns);
    json_int(out, "copy_ns", facts->copy_ns);
    json_int(out, "programs", facts->programs);
    json_int(out, "tuned", facts->tuned);
    json_int(out, "recorded", facts->recorded);
    json_end(out);
}

void write_program(struct jsonl_writer *out, const struct program *program) {
    char digest[20];
    format_text(digest, sizeof digest, "%llx", (unsigned long long)program->digest);
    json_string(out, "files", program->files);
    json_string(out, "options", program->options);
    json_string(out, "digest", digest);
}

/* Writes null where the timestamps of the device make no sense. */
static void write_times(struct run_state *state, const char *name, const int64_t *ns, int count) {
    if (state->window.device_times_invalid) {
        json_null(&state->out, name);
        return;
    }
    json_open(&state->out, name, '[');
    for (int i = 0; i < count; i++) {
        json_int(&state->out, NULL, ns[i]);
    }
    json_close(&state->out, ']');
}

static void write_window(struct run_state *state) {
    const struct window *window = &state->window;
    json_begin(&state->out, "window");
    json_int(&state->out, "first", window->first);
    json_int(&state->out, "n", window->steps);
    json_int(&state->out, "t_ns", window->start);
    json_int(&state->out, "ns", window->ns);
    json_int(&state->out, "ns_min", window->shortest);
    json_int(&state->out, "ns_max", window->longest);
    write_times(state, "phases_ns", window->phase_ns, STEP_PHASES);
    if (state->executor.device != NULL) {
        write_times(state, "device_ns", window->device_ns, DEVICE_TIMES);
    }
    if (state->executor.plan->loss != NULL) {
        json_real(&state->out, "loss", window->loss_sum / (double)window->steps);
    }
    json_end(&state->out);
}

/* When an entry of the header began and ended in the traced step; false: it did not run. */
static bool entry_times(const struct run_state *state, int entry, int64_t *start, int64_t *end) {
    struct op_range op_range = state->op_ranges[entry];
    if (op_range.last < 0) {
        return false;
    }
    *start = op_range.first == 0 ? state->trace_start : state->stamps[op_range.first - 1];
    *end = state->stamps[op_range.last];
    return true;
}

static void write_trace_record(struct run_state *state, int first, int count) {
    int64_t origin = INT64_MAX, start = 0, end = 0;
    for (int i = 0; i < count; i++) {
        if (entry_times(state, first + i, &start, &end) && start < origin) {
            origin = start;
        }
    }
    json_begin(&state->out, "trace");
    json_int(&state->out, "step", state->progress.measured - 1);
    json_int(&state->out, "t_ns", origin == INT64_MAX ? state->trace_start : origin);
    json_int(&state->out, "first", first);
    json_open(&state->out, "ends_ns", '[');
    for (int i = 0; i < count; i++) {
        json_int(&state->out, NULL,
                 entry_times(state, first + i, &start, &end) ? end - origin : -1);
    }
    json_close(&state->out, ']');
    json_end(&state->out);
}

static void write_trace(struct run_state *state) {
    int entries = state->executor.plan->entries;
    for (int first = 0; first < entries; first += TRACE_RECORD_OPS) {
        int rest = entries - first;
        write_trace_record(state, first, rest < TRACE_RECORD_OPS ? rest : TRACE_RECORD_OPS);
    }
}

/* The mean of `count` losses, the last of which is that of step end - 1. */
static double mean_loss(const struct losses *losses, int64_t end, int64_t count) {
    double sum = 0;
    for (int64_t i = end - count; i < end; i++) {
        sum += losses->last[i % losses->epoch];
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* Means over the first and the last epoch, or over the halves of a run shorter than one epoch. */
static void summarize_losses(const struct losses *losses, double *first, double *last) {
    if (losses->seen > losses->epoch) {
        *first = losses->first_sum / (double)losses->epoch;
        *last = mean_loss(losses, losses->seen, losses->epoch);
    } else {
        int64_t half = (losses->seen + 1) / 2;
        *first = mean_loss(losses, half, half);
        *last = mean_loss(losses, losses->seen, half);
    }
}

static void write_done(struct run_state *state, int changed, double answer_error) {
    double first = NAN, last = NAN;
    summarize_losses(&state->progress.losses, &first, &last);
    json_begin(&state->out, "done");
    json_int(&state->out, "steps", state->progress.measured);
    json_int(&state->out, "ns", state->progress.measured_ns);
    json_int(&state->out, "t_ns", now_ns());
    json_int(&state->out, "peak_rss_kb", peak_rss_kb());
    json_real(&state->out, "loss_first", first);
    json_real(&state->out, "loss_last", last);
    json_bool(&state->out, "parameters_changed", changed > 0);
    json_int(&state->out, "parameters", state->executor.parameters);
    json_int(&state->out, "macs", state->executor.macs);
    json_int(&state->out, "learned", state->executor.learned_count);
    json_int(&state->out, "moved", changed);
    json_int(&state->out, "fallbacks",
             state->executor.device == NULL ? 0 : device_facts(state->executor.device)->fallbacks);
    if (state->executor.device != NULL && *device_facts(state->executor.device)->note != '\0') {
        json_string(&state->out, "note", device_facts(state->executor.device)->note);
    }
    json_real(&state->out, "answer_error", answer_error < 0 ? NAN : answer_error);
    json_int(&state->out, "first_step_ns", state->first_step_ns);
    json_int(&state->out, "waited_ns",
             thread_pool_waited_ns(state->executor.pool) - state->waited_before);
    if (state->settings->checkpoint != NULL) {
        char digest[20];
        format_text(digest, sizeof digest, "%llx",
                    (unsigned long long)checkpoint_digest(&state->executor));
        json_string(&state->out, "digest", digest);
    }
    json_end(&state->out);
}

/* ---- progress ---- */

/* How much of what was requested has been measured; 1 or more: all of it. */
static double progress(const struct run_state *state, int64_t now) {
    const struct run_settings *settings = state->settings;
    double seconds = (double)state->progress.measured_ns / 1e9;
    double steps =
        settings->steps > 0 ? (double)state->progress.measured / (double)settings->steps : 1;
    double time = settings->seconds > 0 ? seconds / settings->seconds : 1;
    double elapsed = (double)(state->measured_before_ns + now - state->started) / 1e9;
    double limit = settings->max_seconds > 0 ? elapsed / settings->max_seconds : 1;
    double requested = steps < time ? steps : time;
    return limit > requested ? limit : requested;
}

static bool save_checkpoint_if_due(struct run_state *state) {
    double since = (double)(now_ns() - state->checkpoint.written) / 1e9;
    return state->settings->checkpoint == NULL || since < state->settings->checkpoint_s ||
           write_run_checkpoint(&state->checkpoint, &state->executor, &state->progress, &state->out,
                                &state->fault);
}

/* Continues from the checkpoint, if there is one. */
static bool resume(struct run_state *state) {
    struct run_checkpoint *checkpoint = &state->checkpoint;
    checkpoint->mask = state->mask;
    checkpoint->written = now_ns();
    if (state->settings->checkpoint == NULL) {
        return true;
    }
    if (!read_run_checkpoint(checkpoint, state->settings, &state->executor, &state->progress,
                             &state->fault) ||
        !checkpoint->resumed) {
        return state->fault.status == STATUS_DONE;
    }
    state->measured_before_ns = state->progress.measured_ns;
    double done = progress(state, state->started);
    if (done >= 1) {
        return checkpoint_refuse(&state->fault, "has all steps of this run, and more");
    }
    state->traced = (int64_t)ceil(done * (double)state->settings->trace_steps);
    write_resume(checkpoint, &state->out);
    return true;
}

/* ---- one step ---- */

/* Runs a step that began at `start`; returns when it ended. */
static int64_t run_step(struct run_state *state, int64_t start, int64_t phase_ns[STEP_PHASES]) {
    const struct executor *executor = &state->executor;
    int64_t before = start;
    for (int i = 0; i < executor->step_ranges; i++) {
        const struct phase_range *range = &executor->step[i];
        executor_run(&state->executor, range->first, range->last);
        int64_t now = now_ns();
        phase_ns[range->phase] += now - before;
        before = now;
    }
    executor_wait(&state->executor, true);
    return executor->device == NULL ? before : now_ns();
}

static int64_t run_traced_step(struct run_state *state, int64_t start,
                               int64_t phase_ns[STEP_PHASES]) {
    const struct executor *executor = &state->executor;
    int64_t now = start;
    state->trace_start = start;
    for (int i = 0; i < executor->step_ranges; i++) {
        const struct phase_range *range = &executor->step[i];
        int64_t before = now;
        for (int op = range->first; op < range->last; op++) {
            executor_run(&state->executor, op, op + 1);
            executor_wait(&state->executor, false);
            now = state->stamps[op] = now_ns();
        }
        phase_ns[range->phase] += now - before;
    }
    executor_wait(&state->executor, true);
    return executor->device == NULL ? now : now_ns();
}

/* Replaces the times that the host saw by those of the device: the host had enqueued the step long
 * before the device finished it. The phase load is what the other phases leave. */
static void read_device_times(struct run_state *state, int64_t ns, int64_t phase_ns[STEP_PHASES]) {
    struct device_times times = {.valid = true};
    if (state->executor.device == NULL) {
        return;
    }
    device_collect_times(state->executor.device, &times);
    phase_ns[PHASE_LOAD] = ns;
    for (int phase = PHASE_LOAD + 1; phase < STEP_PHASES; phase++) {
        phase_ns[phase] = times.phase_ns[phase];
        phase_ns[PHASE_LOAD] -= times.phase_ns[phase];
    }
    for (int i = 0; i < DEVICE_TIMES; i++) {
        state->window.device_ns[i] += times.ns[i];
        ns -= times.ns[i];
    }
    /* The device's clock is not usable if it measured more time than the host. */
    state->window.device_times_invalid =
        state->window.device_times_invalid || !times.valid || ns < 0 || phase_ns[PHASE_LOAD] < 0;
}

/* Checks device and loss after a step; false: fault. */
static bool record_loss(struct run_state *state) {
    struct losses *losses = &state->progress.losses;
    const struct tensor *loss = state->executor.plan->loss;
    state->executor.exec.step++;
    if (state->first_step_ns == 0) {
        state->first_step_ns = now_ns() - state->hello_ns;
    }
    if (!executor_check(&state->executor, &state->fault)) {
        return false;
    }
    if (loss == NULL) {
        return true;
    }
    float value = floats(loss)[0];
    if (losses->seen < losses->epoch) {
        losses->first_sum += value;
    }
    losses->last[losses->seen++ % losses->epoch] = value;
    state->window.loss_sum += value;
    if (!isfinite(value)) {
        return fault_set(&state->fault, STATUS_WRONG_ANSWER,
                         "the loss of step %lld is not finite; lower the learning rate",
                         (long long)losses->seen);
    }
    return true;
}

/* ---- windows ---- */

static void open_window(struct run_state *state) {
    state->window = (struct window){.first = state->progress.measured, .start = now_ns()};
}

static void add_to_window(struct run_state *state, int64_t ns,
                          const int64_t phase_ns[STEP_PHASES]) {
    struct window *window = &state->window;
    window->shortest = window->steps == 0 || ns < window->shortest ? ns : window->shortest;
    window->longest = ns > window->longest ? ns : window->longest;
    window->ns += ns;
    window->steps++;
    for (int phase = 0; phase < STEP_PHASES; phase++) {
        window->phase_ns[phase] += phase_ns[phase];
    }
    state->progress.measured++;
    state->progress.measured_ns += ns;
}

static void close_window(struct run_state *state) {
    if (state->window.steps > 0) {
        write_window(state);
        state->windows++;
    }
}

static void flush_if_due(struct run_state *state) {
    int64_t now = now_ns();
    if (now - state->flushed >= FLUSH_NS || state->out.used > BUFFER_BYTES / 2) {
        jsonl_flush(&state->out);
        state->flushed = now;
        if (state->sampler != NULL && sampler_failed(state->sampler)) {
            fault_set(&state->fault, STATUS_IO,
                      "readings.jsonl cannot be written any more; free space on the phone");
        }
    }
}

/* The run ends one window early: the steps of the open window still need a record. */
static bool is_finished(const struct run_state *state, int64_t now) {
    return state->windows >= RUNNER_WINDOWS_MAX - 1 || progress(state, now) >= 1;
}

static bool trace_is_due(const struct run_state *state, int64_t now) {
    int64_t traces = state->settings->trace_steps;
    return state->traced < traces && progress(state, now) >= (double)state->traced / (double)traces;
}

static bool evaluation_is_due(const struct run_state *state) {
    const struct executor *executor = &state->executor;
    return executor->evaluation_ranges > 0 && executor->plan->evaluate > 0 &&
           state->progress.measured % executor->plan->evaluate == 0;
}

static void evaluate(struct run_state *state) {
    const struct executor *executor = &state->executor;
    struct device_times unused; /* the time of an evaluation belongs to no window */
    double right = 0;
    int checks = 0;
    int64_t start = now_ns();
    for (int i = 0; i < executor->evaluation_ranges; i++) {
        for (int op = executor->evaluation[i].first; op < executor->evaluation[i].last; op++) {
            executor_run(&state->executor, op, op + 1);
            if (op_is(&executor->plan->op[op], "accuracy")) {
                executor_fetch(executor, executor->plan->op[op].out[0]);
                right += floats(executor->plan->op[op].out[0])[0];
                checks++;
            }
        }
    }
    executor_wait(&state->executor, false);
    int64_t end = now_ns();
    if (executor->device != NULL) {
        device_collect_times(executor->device, &unused);
    }
    json_begin(&state->out, "evaluation");
    json_int(&state->out, "step", state->progress.measured);
    json_int(&state->out, "t_ns", start);
    json_int(&state->out, "ns", end - start);
    json_real(&state->out, "accuracy", checks > 0 ? right / checks : NAN);
    json_end(&state->out);
}

/* Adds a step to the current window, or to a new one if the step is as long as a window. */
static void record_step(struct run_state *state, int64_t start, int64_t end, int64_t *phase_ns) {
    if (end - start >= state->window_ns && state->window.steps > 0) {
        close_window(state);
        state->window = (struct window){.first = state->progress.measured, .start = start};
    }
    read_device_times(state, end - start, phase_ns);
    add_to_window(state, end - start, phase_ns);
}

static bool warm_up(struct run_state *state) {
    while ((int64_t)state->executor.exec.step < state->settings->warmup && !stop_requested()) {
        int64_t phase_ns[STEP_PHASES] = {0};
        run_step(state, now_ns(), phase_ns);
        read_device_times(state, 0, phase_ns);
        if (!record_loss(state)) {
            return false;
        }
    }
    return true;
}

/* Writes the current window and the records that follow it, then opens the next window. There is no
 * checkpoint after the last step: a run that continues has at least one step to measure. */
static void finish_window(struct run_state *state, bool traced, bool evaluation, bool last) {
    close_window(state);
    if (traced) {
        state->traced++;
        write_trace(state);
    }
    if (evaluation) {
        evaluate(state);
    }
    flush_if_due(state);
    if (!last) {
        save_checkpoint_if_due(state);
    }
    open_window(state);
}

static bool measure(struct run_state *state) {
    state->waited_before = thread_pool_waited_ns(state->executor.pool);
    open_window(state);
    state->started = state->flushed = state->window.start;
    int64_t start = state->window.start;
    for (bool enough = false; !enough && !stop_requested();) {
        int64_t phase_ns[STEP_PHASES] = {0};
        bool traced = trace_is_due(state, start);
        int64_t end = (traced ? run_traced_step : run_step)(state, start, phase_ns);
        record_step(state, start, end, phase_ns);
        enough = !record_loss(state) || is_finished(state, end);
        bool evaluation = evaluation_is_due(state);
        bool full = end - state->window.start >= state->window_ns;
        start = state->executor.device == NULL
                    ? end
                    : now_ns(); /* reading timestamps is part of no step */
        if (full || traced || evaluation) {
            finish_window(state, traced, evaluation, enough);
            start = state->window.start;
            enough = enough || state->fault.status != STATUS_DONE;
        }
    }
    close_window(state);
    return state->fault.status == STATUS_DONE;
}

/* ---- the command ---- */

static void find_op_ranges(const struct plan *plan, struct op_range *op_ranges) {
    for (int entry = 0; entry < plan->entries; entry++) {
        op_ranges[entry] = (struct op_range){-1, -1};
    }
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (op->entry >= 0 && op->phase != PHASE_EVALUATE) {
            struct op_range *op_range = &op_ranges[op->entry];
            op_range->first = op_range->last < 0 ? i : op_range->first;
            op_range->last = i;
        }
    }
}

static bool allocate_buffers(struct run_state *state) {
    int64_t epoch = min_i64(state->executor.epoch, LOSSES_MAX);
    state->progress.losses.epoch = epoch;
    state->stamps = calloc((size_t)state->executor.plan->ops, sizeof *state->stamps);
    state->op_ranges = calloc((size_t)state->executor.plan->entries + 1, sizeof *state->op_ranges);
    if (state->stamps == NULL || state->op_ranges == NULL) {
        return fault_set(&state->fault, STATUS_OUT_OF_MEMORY,
                         "not enough memory for timestamps; close other programs");
    }
    find_op_ranges(state->executor.plan, state->op_ranges);
    double traces = (double)state->settings->trace_steps;
    double min_ns = state->settings->max_seconds * 1e9 / (RUNNER_WINDOWS_MAX - traces);
    double requested = state->settings->window_ms * 1e6;
    state->window_ns = (int64_t)ceil(requested > min_ns ? requested : min_ns);
    return true;
}

static bool open_run(struct run_state *state) {
    if (!processor_is_supported(&state->fault)) {
        return false;
    }
    if (state->settings->trace_steps > TRACES_MAX) {
        return fault_set(&state->fault, STATUS_USAGE, "--trace-steps must be at most %d",
                         TRACES_MAX);
    }
    struct plan *plan = open_plan(state->settings->plan, &state->fault);
    if (plan == NULL) {
        return false;
    }
    uint64_t mask = state->mask = affinity_mask();
    bool stored = state->settings->input == INPUT_STORAGE;
    const struct dataset_settings data = {
        .file = state->settings->data,
        .storage = stored ? state->settings->folder : NULL,
    };
    state->executor.plan = plan;
    cycles_open(); /* before the threads of the executor */
    write_hello(state, mask);
    if (!jsonl_flush(&state->out) ||
        !executor_open(&state->executor, plan, &data, &state->settings->device, mask,
                       &state->fault) ||
        !allocate_buffers(state)) {
        return false;
    }
    write_memory(&state->out, plan, dataset_bytes(state->executor.dataset));
    if (!resume(state) ||
        !executor_open_device(&state->executor, &state->settings->device, &state->fault) ||
        !check_resumed_device(&state->checkpoint, &state->executor, &state->fault)) {
        return false;
    }
    if (stored) {
        write_input(state);
    }
    if (state->executor.device != NULL) {
        const struct device_facts *facts = device_facts(state->executor.device);
        write_device(&state->out, facts);
        for (int i = 0; i < facts->programs; i++) {
            json_begin(&state->out, "program");
            write_program(&state->out, &facts->program[i]);
            json_end(&state->out);
        }
    }
    jsonl_flush(&state->out);
    state->sampler = sampler_start(state->settings->folder, state->settings->period_ms, mask,
                                   state->executor.pool, &state->fault);
    return state->fault.status == STATUS_DONE;
}

/* Fails a run whose times would be worthless because it computed nothing. */
static bool check_answers(struct run_state *state, int changed, double answer_error) {
    if (state->executor.plan->training && changed == 0) {
        return fault_set(&state->fault, STATUS_WRONG_ANSWER,
                         "no parameter changed in %lld steps: nothing was trained",
                         (long long)state->executor.exec.step);
    }
    if (isnan(answer_error)) {
        return fault_set(&state->fault, STATUS_WRONG_ANSWER, "the matrix product is not finite");
    }
    return true;
}

static bool run_steps(struct run_state *state) {
    if (!warm_up(state) || !measure(state)) {
        return false;
    }
    if (stop_requested()) {
        return fault_set(&state->fault, STATUS_STOPPED, "stopped by SIGTERM at a step boundary");
    }
    return true;
}

static bool report_result(struct run_state *state) {
    int changed = executor_changed_tensors(&state->executor);
    double answer_error = executor_matmul_error(&state->executor);
    if (!check_answers(state, changed, answer_error)) {
        return false;
    }
    write_done(state, changed, answer_error);
    return jsonl_flush(&state->out);
}

int memory_main(const char *path) {
    struct fault fault = {STATUS_DONE, ""};
    struct jsonl_writer out;
    size_t dataset = 0;
    struct plan *plan = processor_is_supported(&fault) ? open_plan(path, &fault) : NULL;
    if (plan == NULL) {
        return report_fault(NULL, &fault);
    }
    for (int stream = 0; stream < plan->streams; stream++) {
        dataset += (size_t)round_up((int64_t)stream_bytes(&plan->stream[stream]), ALIGNMENT);
    }
    jsonl_to_stdout(&out, &fault);
    write_memory(&out, plan, dataset);
    return jsonl_flush(&out) ? STATUS_DONE : (int)fault.status;
}

int run_main(const struct run_settings *settings) {
    static struct run_state state;
    state.settings = settings;
    install_stop_handler();
    bool fine =
        jsonl_open(&state.out, settings->folder, "out.jsonl", false, BUFFER_BYTES, &state.fault) &&
        open_run(&state) && run_steps(&state);
    if (state.sampler != NULL) {
        fine = sampler_end(state.sampler, &state.out, &state.fault) && fine;
    }
    return fine && report_result(&state) ? STATUS_DONE : report_fault(&state.out, &state.fault);
}
