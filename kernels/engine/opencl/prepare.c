/* prepare.c - from a line of the table to a kernel with its arguments, ready to be enqueued.
 *
 * The one rule: what can fail, fails here, before the first step, with a sentence that names the
 * kernel. Programs are built once for each file and its options. */
#include "session.h"

#ifndef RUNNER_STATIC

#include <stdlib.h>
#include <string.h>

#include "../../runner/system.h"

enum { SOURCE_BYTES_MAX = 1 << 20, LOG_BYTES = 220, GROUP_USUAL = 64 };

/* -- programs */

/* Groups of the usual size, or of what the device allows; a power of two either way. */
static int group_of(const struct session *session) {
    int group = GROUP_USUAL;
    while (group > 1 && (uint64_t)group > session->facts.device.max_group) {
        group /= 2;
    }
    return group;
}

/* The shape of a group is a number of the launch: programs that differ in nothing else are one. */
static bool is_of_launch(const char *word) {
    return strncmp(word, "GX=", 3) == 0 || strncmp(word, "GY=", 3) == 0;
}

static size_t add_option(char *options, size_t used, const char *name, const char *value,
                         int group) {
    size_t room = OPTIONS_BYTES - used;
    if (strncmp(value, "GROUP", 5) == 0) {
        return used + compose(options + used, room, "-D%s=%d ", name, group);
    }
    char word[WORD_BYTES] = "";
    recipe_word(value, 0, word);
    return used + compose(options + used, room, "-D%s=%s ", name, word);
}

/* "-w -DTILE=16 ..." of a line; what was tuned goes before the line's own. Warnings are off, for
 * some drivers print them straight onto the screen. */
static void list_options(const struct recipe *recipe, char options[OPTIONS_BYTES]) {
    char word[WORD_BYTES];
    size_t used = compose(options, OPTIONS_BYTES, "-w ");
    for (int at = 3; recipe_word(recipe->line, at, word) && strcmp(word, ":") != 0; at++) {
        char *equals = strchr(word, '=');
        if (equals == NULL || equals[1] == '=' || is_of_launch(word)) {
            continue;
        }
        *equals = '\0';
        used = add_option(options, used, word, recipe_value(recipe, word), recipe->group);
    }
    /* A tuned name that the line does not have is passed on all the same. */
    for (int at = 0; recipe_word(recipe->tuned, at, word); at++) {
        if (strchr(word, '=') != NULL && !is_of_launch(word) && strstr(options, word) == NULL) {
            used += compose(options + used, OPTIONS_BYTES - used, "-D%s ", word);
        }
    }
    const struct product *product = recipe->product;
    if (recipe->op == NULL) {
        compose(options + used, OPTIONS_BYTES - used, "-DTA=%d -DTB=%d", product->turned_a,
                product->turned_b);
    }
}

static bool refuse_build(struct session *session, cl_handle program, const char *file,
                         struct fault *fault) {
    char log[4096] = "", *from = log;
    session->cl.GetProgramBuildInfo(program, session->facts.device.id, CL_PROGRAM_BUILD_LOG,
                                    sizeof log - 1, log, NULL);
    char *wrong = strstr(log, "error");
    while (wrong != NULL && wrong > from && wrong[-1] != '\n') {
        wrong--;
    }
    from = wrong != NULL ? wrong : from;
    from[LOG_BYTES] = '\0';
    return fault_say(fault, RUNNER_DEVICE, "%s does not build for %.60s: %s", file,
                     session->facts.device.name, from);
}

static cl_handle build(struct session *session, const char *file, const char *options,
                       struct fault *fault) {
    char path[PATH_BYTES];
    size_t size = 0;
    int32_t status = 0;
    const char *source =
        join_path(path, session->kernels, file) ? read_whole(path, SOURCE_BYTES_MAX, &size) : NULL;
    if (source == NULL) {
        fault_say(fault, RUNNER_BAD_PLAN, "the kernels are not in %.200s: %s: %s", session->kernels,
                  file, system_reason());
        return NULL;
    }
    int64_t start = now_ns();
    cl_handle program =
        session->cl.CreateProgramWithSource(session->context, 1, &source, &size, &status);
    if (program == NULL) {
        session_refuse(session, "clCreateProgramWithSource", status, fault);
        return NULL;
    }
    status = session->cl.BuildProgram(program, 1, &session->facts.device.id, options, NULL, NULL);
    session->facts.build_ns += now_ns() - start;
    if (status != CL_SUCCESS) {
        refuse_build(session, program, file, fault);
        return NULL;
    }
    return program;
}

