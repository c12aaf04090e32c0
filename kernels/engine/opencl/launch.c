/* launch.c - builds programs, and turns LAUNCH() into kernels with their arguments set; see
 * launch.h.
 *
 * The one rule: whatever can fail, fails here, before the first step, with a sentence that names
 * the kernel. A program is built once per file and set of definitions. */
#include "launch.h"

#ifndef RUNNER_STATIC

#include <stdlib.h>
#include <string.h>

#include "../os.h"

enum { SOURCES_MAX = 3, SOURCE_BYTES_MAX = 1 << 20, LOG_BYTES = 220, USUAL_GROUP = 64 };

/* ---- programs ---- */

void define(struct launcher *to, const char *name, int64_t value) {
    to->defines_length +=
        format_text(to->defines + to->defines_length, sizeof to->defines - to->defines_length,
                    " -D%s=%lld", name, (long long)value);
}

/* Warnings are off (-w), because some drivers print them to the screen. */
void clear_defines(struct launcher *to) {
    to->defines_length = format_text(to->defines, sizeof to->defines, "-w");
}

/* Reports the first error of the build log, or the beginning of the log. */
static void report_build_error(struct launcher *to, cl_handle program, const char *file) {
    const struct session *session = to->session;
    char log[4096] = "", *from = log;
    session->cl.GetProgramBuildInfo(program, session->facts.device.id, CL_PROGRAM_BUILD_LOG,
                                    sizeof log - 1, log, NULL);
    char *error = strstr(log, "error");
    while (error != NULL && error > from && error[-1] != '\n') {
        error--;
    }
    from = error != NULL ? error : from;
    from[LOG_BYTES] = '\0';
    fault_set(to->fault, STATUS_DEVICE, "%s does not build for %.60s: %s", file,
              session->facts.device.name, from);
}

static bool build_program(struct launcher *to, struct program *program) {
    struct session *session = to->session;
    const char *file = program->files;
    char files[2 * FILE_BYTES], path[PATH_BYTES], name[FILE_BYTES];
    const char *source[SOURCES_MAX];
    size_t size[SOURCES_MAX];
    uint32_t count = 0;
    int32_t status = 0;
    format_text(files, sizeof files, "common.cl %s", file);
    for (const char *next = files; *next != '\0' && count < SOURCES_MAX; count++) {
        size_t length = strcspn(next, " ");
        memcpy(name, next, length);
        name[length] = '\0';
        file = next;
        next += length + (next[length] == ' ');
        source[count] = join_path(path, session->kernels, name)
                            ? read_file(path, SOURCE_BYTES_MAX, &size[count])
                            : NULL;
        if (source[count] == NULL) {
            fault_set(to->fault, STATUS_BAD_PLAN, "cannot read the kernels in %.200s: %s: %s",
                      session->kernels, name, os_error_text());
            return false;
        }
        program->digest = hash_bytes(program->digest, source[count], size[count]);
    }
    session->facts.hash = hash_bytes(session->facts.hash, &program->digest, sizeof program->digest);
    session->facts.hash = hash_bytes(session->facts.hash, to->defines, to->defines_length);
    int64_t start = now_ns();
    program->built =
        session->cl.CreateProgramWithSource(session->context, count, source, size, &status);
    if (program->built == NULL) {
        return session_fault(session, "clCreateProgramWithSource", status, to->fault);
    }
    status = session->cl.BuildProgram(program->built, 1, &session->facts.device.id, to->defines,
                                      NULL, NULL);
    session->facts.build_ns += now_ns() - start;
    if (status != CL_SUCCESS) {
        report_build_error(to, program->built, file);
    }
    return status == CL_SUCCESS;
}

static const struct program *get_program(struct launcher *to, const char *files) {
    struct device_facts *facts = &to->session->facts;
    for (int i = 0; i < facts->programs; i++) {
        const struct program *program = &facts->program[i];
        if (strcmp(program->files, files) == 0 && strcmp(program->options, to->defines) == 0) {
            return program;
        }
    }
    if (facts->programs == PROGRAMS_MAX) {
        fault_set(to->fault, STATUS_UNSUPPORTED, "the plan needs more than %d OpenCL programs",
                  PROGRAMS_MAX);
        return NULL;
    }
    struct program *program = &facts->program[facts->programs];
    *program = (struct program){.digest = 0};
    format_text(program->files, sizeof program->files, "%s", files);
    memcpy(program->options, to->defines, to->defines_length);
    if (!build_program(to, program)) {
        return NULL;
    }
    facts->programs++;
    return program;
}

/* ---- arguments ---- */

static bool set_bytes(struct launcher *to, const struct launch *launch, int number, size_t size,
                      const void *value) {
    int32_t status = to->session->cl.SetKernelArg(launch->kernel, (uint32_t)number, size, value);
    return status == CL_SUCCESS || session_fault(to->session, "clSetKernelArg", status, to->fault);
}

