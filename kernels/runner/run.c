/* run.c - `run`: the timed loop.
 *
 * The one rule: inside a step there is nothing but the step. Stamps are taken at the edges of its
 * phases (of its operations, in a traced step); lines are made and written between two windows,
 * where no clock that counts is running. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/work.h"
#include "sampler.h"
#include "system.h"
#include "verbs.h"

enum {
    STEP_PHASES = PHASE_EVALUATE,
    TRACES_MAX = 1024,
    TRACE_LINE_OPS = 2000,
    LOSSES_MAX = 4096,
    SAY_ROOM = 1 << 18
};

static const int64_t FLUSH_NS = 500000000;

/* Consecutive steps that are told together. */
struct window {
    int64_t first, steps, start, ns, shortest, longest;
    int64_t phase_ns[STEP_PHASES];
    int64_t device_ns[DEVICE_TIMES];
    bool unknown; /* some step's device said nothing sensible of its times */
};

/* Means over the first and the last round of batches. */
struct losses {
    int64_t round, seen;
    double first_sum;
    float *last; /* a ring of `round` values */
};

/* The operations of one entry of the header, from the first to the last; -1: none. */
struct span {
    int first, last;
};

struct run {
    const struct run_settings *settings;
    struct work work;
    struct say out;
    struct fault fault;
    struct window window;
    struct losses losses;
    struct sampler *sampler;
    int64_t *stamps;    /* of a traced step: when each operation ended */
    struct span *spans; /* by entry */
    int64_t traced, trace_start;
    int64_t window_ns, flushed;
    int64_t began, measured, measured_ns, windows;
};

static volatile sig_atomic_t asked_to_stop;

static void note_stop(int signal_number) {
    (void)signal_number;
    asked_to_stop = 1;
}

void listen_for_stop(void) { signal(SIGTERM, note_stop); }

bool stop_asked(void) { return asked_to_stop != 0; }

struct plan *open_plan(const char *path, struct fault *fault) {
    size_t count = 0;
    char *bytes = read_whole(path, PLAN_BYTES_MAX, &count);
    if (bytes == NULL) {
        fault_say(fault, RUNNER_BAD_PLAN, "%.200s: %s", path, system_reason());
        return NULL;
    }
    return plan_read(bytes, count, fault);
}

/* -- what is said */

static void say_hello(struct run *run, uint64_t mask) {
    char hex[20];
    compose(hex, sizeof hex, "%llx", (unsigned long long)mask);
    say_begin(&run->out, "hello");
    say_int(&run->out, "contract", RUNNER_CONTRACT);
    say_int(&run->out, "pid", getpid());
    say_word(&run->out, "case", run->work.plan->digest);
    say_word(&run->out, "mask", hex);
    say_int(&run->out, "threads", run->work.plan->threads);
    say_int(&run->out, "t_ns", now_ns());
    say_raw(&run->out, "provenance", provenance());
    say_end(&run->out);
}

static void say_memory(struct run *run) {
    static const char *const names[] = {"parameter", "gradient", "state", "activation", "input"};
    say_begin(&run->out, "memory");
    for (int arena = 0; arena < ARENAS; arena++) {
        say_int(&run->out, names[arena], (int64_t)run->work.plan->arena[arena]);
    }
    say_int(&run->out, "workspace", (int64_t)run->work.workspace_bytes);
    say_int(&run->out, "dataset", (int64_t)dataset_bytes(run->work.dataset));
    say_end(&run->out);
}

void say_device(struct say *say, const struct device_facts *facts) {
    say_begin(say, "device");
    say_word(say, "platform", facts->device.platform);
    say_word(say, "device", facts->device.name);
    say_word(say, "version", facts->device.version);
    say_word(say, "driver", facts->device.driver);
    say_int(say, "build_ns", facts->build_ns);
    say_int(say, "copy_ns", facts->copy_ns);
    say_int(say, "programs", facts->programs);
    say_int(say, "tuned", facts->tuned);
    say_end(say);
}

/* Null where a device's clock made no sense. */
static void say_times(struct run *run, const char *name, const int64_t *ns, int count) {
    if (run->window.unknown) {
        say_null(&run->out, name);
        return;
    }
    say_open_list(&run->out, name, '[');
    for (int i = 0; i < count; i++) {
        say_int(&run->out, NULL, ns[i]);
    }
    say_close_list(&run->out, ']');
}

