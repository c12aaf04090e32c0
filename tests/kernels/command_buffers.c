/* command_buffers.c - an OpenCL library in front of another one, which adds cl_khr_command_buffer.
 *
 * PyPI's PoCL lacks the extension, and other drivers for CPUs have wrong timestamps for it. The
 * environment variable COMMAND_BUFFERS says how this one behaves: good, wrong (the last kernel is
 * left out), untimed, slow, or refuses a call (create, record, finalize, enqueue, later: the 60th
 * enqueue and all after it). All other functions are those of the library that it is linked to. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *handle;
enum { KERNELS_MAX = 512, EVENTS_MAX = 64, REFUSED = -1138, EXTENSIONS = 0x1030, END = 0x1283 };

struct kernel_command {
    handle kernel;
    uint32_t dims;
    size_t size[3], group[3];
};

struct command_buffer {
    handle queue;
    int count;
    struct kernel_command command[KERNELS_MAX];
};

/* The first event of an enqueued buffer, by its last one, which the caller gets. */
static struct {
    handle last, first;
} enqueued[EVENTS_MAX];

int32_t clEnqueueNDRangeKernel(handle, handle, uint32_t, const size_t *, const size_t *,
                               const size_t *, uint32_t, const handle *, handle *);
typedef int32_t info_function(handle, uint32_t, size_t, void *, size_t *);
typedef int32_t release_function(handle);

static int is(const char *behaviour) { return strcmp(getenv("COMMAND_BUFFERS"), behaviour) == 0; }

int32_t clGetDeviceInfo(handle device, uint32_t name, size_t size, void *value, size_t *needed) {
    info_function *next = (info_function *)dlsym(RTLD_NEXT, "clGetDeviceInfo");
    int32_t status = next(device, name, size, value, needed);
    if (name == EXTENSIONS && value != NULL && strlen(value) + 40 < size) {
        strcat(value, " cl_khr_command_buffer");
    }
    return status;
}

int32_t clGetEventProfilingInfo(handle event, uint32_t name, size_t size, void *value,
                                size_t *needed) {
    info_function *next = (info_function *)dlsym(RTLD_NEXT, "clGetEventProfilingInfo");
    for (int i = 0; i < EVENTS_MAX && name != END && !is("untimed"); i++) {
        event = enqueued[i].last == event && event != NULL ? enqueued[i].first : event;
    }
    return next(event, name, size, value, needed);
}

int32_t clReleaseEvent(handle event) {
    release_function *next = (release_function *)dlsym(RTLD_NEXT, "clReleaseEvent");
    for (int i = 0; i < EVENTS_MAX; i++) {
        if (enqueued[i].last == event && enqueued[i].first != event) {
            next(enqueued[i].first);
        }
        enqueued[i].last = enqueued[i].last == event ? NULL : enqueued[i].last;
    }
    return next(event);
}

static handle create(uint32_t queues, const handle *queue, const void *properties,
                     int32_t *status) {
    (void)queues, (void)properties;
    struct command_buffer *buffer = is("create") ? NULL : calloc(1, sizeof *buffer);
    *status = buffer == NULL ? REFUSED : 0;
    if (buffer != NULL) {
        buffer->queue = *queue;
    }
    return buffer;
}

static int32_t record(handle to, handle queue, const void *properties, handle kernel, uint32_t dims,
                      const size_t *offset, const size_t *size, const size_t *group, uint32_t waits,
                      const uint32_t *wait, uint32_t *point, handle *mutable) {
    (void)queue, (void)properties, (void)offset, (void)waits, (void)wait, (void)point;
    (void)mutable;
    struct command_buffer *buffer = to;
    if (is("record") || buffer->count == KERNELS_MAX) {
        return REFUSED;
    }
    struct kernel_command *command = &buffer->command[buffer->count++];
    command->kernel = kernel;
    command->dims = dims;
    memcpy(command->size, size, dims * sizeof *size);
    memcpy(command->group, group, dims * sizeof *group);
    return 0;
}

static int32_t finalize(handle buffer) { return is("finalize") || buffer == NULL ? REFUSED : 0; }

static int32_t enqueue(uint32_t queues, handle *queue, handle from, uint32_t waits,
                       const handle *wait, handle *event) {
    (void)queues, (void)queue, (void)waits, (void)wait;
    static int calls;
    const struct command_buffer *buffer = from;
    handle first = NULL, last = NULL;
    if (is("enqueue") || (is("later") && ++calls >= 60)) {
        return REFUSED;
    }
    if (is("slow")) {
        usleep(5000);
    }
    int count = buffer->count - is("wrong");
    for (int i = 0; i < count; i++) {
        const struct kernel_command *command = &buffer->command[i];
        int bound = i == 0 || i == count - 1;
        int32_t status = clEnqueueNDRangeKernel(buffer->queue, command->kernel, command->dims, NULL,
                                                command->size, command->group, 0, NULL,
                                                bound ? (i == 0 ? &first : &last) : NULL);
        if (status != 0) {
            return status;
        }
    }
    *event = last == NULL ? first : last;
    for (int i = 0; i < EVENTS_MAX; i++) {
        if (enqueued[i].last == NULL) {
            enqueued[i].last = *event;
            enqueued[i].first = first;
            break;
        }
    }
    return 0;
}

void *clGetExtensionFunctionAddressForPlatform(handle platform, const char *name) {
    static const struct {
        const char *name;
        void *function;
    } functions[] = {{"clCreateCommandBufferKHR", (void *)create},
                     {"clCommandNDRangeKernelKHR", (void *)record},
                     {"clFinalizeCommandBufferKHR", (void *)finalize},
                     {"clEnqueueCommandBufferKHR", (void *)enqueue}};
    (void)platform;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(name, functions[i].name) == 0) {
            return functions[i].function;
        }
    }
    return NULL;
}