static bool set_arg(struct launcher *to, struct launch *launch, const char *entry, int number,
                    const struct arg *arg) {
    struct session *session = to->session;
    int32_t narrow = (int32_t)arg->integer;
    uint32_t unsigned_narrow = (uint32_t)arg->integer;
    cl_handle memory = NULL;
    switch (arg->kind) {
    case ARG_INT:
        if (narrow != arg->integer) {
            return fault_set(to->fault, STATUS_UNSUPPORTED,
                             "%s: argument %d is too large for the device (%lld)", entry, number,
                             (long long)arg->integer);
        }
        return set_bytes(to, launch, number, sizeof narrow, &narrow);
    case ARG_INT4:
        return set_bytes(to, launch, number, 4 * sizeof narrow, arg->four);
    case ARG_UINT:
        return set_bytes(to, launch, number, sizeof unsigned_narrow, &unsigned_narrow);
    case ARG_FLOAT:
        return set_bytes(to, launch, number, sizeof arg->real, &arg->real);
    case ARG_BUFFER:
        if (arg->tensor == NULL) {
            return set_bytes(to, launch, number, sizeof memory, NULL);
        }
        memory = session->memory_of(session->owner, arg->tensor);
        return set_bytes(to, launch, number, sizeof memory, &memory);
    case ARG_SCRATCH: /* set by session_allocate_scratch(), when all sizes are known */
        launch->scratch[arg->integer] = number;
        return true;
    case ARG_HANDLE:
        return set_bytes(to, launch, number, sizeof arg->handle, &arg->handle);
    case ARG_FIRST_SAMPLE:
    case ARG_DROPOUT_KEY:
        launch->per_step =
            arg->kind == ARG_DROPOUT_KEY ? PER_STEP_DROPOUT_KEY : PER_STEP_FIRST_SAMPLE;
        launch->per_step_arg = number;
        return true;
    default: /* ARG_BIAS_CORRECTION: two in a row, of which the first is noted */
        if (launch->per_step == PER_STEP_NONE) {
            launch->per_step = PER_STEP_BIAS_CORRECTION;
            launch->per_step_arg = number;
        }
        return true;
    }
}

bool scratch(struct launcher *to, int slot, int64_t floats) {
    size_t *bytes = &to->session->scratch_bytes[slot];
    if (floats < 0 || floats > INT32_MAX) {
        return fault_set(
            to->fault, STATUS_UNSUPPORTED,
            "an operation needs scratch memory for %lld values on the device, which is "
            "too much; use a smaller batch",
            (long long)floats);
    }
    *bytes = *bytes > 4 * (size_t)floats ? *bytes : 4 * (size_t)floats;
    return true;
}

/* ---- launches ---- */

struct grid grid1(int64_t x) { return (struct grid){.dims = 1, .size = {x, 1, 1}}; }

struct grid grid2(int64_t x, int64_t y) { return (struct grid){.dims = 2, .size = {x, y, 1}}; }

struct grid grid3(int64_t x, int64_t y, int64_t z) {
    return (struct grid){.dims = 3, .size = {x, y, z}};
}

struct grid in_groups(struct grid grid, int64_t x, int64_t y, int64_t z) {
    grid.group[0] = max_i64(x, 1);
    grid.group[1] = max_i64(y, 1);
    grid.group[2] = max_i64(z, 1);
    return grid;
}

/* Sets sizes and group sizes; *items: how many work items that makes. */
static bool set_grid(struct launcher *to, struct launch *launch, const char *entry,
                     const struct grid *grid, int64_t *items) {
    static const int64_t usual[DIMS][DIMS] = {{USUAL_GROUP, 1, 1}, {8, 8, 1}, {8, 8, 1}};
    launch->dims = grid->dims;
    *items = 1;
    for (int dim = 0; dim < grid->dims; dim++) {
        int64_t size = grid->size[dim], group = grid->group[dim];
        if (size < 0 || size > INT32_MAX) {
            return fault_set(to->fault, STATUS_UNSUPPORTED,
                             "%s: %lld work items are too many for the device; use a smaller batch",
                             entry, (long long)size);
        }
        if (group == 0) {
            group = to->group < USUAL_GROUP ? 1 : usual[grid->dims - 1][dim];
        }
        launch->group[dim] = (size_t)group;
        launch->size[dim] = (size_t)round_up(size, group);
        *items = mul_saturated(*items, size);
    }
    return true;
}