/* The program of a file and its options, built when it is first asked for. */
static cl_handle program_of(struct session *session, const char *file, const char *options,
                            struct fault *fault) {
    char key[WORD_BYTES + OPTIONS_BYTES];
    compose(key, sizeof key, "%s %s", file, options);
    int at = 0;
    while (at < session->facts.programs && strcmp(session->program[at].key, key) != 0) {
        at++;
    }
    if (at < session->facts.programs) {
        return session->program[at].built;
    }
    if (at == PROGRAMS_MAX) {
        fault_say(fault, RUNNER_UNSUPPORTED, "more than %d programs are asked for", PROGRAMS_MAX);
        return NULL;
    }
    struct program *program = &session->program[at];
    memcpy(program->key, key, sizeof key);
    program->built = build(session, file, options, fault);
    session->facts.programs += program->built != NULL;
    return program->built;
}

/* -- arguments */

/* One launch while it is made. */
struct making {
    struct session *session;
    struct recipe recipe;
    struct launch *launch;
    int argument;
    struct fault *fault;
};

static bool set(struct making *making, size_t bytes, const void *value) {
    int32_t status = making->session->cl.SetKernelArg(making->launch->kernel,
                                                      (uint32_t)making->argument++, bytes, value);
    return status == CL_SUCCESS ||
           session_refuse(making->session, "clSetKernelArg", status, making->fault);
}

static bool set_real(struct making *making, float value) {
    return set(making, sizeof value, &value);
}

static bool set_memory(struct making *making, const struct tensor *tensor) {
    cl_handle memory = NULL;
    if (tensor != NULL) {
        memory = making->session->memory_of(making->session->owner, tensor);
    }
    return set(making, sizeof memory, tensor == NULL ? NULL : &memory);
}

static bool count_of(struct making *making, const char *word, int64_t *count) {
    *count = recipe_count(&making->recipe, word);
    return (*count >= 0 && *count <= INT32_MAX) ||
           fault_say(making->fault, RUNNER_UNSUPPORTED, "a launch is too large: '%s' is %lld", word,
                     (long long)*count);
}

/* s:COUNT or s: its memory is taken when all are known. */
static bool set_scratch(struct making *making, const char *word) {
    int which = *word == 't';
    size_t *most = &making->session->scratch_bytes[which];
    if (word[1] == ':') {
        int64_t count = 0;
        if (!count_of(making, word + 2, &count)) {
            return false;
        }
        *most = *most > 4 * (size_t)count ? *most : 4 * (size_t)count;
    }
    making->launch->scratch[which] = making->argument++;
    return true;
}

/* "i:" makes the image, "i" is the one just made. */
static bool set_image(struct making *making, bool made_here) {
    struct session *session = making->session;
    const struct product *product = making->recipe.product;
    int32_t status = 0;
    const struct cl_image_format format = {CL_RGBA, CL_FLOAT};
    const struct cl_image_desc shape = {.type = CL_MEM_OBJECT_IMAGE2D,
                                        .width = (size_t)(product->n + 3) / 4,
                                        .height = (size_t)product->k};
    if (made_here) {
        session->image = session->cl.CreateImage(session->context, CL_MEM_READ_WRITE, &format,
                                                 &shape, NULL, &status);
    }
    if (session->image == NULL) {
        return fault_say(making->fault, RUNNER_UNSUPPORTED,
                         "%s takes no image of %d x %d pixels (OpenCL error %d)",
                         session->facts.device.name, (product->n + 3) / 4, product->k, (int)status);
    }
    return set(making, sizeof session->image, &session->image);
}

/* What the step or a share makes of an operation's numbers. */
static bool set_derived(struct making *making, const char *word, bool *known) {
    const struct op *op = making->recipe.op;
    struct launch *launch = making->launch;
    *known = true;
    if (strcmp(word, "grown") == 0) {
        return set_real(making, 1.0f / (1.0f - op->f[0]));
    }
    if (strcmp(word, "dropped") == 0) {
        uint32_t dropped = (uint32_t)(op->f[0] * 65536.0f);
        return set(making, sizeof dropped, &dropped);
    }
    if (strcmp(word, "key") == 0 || strcmp(word, "fade1") == 0) {
        launch->moving = *word == 'k' ? MOVING_KEY : MOVING_FADES;
        launch->moving_at = making->argument++;
        return true;
    }
    *known = strcmp(word, "fade2") == 0;
    making->argument += *known;
    return true;
}

