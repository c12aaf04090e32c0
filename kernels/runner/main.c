/* main.c - the command line of the runner.
 *
 * The one rule: arguments that runner.h does not define are refused. An extra word, a malformed
 * number or an option of another command is the fault "usage", before anything is read or
 * written. */
#include <string.h>

#include "../engine/os.h"
#include "commands.h"

const char *const INPUT_NAMES[INPUTS + 1] = {
    [INPUT_MEMORY] = "memory",
    [INPUT_STORAGE] = "storage",
};

/* An option: its name, and where its value is stored; one of the pointers is set. */
struct option {
    const char *name;
    double *real;
    int64_t *integer;
    const char **text;
    const char *const *names; /* the only texts that it takes, NULL at the end; NULL: any text */
};

/* The number of a word in a list of names, which ends with NULL; -1: it is not there. */
static int number_of(const char *word, const char *const *names) {
    int number = 0;
    while (names[number] != NULL && strcmp(names[number], word) != 0) {
        number++;
    }
    return names[number] != NULL ? number : -1;
}

static bool parse_number_option(const char *name, const char *word, bool integer, double *number,
                                struct fault *fault) {
    if (!parse_number(word, number) ||
        (integer && *number < 1e18 && *number > -1e18 && *number != (double)(int64_t)*number)) {
        return fault_set(fault, STATUS_USAGE, "'%.20s %.40s' is not %s", name, word,
                         integer ? "an integer" : "a number");
    }
    if (!(*number >= 0 && *number < 1e9)) {
        return fault_set(fault, STATUS_USAGE, "'%.20s %.40s' is not within 0 to 999999999", name,
                         word);
    }
    return true;
}

static bool parse_options(char **word, const struct option *options, struct fault *fault) {
    for (; *word != NULL; word += 2) {
        const struct option *option = options;
        while (option->name != NULL && strcmp(option->name, *word) != 0) {
            option++;
        }
        if (option->name == NULL || word[1] == NULL) {
            return fault_set(
                fault, STATUS_USAGE,
                "'%.40s' is not an option of this command, or has no value; see runner.h", *word);
        }
        double number = 0;
        if (option->names != NULL && number_of(word[1], option->names) < 0) {
            return fault_set(fault, STATUS_USAGE,
                             "'%.20s %.40s' is not a name of this option; `runner info` lists them",
                             *word, word[1]);
        }
        if (option->text != NULL) {
            *option->text = word[1];
        } else if (!parse_number_option(*word, word[1], option->integer != NULL, &number, fault)) {
            return false;
        } else if (option->integer != NULL) {
            *option->integer = (int64_t)number;
        } else {
            *option->real = number;
        }
    }
    return true;
}

/* Options whose values are names. */
struct names {
    const char *feed, *input, *submission;
};

static const struct names DEFAULT_NAMES = {"resident", "memory", "step"};

/* The options of every command that may use a device. */
#define OPENCL_OPTIONS(device, names)                                                              \
    {"--kernels", .text = &(device).kernels}, {"--tuned", .text = &(device).tuned},                \
        {"--device", .integer = &(device).number}, {"--fallback", .text = &(device).fallback},     \
        {"--kernel", .text = &(device).kernel, .names = KERNEL_NAMES},                             \
        {"--feed", .text = &(names).feed, .names = FEED_NAMES}, {                                  \
        "--submit", .text = &(names).submission, .names = SUBMISSION_NAMES                         \
    }