/* Checks that the device has enough items per group and local memory for this kernel. */
static bool check_group(struct launcher *to, const struct launch *launch, const char *entry) {
    const struct session *session = to->session;
    const struct opencl_device *device = &session->facts.device;
    size_t limit = 0, items = 1;
    uint64_t local = 0;
    for (int dim = 0; dim < launch->dims; dim++) {
        items *= launch->group[dim];
    }
    session->cl.GetKernelWorkGroupInfo(launch->kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE,
                                       sizeof limit, &limit, NULL);
    session->cl.GetKernelWorkGroupInfo(launch->kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE,
                                       sizeof local, &local, NULL);
    if ((limit > 0 && items > limit) || local > device->local_bytes) {
        return fault_set(to->fault, STATUS_UNSUPPORTED,
                         "%s needs work groups of %llu items and %llu bytes of local memory, and "
                         "%.60s has %llu and %llu; choose another kernel",
                         entry, (unsigned long long)items, (unsigned long long)local, device->name,
                         (unsigned long long)limit, (unsigned long long)device->local_bytes);
    }
    return true;
}

/* The next free launch of the session; NULL: fault. */
static struct launch *next_launch(struct launcher *to) {
    struct session *session = to->session;
    if (session->launches == session->launch_room) {
        int room = 2 * session->launch_room + 64;
        struct launch *wider = realloc(session->launch, (size_t)room * sizeof *wider);
        if (wider == NULL) {
            fault_set(to->fault, STATUS_OUT_OF_MEMORY,
                      "not enough memory for %d kernel launches; close other programs", room);
            return NULL;
        }
        session->launch = wider;
        session->launch_room = room;
    }
    struct launch *launch = &session->launch[session->launches];
    *launch = (struct launch){.scratch = {-1, -1, -1, -1}};
    return launch;
}

bool add_launch(struct launcher *to, const char *file, const char *entry, struct grid grid,
                const struct arg *args, int count) {
    struct session *session = to->session;
    int32_t status = 0;
    int64_t items = 0;
    struct launch *launch = to->fault->status == STATUS_DONE ? next_launch(to) : NULL;
    if (launch == NULL || !set_grid(to, launch, entry, &grid, &items)) {
        return false;
    }
    if (items == 0) {
        return true;
    }
    launch->program = get_program(to, file);
    if (launch->program == NULL) {
        return false;
    }
    launch->kernel = session->cl.CreateKernel(launch->program->built, entry, &status);
    if (launch->kernel == NULL) {
        return session_fault(session, entry, status, to->fault);
    }
    for (int i = 0; i < count; i++) {
        if (!set_arg(to, launch, entry, i, &args[i])) {
            return false;
        }
    }
    session->launches++;
    session->facts.hash = hash_bytes(session->facts.hash, launch->size, sizeof launch->size);
    session->facts.hash = hash_bytes(session->facts.hash, launch->group, sizeof launch->group);
    return check_group(to, launch, entry);
}

/* ---- operations ---- */

bool lacks(struct launcher *to) {
    to->lacking = true;
    return false;
}

bool in_place(const struct tensor *input, const struct tensor *output) {
    return input != NULL && output != NULL && input->data == output->data;
}

int64_t values_from_axis(const struct tensor *tensor, int64_t axis) {
    int64_t values = 1;
    for (int64_t n = axis; n < tensor->rank; n++) {
        values *= tensor->dim[n];
    }
    return values;
}

static const struct launch_entry *find_launch(const char *name) {
    static const struct launch_entry *const families[] = {
        elementwise_launches, matmul_launches,   conv_launches,     pooling_launches,
        norm_launches,        training_launches, sequence_launches, load_launches,
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        for (const struct launch_entry *entry = families[i]; *entry->name != '\0'; entry++) {
            if (strcmp(entry->name, name) == 0) {
                return entry;
            }
        }
    }
    return NULL;
}

static void launcher_open(struct launcher *to, struct session *session, struct fault *fault) {
    *to = (struct launcher){.session = session, .fault = fault, .group = USUAL_GROUP};
    while (to->group > 1 && (uint64_t)to->group > session->facts.device.max_group) {
        to->group /= 2;
    }
    clear_defines(to);
}

bool session_add_op(struct session *session, const struct op *op, bool *lacking,
                    struct fault *fault) {
    const struct launch_entry *entry = find_launch(op->kind->name);
    struct launcher to;
    launcher_open(&to, session, fault);
    *lacking = entry == NULL;
    if (entry == NULL) {
        return true;
    }
    to.variant = entry->variant;
    bool launched = entry->launch(&to, op);
    *lacking = to.lacking;
    return launched || to.lacking;
}

bool session_add_matmul(struct session *session, const struct matmul *matmul, const char *variant,
                        const char *params, struct fault *fault) {
    struct launcher to;
    launcher_open(&to, session, fault);
    return launch_matmul(&to, matmul, variant, params);
}

#endif