static bool set_count(struct making *making, const char *word) {
    int64_t count = 0;
    bool fine = count_of(making, word, &count);
    int32_t narrow = (int32_t)count;
    return fine && set(making, sizeof narrow, &narrow);
}

static bool set_argument(struct making *making, const char *word) {
    const struct tensor *tensor = NULL;
    double real = 0;
    bool known = false;
    if (strchr(word, '.') == NULL && recipe_operand(&making->recipe, word, &tensor)) {
        return set_memory(making, tensor);
    }
    if ((*word == 's' || *word == 't') && (word[1] == ':' || word[1] == '\0')) {
        return set_scratch(making, word);
    }
    if (*word == 'i' && (word[1] == ':' || word[1] == '\0')) {
        return set_image(making, word[1] == ':');
    }
    if (*word == '$') {
        return set_real(making, making->recipe.op->f[word[1] - '0']);
    }
    if (*word <= '9' && strchr(word, '.') != NULL && parse_number(word, &real)) {
        return set_real(making, (float)real);
    }
    bool fine = making->recipe.op == NULL || set_derived(making, word, &known);
    return known ? fine : set_count(making, word);
}

/* -- launches */

static bool set_sizes(struct making *making, int at) {
    static const size_t usual[DIMS][DIMS] = {{64, 1, 1}, {8, 8, 1}, {8, 8, 1}};
    struct launch *launch = making->launch;
    char word[WORD_BYTES];
    int groups = 0;
    bool grouped = false;
    for (; recipe_word(making->recipe.line, at, word); at++) {
        if (strcmp(word, "/") == 0) {
            grouped = true;
            continue;
        }
        int64_t count = 0;
        if (!count_of(making, word, &count)) {
            return false;
        }
        if (grouped) {
            launch->group[groups++] = (size_t)count;
        } else {
            launch->size[launch->dims++] = (size_t)count;
        }
    }
    for (int dim = 0; dim < launch->dims; dim++) {
        if (!grouped) {
            bool small = making->recipe.group < GROUP_USUAL;
            launch->group[dim] = small ? 1 : usual[launch->dims - 1][dim];
        }
        size_t group = launch->group[dim] < 1 ? 1 : launch->group[dim];
        launch->size[dim] = (launch->size[dim] + group - 1) / group * group;
    }
    return true;
}

/* Whether the device has room for a group of this kernel. */
static bool check_room(struct making *making, const char *entry) {
    const struct session *session = making->session;
    const struct opencl_device *device = &session->facts.device;
    const struct launch *launch = making->launch;
    size_t most = 0, items = 1;
    uint64_t local = 0;
    for (int dim = 0; dim < launch->dims; dim++) {
        items *= launch->group[dim];
    }
    session->cl.GetKernelWorkGroupInfo(launch->kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE,
                                       sizeof most, &most, NULL);
    session->cl.GetKernelWorkGroupInfo(launch->kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE,
                                       sizeof local, &local, NULL);
    if ((most > 0 && items > most) || local > device->local_bytes) {
        return fault_say(making->fault, RUNNER_UNSUPPORTED,
                         "%s needs groups of %llu and %llu bytes of local memory; %.60s has %llu "
                         "and %llu: tune for it",
                         entry, (unsigned long long)items, (unsigned long long)local, device->name,
                         (unsigned long long)most, (unsigned long long)device->local_bytes);
    }
    return true;
}

static bool add_launch(struct session *session, struct fault *fault) {
    if (session->launches == session->room) {
        int room = 2 * session->room + 64;
        struct launch *wider = realloc(session->launch, (size_t)room * sizeof *wider);
        if (wider == NULL) {
            return fault_say(fault, RUNNER_OUT_OF_MEMORY, "no memory for %d launches", room);
        }
        session->launch = wider;
        session->room = room;
    }
    session->launch[session->launches] = (struct launch){.scratch = {-1, -1}};
    return true;
}

