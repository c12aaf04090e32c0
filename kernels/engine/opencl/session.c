/* session.c - opens a device, enqueues launches and copies, and reads timestamps; see session.h.
 *
 * The one rule: once launches are prepared, the fault of a failed call is kept in the session, and
 * the run ends with it at the next step boundary. */
#include "session.h"

#ifndef RUNNER_STATIC

#include "../random.h"

bool session_fault(const struct session *session, const char *call, int32_t status,
                   struct fault *fault) {
    return fault_set(fault, STATUS_DEVICE, "%s: %s failed with OpenCL error %d",
                     session->facts.device.name, call, (int)status);
}

/* Keeps the fault of a call that failed while a plan runs. */
static void check_call(struct session *session, const char *call, int32_t status) {
    if (status != CL_SUCCESS) {
        session_fault(session, call, status, &session->fault);
    }
}

bool session_open(struct session *session, const struct device_settings *settings,
                  struct fault *fault) {
    struct opencl_device devices[OPENCL_DEVICES_MAX];
    int32_t status = 0;
    if (!opencl_open(&session->cl, fault)) {
        return false;
    }
    int count = opencl_devices(&session->cl, devices);
    if (settings->number >= count) {
        return fault_set(fault, STATUS_UNSUPPORTED,
                         "there is no OpenCL device %lld; %d devices were found",
                         (long long)settings->number, count);
    }
    struct opencl_device *device = &session->facts.device;
    *device = devices[settings->number];
    const char *const names[] = {device->platform, device->name, device->version, device->driver};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        session->facts.hash = hash_bytes(session->facts.hash, names[i], strlen(names[i]));
    }
    session->kernels = settings->kernels;
    session->kernel = settings->kernel;
    session->context = session->cl.CreateContext(NULL, 1, &device->id, NULL, NULL, &status);
    if (session->context == NULL) {
        return session_fault(session, "clCreateContext", status, fault);
    }
    session->queue = session->cl.CreateCommandQueue(session->context, device->id,
                                                    CL_QUEUE_PROFILING_ENABLE, &status);
    if (session->queue == NULL) {
        return session_fault(session, "clCreateCommandQueue", status, fault);
    }
    return settings->tuned == NULL || tuned_read(session, settings->tuned, fault);
}

cl_handle session_buffer(struct session *session, size_t bytes, bool mappable,
                         struct fault *fault) {
    uint64_t flags = CL_MEM_READ_WRITE | (mappable ? CL_MEM_ALLOC_HOST_PTR : 0);
    const struct opencl_device *device = &session->facts.device;
    int32_t status = 0;
    bytes = bytes < ALIGNMENT ? ALIGNMENT : bytes;
    cl_handle memory = NULL;
    if (bytes <= device->max_alloc_bytes) {
        memory = session->cl.CreateBuffer(session->context, flags, bytes, NULL, &status);
    }
    if (memory == NULL) {
        fault_set(fault, STATUS_OUT_OF_MEMORY,
                  "%s cannot allocate %llu kB at once (at most %llu kB); use a smaller batch",
                  device->name, (unsigned long long)(bytes / 1024),
                  (unsigned long long)(device->max_alloc_bytes / 1024));
    }
    return memory;
}

bool session_allocate_scratch(struct session *session, struct fault *fault) {
    for (int slot = 0; slot < SCRATCH_SLOTS; slot++) {
        size_t bytes = session->scratch_bytes[slot];
        if (session->scratch[slot] == NULL || bytes > session->scratch_allocated[slot]) {
            session->scratch[slot] = session_buffer(session, bytes, false, fault);
            session->scratch_allocated[slot] = bytes;
        }
        if (session->scratch[slot] == NULL) {
            return false;
        }
        for (int i = 0; i < session->launches; i++) {
            struct launch *launch = &session->launch[i];
            if (launch->scratch[slot] >= 0) {
                int32_t status =
                    session->cl.SetKernelArg(launch->kernel, (uint32_t)launch->scratch[slot],
                                             sizeof(cl_handle), &session->scratch[slot]);
                if (status != CL_SUCCESS) {
                    return session_fault(session, "clSetKernelArg", status, fault);
                }
            }
        }
    }
    return true;
}

/* ---- running ---- */

cl_handle *session_next_event(struct session *session, enum phase phase, bool is_copy) {
    if (session->timed_count == session->timed_room) {
        return NULL; /* device_open() makes room for a whole step, `tune` for none */
    }
    struct timed_command *command = &session->timed[session->timed_count++];
    *command = (struct timed_command){NULL, phase, is_copy};
    return &command->event;
}

/* 1 / (1 - base^exponent), in double precision. */
static float bias_correction(double base, uint64_t exponent) {
    double product = 1.0;
    for (; exponent > 0; exponent /= 2, base *= base) {
        product *= exponent % 2 ? base : 1.0;
    }
    return (float)(1.0 / (1.0 - product));
}