/* Sets the default of --kernels, the folder of the plan, and checks what depends on two options. */
static bool finish_device_settings(const char *plan, const struct names *names,
                                   struct device_settings *device, struct fault *fault) {
    static char folder[PATH_BYTES];
    const char *slash = strrchr(plan, '/');
    device->feed = (enum feed)number_of(names->feed, FEED_NAMES);
    device->submission = (enum submission)number_of(names->submission, SUBMISSION_NAMES);
    if (device->feed == FEED_PRELOADED && strcmp(names->input, "storage") == 0) {
        return fault_set(fault, STATUS_USAGE,
                         "--feed preloaded reads no batch from storage; use --feed resident");
    }
    if (device->kernel != NULL && strcmp(device->kernel, "tuned") == 0) {
        device->kernel = NULL;
    }
    if (device->fallback != NULL && strcmp(device->fallback, "cpu") != 0) {
        return fault_set(fault, STATUS_USAGE,
                         "'--fallback %.40s' is not supported; use --fallback cpu",
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

static int run_command(char **word, struct fault *fault) {
    struct run_settings settings = {.plan = word[0],
                                    .folder = word[1],
                                    .warmup = 3,
                                    .steps = 20,
                                    .max_seconds = 600,
                                    .window_ms = 50,
                                    .period_ms = 200,
                                    .checkpoint_s = 30};
    struct names names = DEFAULT_NAMES;
    const struct option options[] = {
        {"--warmup", .integer = &settings.warmup},
        {"--steps", .integer = &settings.steps},
        {"--seconds", .real = &settings.seconds},
        {"--max-seconds", .real = &settings.max_seconds},
        {"--window-ms", .real = &settings.window_ms},
        {"--period-ms", .real = &settings.period_ms},
        {"--trace-steps", .integer = &settings.trace_steps},
        {"--data", .text = &settings.data},
        {"--input", .text = &names.input, .names = INPUT_NAMES},
        {"--checkpoint", .text = &settings.checkpoint},
        {"--checkpoint-s", .real = &settings.checkpoint_s},
        OPENCL_OPTIONS(settings.device, names),
        {.name = NULL},
    };
    if (!parse_options(word + 2, options, fault) ||
        !finish_device_settings(word[0], &names, &settings.device, fault)) {
        return report_fault(NULL, fault);
    }
    settings.input = (enum input)number_of(names.input, INPUT_NAMES);
    return run_main(&settings);
}

static int dump_command(char **word, struct fault *fault) {
    struct run_settings settings = {.plan = word[0], .folder = word[1], .steps = 1};
    struct names names = DEFAULT_NAMES;
    const struct option options[] = {
        {"--steps", .integer = &settings.steps},
        {"--data", .text = &settings.data},
        OPENCL_OPTIONS(settings.device, names),
        {.name = NULL},
    };
    return parse_options(word + 2, options, fault) &&
                   finish_device_settings(word[0], &names, &settings.device, fault)
               ? dump_main(&settings)
               : report_fault(NULL, fault);
}

static int tune_command(char **word, struct fault *fault) {
    struct tune_settings settings = {.folder = word[0], .launches = 5, .rounds = 3};
    struct names names = DEFAULT_NAMES;
    const struct option options[] = {
        {"--launches", .integer = &settings.launches},
        {"--rounds", .integer = &settings.rounds},
        OPENCL_OPTIONS(settings.device, names),
        {.name = NULL},
    };
    settings.device.kernels = word[0];
    return parse_options(word + 1, options, fault) &&
                   finish_device_settings(word[0], &names, &settings.device, fault)
               ? tune_main(&settings)
               : report_fault(NULL, fault);
}

static int sample_command(char **word, struct fault *fault) {
    struct sample_settings settings = {.folder = word[0], .period_ms = 200, .seconds = 60};
    const struct option options[] = {
        {"--period-ms", .real = &settings.period_ms},
        {"--seconds", .real = &settings.seconds},
        {.name = NULL},
    };
    return parse_options(word + 1, options, fault) ? sample_main(&settings)
                                                   : report_fault(NULL, fault);
}

static int watchdog_command(char **word, struct fault *fault) {
    double timeout_s = 60;
    const struct option options[] = {{"--timeout-s", .real = &timeout_s}, {.name = NULL}};
    return parse_options(word + 1, options, fault) ? watchdog_main(word[0], timeout_s)
                                                   : report_fault(NULL, fault);
}

static int wait_command(char **word, struct fault *fault) {
    double pid = 0, seconds = 15;
    const struct option options[] = {{"--seconds", .real = &seconds}, {.name = NULL}};
    if (!parse_number_option("PID", word[0], true, &pid, fault) ||
        (pid < 1 && !fault_set(fault, STATUS_USAGE, "'PID %.40s' is not a process", word[0])) ||
        !parse_options(word + 1, options, fault)) {
        return report_fault(NULL, fault);
    }
    return wait_main((int64_t)pid, seconds);
}

static int info_command(char **word, struct fault *fault) {
    const struct option options[] = {{.name = NULL}};
    return parse_options(word, options, fault) ? info_main() : report_fault(NULL, fault);
}

static int memory_command(char **word, struct fault *fault) {
    const struct option options[] = {{.name = NULL}};
    return parse_options(word + 1, options, fault) ? memory_main(word[0])
                                                   : report_fault(NULL, fault);
}

int main(int count, char **word) {
    static const struct {
        const char *name;
        int words;
        int (*run)(char **word, struct fault *fault);
    } commands[] = {{"info", 0, info_command},     {"run", 2, run_command},
                    {"sample", 1, sample_command}, {"watchdog", 1, watchdog_command},
                    {"wait", 1, wait_command},     {"dump", 2, dump_command},
                    {"memory", 1, memory_command}, {"tune", 1, tune_command}};
    struct fault fault = {STATUS_DONE, ""};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (count >= 2 + commands[i].words && strcmp(word[1], commands[i].name) == 0) {
            return commands[i].run(word + 2, &fault);
        }
    }
    /* A simulated phone recognises a pushed runner by the first word of this text. */
    fault_set(&fault, STATUS_USAGE,
              "farmhand-runner has the commands info, run PLAN DIR, sample DIR, watchdog DIR, wait "
              "PID, dump PLAN DIR, memory PLAN and tune DIR; see runner.h");
    return report_fault(NULL, &fault);
}