/* The conditions among the names of a line: x0==y0. */
static bool fits(const struct recipe *recipe) {
    char word[WORD_BYTES];
    for (int at = 3; recipe_word(recipe->line, at, word) && strcmp(word, ":") != 0; at++) {
        const struct tensor *one = NULL, *other = NULL;
        char *equals = strstr(word, "==");
        if (equals != NULL && recipe->op != NULL && recipe_operand(recipe, word, &one) &&
            recipe_operand(recipe, equals + 2, &other) &&
            (one == NULL || other == NULL || one->data != other->data)) {
            return false;
        }
    }
    return true;
}

/* One line, one launch. */
static bool follow(struct session *session, struct recipe recipe, struct fault *fault) {
    char file[WORD_BYTES], entry[WORD_BYTES], word[WORD_BYTES], options[OPTIONS_BYTES];
    int32_t status = 0;
    if (!add_launch(session, fault)) {
        return false;
    }
    struct making making = {session, recipe, &session->launch[session->launches], 0, fault};
    recipe_word(recipe.line, 1, file);
    recipe_word(recipe.line, 2, entry);
    list_options(&recipe, options);
    cl_handle program = program_of(session, file, options, fault);
    if (program == NULL) {
        return false;
    }
    making.launch->kernel = session->cl.CreateKernel(program, entry, &status);
    if (making.launch->kernel == NULL) {
        return session_refuse(session, entry, status, fault);
    }
    int at = 3;
    while (recipe_word(recipe.line, at, word) && strcmp(word, ":") != 0) {
        at++;
    }
    for (at++; recipe_word(recipe.line, at, word) && strcmp(word, ":") != 0; at++) {
        if (!set_argument(&making, word)) {
            return false;
        }
    }
    if (!set_sizes(&making, at + 1)) {
        return false;
    }
    size_t items = 1;
    for (int dim = 0; dim < making.launch->dims; dim++) {
        items *= making.launch->size[dim];
    }
    if (items == 0) {
        return true; /* nothing to do, and no launch */
    }
    session->launches++;
    return check_room(&making, entry);
}

/* A rule of thumb: registers for processors, the study's tiles for others where they fit. */
static const char *way_for(const struct session *session, const struct product *product) {
    const struct opencl_device *device = &session->facts.device;
    if (device->type & CL_DEVICE_TYPE_CPU) {
        int64_t values = (int64_t)product->m * product->n * product->k;
        if (!product->turned_b) {
            return values <= 192 * 192 * 192 ? "direct" : "packed";
        }
        bool small = product->m <= 128 || product->n <= 128;
        return small && !product->turned_a ? "dots" : "packed";
    }
    return device->max_group >= 64 && device->local_bytes >= 2048 ? "tiled_vector" : "vector";
}

bool session_multiply(struct session *session, const struct product *product, const char *way,
                      const char *numbers, struct fault *fault) {
    const struct tuned *tuned = way == NULL ? tuned_for(session, product) : NULL;
    if (tuned != NULL) {
        way = tuned->way;
        numbers = tuned->numbers;
        session->facts.tuned++;
    }
    if (way == NULL) {
        way = way_for(session, product);
    }
    struct recipe recipe = {.product = product, .tuned = numbers, .group = group_of(session)};
    for (recipe.line = recipe_find(way, NULL); recipe.line != NULL;
         recipe.line = recipe_find(way, recipe.line)) {
        if (!follow(session, recipe, fault)) {
            return false;
        }
    }
    return true;
}

bool session_prepare(struct session *session, const struct op *op, bool *lacking,
                     struct fault *fault) {
    char name[WORD_BYTES];
    struct recipe recipe = {.op = op, .group = group_of(session)};
    recipe.line = recipe_of(op, name, &recipe.tuned);
    *lacking = recipe.line == NULL || !fits(&recipe);
    for (; !*lacking && recipe.line != NULL; recipe.line = recipe_find(name, recipe.line)) {
        struct product product;
        char file[WORD_BYTES] = "";
        recipe_word(recipe.line, 1, file);
        if (strcmp(file, "product") == 0) {
            if (!recipe_product(&recipe, &product)) {
                return fault_say(fault, RUNNER_UNSUPPORTED, "%s is too large for the device", name);
            }
            if (!session_multiply(session, &product, NULL, "", fault)) {
                return false;
            }
            continue;
        }
        int turns = recipe_turns(&recipe);
        for (recipe.turn = 0; recipe.turn < turns; recipe.turn++) {
            if (!follow(session, recipe, fault)) {
                return false;
            }
        }
        recipe.turn = 0;
    }
    return true;
}

#endif