static void set_per_step_args(struct session *session, const struct launch *launch,
                              const struct op *op, const struct exec_context *exec) {
    uint32_t at = (uint32_t)launch->per_step_arg;
    if (launch->per_step == PER_STEP_FIRST_SAMPLE) {
        int32_t first = (int32_t)load_first_sample(op, &session->stream[op->i[0]], exec->step);
        check_call(session, "clSetKernelArg",
                   session->cl.SetKernelArg(launch->kernel, at, sizeof first, &first));
    }
    if (launch->per_step == PER_STEP_DROPOUT_KEY) {
        uint64_t key =
            random_key(random_bits(exec->seed, RANDOM_DROPOUT, (uint64_t)op->number), exec->step);
        check_call(session, "clSetKernelArg",
                   session->cl.SetKernelArg(launch->kernel, at, sizeof key, &key));
    }
    for (int moment = 0; launch->per_step == PER_STEP_BIAS_CORRECTION && moment < 2; moment++) {
        float correction = bias_correction((double)op->f[1 + moment], exec->step + 1);
        check_call(session, "clSetKernelArg",
                   session->cl.SetKernelArg(launch->kernel, at + (uint32_t)moment,
                                            sizeof correction, &correction));
    }
}

void session_launch(struct session *session, struct launch *launch, const struct op *op,
                    const struct exec_context *exec) {
    if (launch->per_step != PER_STEP_NONE) {
        set_per_step_args(session, launch, op, exec);
    }
    check_call(session, "clEnqueueNDRangeKernel",
               session->cl.EnqueueNDRangeKernel(
                   session->queue, launch->kernel, (uint32_t)launch->dims, NULL, launch->size,
                   launch->group, 0, NULL,
                   session_next_event(session, op == NULL ? PHASE_FORWARD : op->phase, false)));
}

void session_copy(struct session *session, cl_handle memory, void *host, size_t bytes,
                  bool to_device, bool wait, enum phase phase) {
    cl_handle *event = session_next_event(session, phase, true);
    int32_t status = to_device ? session->cl.EnqueueWriteBuffer(session->queue, memory, wait, 0,
                                                                bytes, host, 0, NULL, event)
                               : session->cl.EnqueueReadBuffer(session->queue, memory, wait, 0,
                                                               bytes, host, 0, NULL, event);
    check_call(session, to_device ? "clEnqueueWriteBuffer" : "clEnqueueReadBuffer", status);
}

void *session_map(struct session *session, cl_handle memory, size_t bytes, enum phase phase) {
    int32_t status = 0;
    void *mapped = session->cl.EnqueueMapBuffer(session->queue, memory, true,
                                                CL_MAP_WRITE_INVALIDATE_REGION, 0, bytes, 0, NULL,
                                                session_next_event(session, phase, true), &status);
    check_call(session, "clEnqueueMapBuffer", status);
    return status == CL_SUCCESS ? mapped : NULL;
}

void session_unmap(struct session *session, cl_handle memory, void *mapped, enum phase phase) {
    int32_t status = session->cl.EnqueueUnmapMemObject(session->queue, memory, mapped, 0, NULL,
                                                       session_next_event(session, phase, true));
    check_call(session, "clEnqueueUnmapMemObject", status);
}

void session_wait(struct session *session) {
    check_call(session, "clFinish", session->cl.Finish(session->queue));
}

/* When a command was queued, started and ended; false: the timestamps make no sense. */
static bool read_timestamps(struct session *session, cl_handle event, uint64_t time[3]) {
    static const uint32_t moments[3] = {CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START,
                                        CL_PROFILING_COMMAND_END};
    bool valid = event != NULL;
    for (int i = 0; i < 3 && valid; i++) {
        valid = session->cl.GetEventProfilingInfo(event, moments[i], sizeof time[i], &time[i],
                                                  NULL) == CL_SUCCESS;
    }
    return valid && time[0] != 0 && time[0] <= time[1] && time[1] <= time[2];
}

void session_collect_times(struct session *session, struct device_times *times) {
    uint64_t before = 0;
    *times = (struct device_times){.valid = !session->untimed};
    for (int i = 0; i < session->timed_count; i++) {
        const struct timed_command *command = &session->timed[i];
        uint64_t time[3];
        bool valid = read_timestamps(session, command->event, time);
        if (command->event != NULL) {
            session->cl.ReleaseEvent(command->event);
        }
        times->valid = times->valid && valid;
        if (!times->valid) {
            continue;
        }
        for (int moment = 1; moment < 3; moment++) { /* overlap counts for the earlier command */
            time[moment] = time[moment] < before ? before : time[moment];
        }
        uint64_t idle = before > time[0] ? before : time[0];
        times->ns[DEVICE_QUEUE] += (int64_t)(time[1] - idle);
        times->ns[command->is_copy ? DEVICE_COPY : DEVICE_COMPUTE] += (int64_t)(time[2] - time[1]);
        times->phase_ns[command->phase] += (int64_t)(time[2] - (before == 0 ? time[0] : before));
        before = time[2];
    }
    session->timed_count = 0;
}

#endif