static void say_window(struct run *run) {
    const struct window *window = &run->window;
    say_begin(&run->out, "window");
    say_int(&run->out, "first", window->first);
    say_int(&run->out, "n", window->steps);
    say_int(&run->out, "t_ns", window->start);
    say_int(&run->out, "ns", window->ns);
    say_int(&run->out, "ns_min", window->shortest);
    say_int(&run->out, "ns_max", window->longest);
    say_times(run, "phases_ns", window->phase_ns, STEP_PHASES);
    if (run->work.device != NULL) {
        say_times(run, "device_ns", window->device_ns, DEVICE_TIMES);
    }
    say_end(&run->out);
}

/* When an entry of the header began and ended in the traced step; false: it took no part. */
static bool find_entry(const struct run *run, int entry, int64_t *start, int64_t *end) {
    struct span span = run->spans[entry];
    if (span.last < 0) {
        return false;
    }
    *start = span.first == 0 ? run->trace_start : run->stamps[span.first - 1];
    *end = run->stamps[span.last];
    return true;
}

static void say_trace_line(struct run *run, int first, int count) {
    int64_t origin = INT64_MAX, start = 0, end = 0;
    for (int i = 0; i < count; i++) {
        if (find_entry(run, first + i, &start, &end) && start < origin) {
            origin = start;
        }
    }
    say_begin(&run->out, "trace");
    say_int(&run->out, "step", run->measured - 1);
    say_int(&run->out, "t_ns", origin == INT64_MAX ? run->trace_start : origin);
    say_int(&run->out, "first", first);
    say_open_list(&run->out, "ends_ns", '[');
    for (int i = 0; i < count; i++) {
        say_int(&run->out, NULL, find_entry(run, first + i, &start, &end) ? end - origin : -1);
    }
    say_close_list(&run->out, ']');
    say_end(&run->out);
}

static void say_trace(struct run *run) {
    int entries = run->work.plan->entries;
    for (int first = 0; first < entries; first += TRACE_LINE_OPS) {
        int rest = entries - first;
        say_trace_line(run, first, rest < TRACE_LINE_OPS ? rest : TRACE_LINE_OPS);
    }
}

