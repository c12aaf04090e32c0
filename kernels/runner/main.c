/* main.c - the runner's command line.
 *
 * The one rule: what runner.h does not have is refused. A word too many, a number that is not one
 * or an option of another verb is the fault "usage", and nothing was touched by then. */
#include <string.h>

#include "system.h"
#include "verbs.h"

/* One option: where its value goes, and what it may be. */
struct option {
    const char *name;
    double *real;
    int64_t *whole;
    const char **text;
};

static bool read_number(const char *name, const char *word, bool whole, double *number,
                        struct fault *fault) {
    if (!parse_number(word, number) || (whole && *number < 1e18 && *number > -1e18 &&
                                        *number != (double)(int64_t)*number)) {
        return fault_say(fault, RUNNER_USAGE, "'%.20s %.40s' is not a %snumber", name, word,
                         whole ? "whole " : "");
    }
    if (!(*number >= 0 && *number < 1e9)) {
        return fault_say(fault, RUNNER_USAGE, "'%.20s %.40s' is out of range", name, word);
    }
    return true;
}

static bool read_options(char **word, const struct option *options, struct fault *fault) {
    for (; *word != NULL; word += 2) {
        const struct option *option = options;
        while (option->name != NULL && strcmp(option->name, *word) != 0) {
            option++;
        }
        if (option->name == NULL || word[1] == NULL) {
            return fault_say(fault, RUNNER_USAGE, "'%.40s' is no option of this verb; see runner.h",
                             *word);
        }
        double number = 0;
        if (option->text != NULL) {
            *option->text = word[1];
        } else if (!read_number(*word, word[1], option->whole != NULL, &number, fault)) {
            return false;
        } else if (option->whole != NULL) {
            *option->whole = (int64_t)number;
        } else {
            *option->real = number;
        }
    }
    return true;
}

/* What every verb that computes may be told of a device. */
#define OPENCL_OPTIONS(device)                                                                     \
    {"--kernels", .text = &(device).kernels}, {"--tuned", .text = &(device).tuned},                \
        {"--device", .whole = &(device).number}, {"--fallback", .text = &(device).fallback}

/* Kernels lie beside the plan, unless something else is said. */
static bool settle_device(const char *plan, struct device_settings *device, struct fault *fault) {
    static char folder[PATH_BYTES];
    const char *slash = strrchr(plan, '/');
    if (device->fallback != NULL && strcmp(device->fallback, "cpu") != 0) {
        return fault_say(fault, RUNNER_USAGE, "'--fallback %.40s': only the CPU can step in",
                         device->fallback);
    }
    if (device->kernels == NULL) {
        size_t length = slash == NULL ? 0 : (size_t)(slash - plan);
        length = length < sizeof folder ? length : sizeof folder - 1;
        memcpy(folder, slash == NULL ? "." : plan, slash == NULL ? 2 : length);
        device->kernels = folder;
    }
    return true;
}

static int do_run(char **word, struct fault *fault) {
    struct run_settings settings = {.plan = word[0],
                                    .folder = word[1],
                                    .warmup = 3,
                                    .steps = 20,
                                    .max_seconds = 600,
                                    .window_ms = 50,
                                    .period_ms = 200};
    const struct option options[] = {
        {"--warmup", .whole = &settings.warmup},
        {"--steps", .whole = &settings.steps},
        {"--seconds", .real = &settings.seconds},
        {"--max-seconds", .real = &settings.max_seconds},
        {"--window-ms", .real = &settings.window_ms},
        {"--period-ms", .real = &settings.period_ms},
        {"--trace-steps", .whole = &settings.trace_steps},
        {"--data", .text = &settings.data},
        OPENCL_OPTIONS(settings.device),
        {.name = NULL},
    };
    return read_options(word + 2, options, fault) && settle_device(word[0], &settings.device, fault)
               ? run(&settings)
               : say_fault(NULL, fault);
}

static int do_dump(char **word, struct fault *fault) {
    struct run_settings settings = {.plan = word[0], .folder = word[1], .steps = 1};
    const struct option options[] = {
        {"--steps", .whole = &settings.steps},
        {"--data", .text = &settings.data},
        OPENCL_OPTIONS(settings.device),
        {.name = NULL},
    };
    return read_options(word + 2, options, fault) && settle_device(word[0], &settings.device, fault)
               ? dump(&settings)
               : say_fault(NULL, fault);
}

static int do_tune(char **word, struct fault *fault) {
    struct tune_settings settings = {.folder = word[0], .launches = 5, .rounds = 3};
    const struct option options[] = {
        {"--launches", .whole = &settings.launches},
        {"--rounds", .whole = &settings.rounds},
        OPENCL_OPTIONS(settings.device),
        {.name = NULL},
    };
    settings.device.kernels = word[0];
    return read_options(word + 1, options, fault) && settle_device(word[0], &settings.device, fault)
               ? tune(&settings)
               : say_fault(NULL, fault);
}

static int do_sample(char **word, struct fault *fault) {
    struct sample_settings settings = {.folder = word[0], .period_ms = 200, .seconds = 60};
    const struct option options[] = {
        {"--period-ms", .real = &settings.period_ms},
        {"--seconds", .real = &settings.seconds},
        {.name = NULL},
    };
    return read_options(word + 1, options, fault) ? sample(&settings) : say_fault(NULL, fault);
}

static int do_guard(char **word, struct fault *fault) {
    double silence_s = 60;
    const struct option options[] = {{"--silence-s", .real = &silence_s}, {.name = NULL}};
    return read_options(word + 1, options, fault) ? guard(word[0], silence_s)
                                                  : say_fault(NULL, fault);
}

static int do_info(char **word, struct fault *fault) {
    const struct option options[] = {{.name = NULL}};
    return read_options(word, options, fault) ? info() : say_fault(NULL, fault);
}

int main(int count, char **word) {
    static const struct {
        const char *name;
        int words;
        int (*run)(char **word, struct fault *fault);
    } verbs[] = {{"info", 0, do_info},
                 {"run", 2, do_run},
                 {"sample", 1, do_sample},
                 {"guard", 1, do_guard},
                 {"dump", 2, do_dump},
                 {"tune", 1, do_tune}};
    struct fault fault = {RUNNER_DONE, ""};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (count >= 2 + verbs[i].words && strcmp(word[1], verbs[i].name) == 0) {
            return verbs[i].run(word + 2, &fault);
        }
    }
    /* These first words are also how a simulated phone knows that a pushed file is a runner. */
    fault_say(&fault, RUNNER_USAGE,
              "farmhand-runner knows: info, run PLAN DIR, sample DIR, guard DIR, dump PLAN DIR, "
              "tune DIR; see runner.h");
    return say_fault(NULL, &fault);
}