/* The mean of so many losses, ending with step number `end`. */
static double mean_loss(const struct losses *losses, int64_t end, int64_t count) {
    double sum = 0;
    for (int64_t i = end - count; i < end; i++) {
        sum += losses->last[i % losses->round];
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* The first and the last round; of a run that was shorter than one, its halves. */
static void compare_losses(const struct losses *losses, double *first, double *last) {
    if (losses->seen > losses->round) {
        *first = losses->first_sum / (double)losses->round;
        *last = mean_loss(losses, losses->seen, losses->round);
    } else {
        int64_t half = (losses->seen + 1) / 2;
        *first = mean_loss(losses, half, half);
        *last = mean_loss(losses, losses->seen, half);
    }
}

static void say_done(struct run *run, int moved, double answer_error) {
    double first = NAN, last = NAN;
    compare_losses(&run->losses, &first, &last);
    say_begin(&run->out, "done");
    say_int(&run->out, "steps", run->measured);
    say_int(&run->out, "ns", run->measured_ns);
    say_int(&run->out, "t_ns", now_ns());
    say_int(&run->out, "peak_rss_kb", peak_rss_kb());
    say_real(&run->out, "loss_first", first);
    say_real(&run->out, "loss_last", last);
    say_flag(&run->out, "parameters_changed", moved > 0);
    say_int(&run->out, "parameters", run->work.parameters);
    say_int(&run->out, "macs", run->work.macs);
    say_int(&run->out, "learned", run->work.learned_count);
    say_int(&run->out, "moved", moved);
    say_int(&run->out, "fallbacks",
            run->work.device == NULL ? 0 : device_facts(run->work.device)->fallbacks);
    say_real(&run->out, "answer_error", answer_error < 0 ? NAN : answer_error);
    say_end(&run->out);
}

/* -- one step */

/* Runs a step that began at `start`; answers when it ended. */
static int64_t run_step(struct run *run, int64_t start, int64_t phase_ns[STEP_PHASES]) {
    const struct work *work = &run->work;
    int64_t before = start;
    for (int i = 0; i < work->stretches; i++) {
        const struct stretch *stretch = &work->step[i];
        work_run(&run->work, stretch->first, stretch->last);
        int64_t now = now_ns();
        phase_ns[stretch->phase] += now - before;
        before = now;
    }
    work_wait(&run->work, true);
    return work->device == NULL ? before : now_ns();
}

static int64_t run_traced_step(struct run *run, int64_t start, int64_t phase_ns[STEP_PHASES]) {
    const struct work *work = &run->work;
    int64_t now = start;
    run->trace_start = start;
    for (int i = 0; i < work->stretches; i++) {
        const struct stretch *stretch = &work->step[i];
        int64_t before = now;
        for (int op = stretch->first; op < stretch->last; op++) {
            work_run(&run->work, op, op + 1);
            work_wait(&run->work, false);
            now = run->stamps[op] = now_ns();
        }
        phase_ns[stretch->phase] += now - before;
    }
    work_wait(&run->work, true);
    return work->device == NULL ? now : now_ns();
}

/* What a device says of the step that has just ended, in place of what its host could see: there,
 * enqueueing was over long before the work was. Load is what the others leave. */
static void ask_device(struct run *run, int64_t ns, int64_t phase_ns[STEP_PHASES]) {
    struct device_tally tally = {.known = true};
    if (run->work.device == NULL) {
        return;
    }
    device_tell(run->work.device, &tally);
    phase_ns[PHASE_LOAD] = ns;
    for (int phase = PHASE_LOAD + 1; phase < STEP_PHASES; phase++) {
        phase_ns[phase] = tally.phase_ns[phase];
        phase_ns[PHASE_LOAD] -= tally.phase_ns[phase];
    }
    for (int i = 0; i < DEVICE_TIMES; i++) {
        run->window.device_ns[i] += tally.ns[i];
        ns -= tally.ns[i];
    }
    /* A clock that runs faster than the host's by more than it should is no clock. */
    run->window.unknown = run->window.unknown || !tally.known || ns < 0 || phase_ns[PHASE_LOAD] < 0;
}

/* What has to be known of a step once it is over. False: its loss is no number. */
static bool note_loss(struct run *run) {
    struct losses *losses = &run->losses;
    const struct tensor *loss = run->work.plan->loss;
    run->work.scene.step++;
    if (run->work.device != NULL && !device_is_well(run->work.device, &run->fault)) {
        return false;
    }
    if (loss == NULL) {
        return true;
    }
    float value = floats(loss)[0];
    if (losses->seen < losses->round) {
        losses->first_sum += value;
    }
    losses->last[losses->seen++ % losses->round] = value;
    if (!isfinite(value)) {
        return fault_say(&run->fault, RUNNER_WRONG_ANSWER, "the loss of step %lld is not finite",
                         (long long)losses->seen);
    }
    return true;
}

/* -- windows */

static void open_window(struct run *run) {
    run->window = (struct window){.first = run->measured, .start = now_ns()};
}

static void add_step(struct run *run, int64_t ns, const int64_t phase_ns[STEP_PHASES]) {
    struct window *window = &run->window;
    window->shortest = window->steps == 0 || ns < window->shortest ? ns : window->shortest;
    window->longest = ns > window->longest ? ns : window->longest;
    window->ns += ns;
    window->steps++;
    for (int phase = 0; phase < STEP_PHASES; phase++) {
        window->phase_ns[phase] += phase_ns[phase];
    }
    run->measured++;
    run->measured_ns += ns;
}

static void close_window(struct run *run) {
    if (run->window.steps > 0) {
        say_window(run);
        run->windows++;
    }
}

static void flush_if_due(struct run *run) {
    int64_t now = now_ns();
    if (now - run->flushed >= FLUSH_NS || run->out.used > SAY_ROOM / 2) {
        say_flush(&run->out);
        run->flushed = now;
        if (run->sampler != NULL && sampler_failed(run->sampler)) {
            fault_say(&run->fault, RUNNER_IO, "the readings cannot be written any more");
        }
    }
}

/* From 0 to 1 and beyond: how much of what was asked has been measured by now. */
static double progress(const struct run *run, int64_t now) {
    const struct run_settings *settings = run->settings;
    double seconds = (double)run->measured_ns / 1e9;
    double steps = settings->steps > 0 ? (double)run->measured / (double)settings->steps : 1;
    double time = settings->seconds > 0 ? seconds / settings->seconds : 1;
    double elapsed = (double)(now - run->began) / 1e9;
    double limit = settings->max_seconds > 0 ? elapsed / settings->max_seconds : 1;
    double least = steps < time ? steps : time;
    return limit > least ? limit : least;
}

/* The last window that may be told is kept for whatever is in hand. */
static bool is_enough(const struct run *run, int64_t now) {
    return run->windows >= RUNNER_WINDOWS_MAX - 1 || progress(run, now) >= 1;
}

static bool trace_is_due(const struct run *run, int64_t now) {
    int64_t traces = run->settings->trace_steps;
    return run->traced < traces && progress(run, now) >= (double)run->traced / (double)traces;
}

static bool evaluation_is_due(const struct run *run) {
    const struct work *work = &run->work;
    return work->evaluations > 0 && work->plan->evaluate > 0 &&
           run->measured % work->plan->evaluate == 0;
}

static void evaluate(struct run *run) {
    const struct work *work = &run->work;
    double right = 0;
    int looks = 0;
    int64_t start = now_ns();
    for (int i = 0; i < work->evaluations; i++) {
        for (int op = work->evaluation[i].first; op < work->evaluation[i].last; op++) {
            work_run(&run->work, op, op + 1);
            if (strcmp(work->plan->op[op].kind->name, "accuracy") == 0) {
                work_fetch(work, work->plan->op[op].out[0]);
                right += floats(work->plan->op[op].out[0])[0];
                looks++;
            }
        }
    }
    work_wait(&run->work, false);
    int64_t end = now_ns();
    say_begin(&run->out, "evaluation");
    say_int(&run->out, "step", run->measured);
    say_int(&run->out, "t_ns", start);
    say_int(&run->out, "ns", end - start);
    say_real(&run->out, "accuracy", looks > 0 ? right / looks : NAN);
    say_end(&run->out);
}

/* Adds a step that took so long, in a window of its own if it is as long as one. */
static void take_step(struct run *run, int64_t start, int64_t end, int64_t *phase_ns) {
    if (end - start >= run->window_ns && run->window.steps > 0) {
        close_window(run);
        run->window = (struct window){.first = run->measured, .start = start};
    }
    ask_device(run, end - start, phase_ns);
    add_step(run, end - start, phase_ns);
}

static bool warm_up(struct run *run) {
    for (int64_t i = 0; i < run->settings->warmup && !stop_asked(); i++) {
        int64_t phase_ns[STEP_PHASES] = {0};
        run_step(run, now_ns(), phase_ns);
        ask_device(run, 0, phase_ns);
        if (!note_loss(run)) {
            return false;
        }
    }
    return true;
}

/* Tells the window in hand and what belongs behind it; the next one begins after that. */
static void turn_page(struct run *run, bool traced, bool evaluation) {
    close_window(run);
    if (traced) {
        run->traced++;
        say_trace(run);
    }
    if (evaluation) {
        evaluate(run);
    }
    flush_if_due(run);
    open_window(run);
}

static bool measure(struct run *run) {
    open_window(run);
    run->began = run->flushed = run->window.start;
    int64_t start = run->window.start;
    for (bool enough = false; !enough && !stop_asked();) {
        int64_t phase_ns[STEP_PHASES] = {0};
        bool traced = trace_is_due(run, start);
        int64_t end = (traced ? run_traced_step : run_step)(run, start, phase_ns);
        take_step(run, start, end, phase_ns);
        enough = !note_loss(run) || is_enough(run, end);
        bool evaluation = evaluation_is_due(run);
        bool full = end - run->window.start >= run->window_ns;
        start = run->work.device == NULL ? end : now_ns(); /* reading stamps is nobody's step */
        if (full || traced || evaluation) {
            turn_page(run, traced, evaluation);
            start = run->window.start;
            enough = enough || run->fault.exit != RUNNER_DONE;
        }
    }
    close_window(run);
    return run->fault.exit == RUNNER_DONE;
}

/* -- the whole */

static void find_spans(const struct plan *plan, struct span *spans) {
    for (int entry = 0; entry < plan->entries; entry++) {
        spans[entry] = (struct span){-1, -1};
    }
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (op->entry >= 0 && op->phase != PHASE_EVALUATE) {
            struct span *span = &spans[op->entry];
            span->first = span->last < 0 ? i : span->first;
            span->last = i;
        }
    }
}

static bool make_ready(struct run *run) {
    int64_t round = run->work.round < LOSSES_MAX ? run->work.round : LOSSES_MAX;
    run->losses.round = round;
    run->losses.last = calloc((size_t)round, sizeof *run->losses.last);
    run->stamps = calloc((size_t)run->work.plan->ops, sizeof *run->stamps);
    run->spans = calloc((size_t)run->work.plan->entries + 1, sizeof *run->spans);
    if (run->losses.last == NULL || run->stamps == NULL || run->spans == NULL) {
        return fault_say(&run->fault, RUNNER_OUT_OF_MEMORY, "no memory for the run's own notes");
    }
    find_spans(run->work.plan, run->spans);
    double traces = (double)run->settings->trace_steps;
    double least = run->settings->max_seconds * 1e9 / (RUNNER_WINDOWS_MAX - traces);
    double asked = run->settings->window_ms * 1e6;
    run->window_ns = (int64_t)ceil(asked > least ? asked : least);
    return true;
}

static bool prepare(struct run *run) {
    if (!processor_fits(&run->fault)) {
        return false;
    }
    if (run->settings->trace_steps > TRACES_MAX) {
        return fault_say(&run->fault, RUNNER_USAGE, "--trace-steps: %d at most", TRACES_MAX);
    }
    struct plan *plan = open_plan(run->settings->plan, &run->fault);
    if (plan == NULL) {
        return false;
    }
    uint64_t mask = system_mask();
    run->work.plan = plan;
    say_hello(run, mask);
    if (!say_flush(&run->out) ||
        !work_open(&run->work, plan, run->settings->data, &run->settings->device, mask,
                   &run->fault) ||
        !make_ready(run)) {
        return false;
    }
    say_memory(run);
    if (run->work.device != NULL) {
        say_device(&run->out, device_facts(run->work.device));
    }
    say_flush(&run->out);
    run->sampler = sampler_beside(run->settings->folder, run->settings->period_ms, mask,
                                  &run->fault);
    return run->fault.exit == RUNNER_DONE;
}

/* What would make the numbers worthless, whatever they are. */
static bool check_answers(struct run *run, int moved, double answer_error) {
    if (run->work.plan->training && moved == 0) {
        return fault_say(&run->fault, RUNNER_WRONG_ANSWER,
                         "no parameter changed in %lld steps: nothing was trained",
                         (long long)run->work.scene.step);
    }
    if (isnan(answer_error)) {
        return fault_say(&run->fault, RUNNER_WRONG_ANSWER, "the product is not finite");
    }
    return true;
}

static bool work_through(struct run *run) {
    if (!warm_up(run) || !measure(run)) {
        return false;
    }
    if (stop_asked()) {
        return fault_say(&run->fault, RUNNER_STOPPED, "stopped by SIGTERM at a step boundary");
    }
    return true;
}

static bool conclude(struct run *run) {
    int moved = work_moved(&run->work);
    double answer_error = work_answer_error(&run->work);
    if (!check_answers(run, moved, answer_error)) {
        return false;
    }
    say_done(run, moved, answer_error);
    return say_flush(&run->out);
}

int run(const struct run_settings *settings) {
    static struct run run;
    run.settings = settings;
    listen_for_stop();
    bool fine = say_open(&run.out, settings->folder, "out.jsonl", false, SAY_ROOM, &run.fault) &&
                prepare(&run) && work_through(&run);
    if (run.sampler != NULL) {
        fine = sampler_end(run.sampler, &run.out, &run.fault) && fine;
    }
    return fine && conclude(&run) ? RUNNER_DONE : say_fault(&run.out, &run.fault);
}
