/* session.c - a device with a queue: opened, told to run, asked for its stamps (session.h).
 *
 * The one rule: once launches are prepared, a call that goes wrong is kept as the session's fault,
 * and the run ends with it at the next step boundary. */
#include "session.h"

#ifndef RUNNER_STATIC

#include "../random.h"

bool session_refuse(const struct session *session, const char *what, int32_t status,
                    struct fault *fault) {
    return fault_say(fault, RUNNER_DEVICE, "%s: %s failed with OpenCL error %d",
                     session->facts.device.name, what, (int)status);
}

/* A call that went wrong while a plan runs. */
static void keep(struct session *session, const char *what, int32_t status) {
    if (status != CL_SUCCESS) {
        session_refuse(session, what, status, &session->fault);
    }
}

bool session_open(struct session *session, const struct device_settings *settings,
                  struct fault *fault) {
    struct opencl_device found[OPENCL_DEVICES_MAX];
    int32_t status = 0;
    if (!opencl_open(&session->cl, fault)) {
        return false;
    }
    int count = opencl_devices(&session->cl, found);
    if (settings->number >= count) {
        return fault_say(fault, RUNNER_UNSUPPORTED,
                         "there is no OpenCL device %lld, but %d of them",
                         (long long)settings->number, count);
    }
    struct opencl_device *device = &session->facts.device;
    *device = found[settings->number];
    session->kernels = settings->kernels;
    session->context = session->cl.CreateContext(NULL, 1, &device->id, NULL, NULL, &status);
    if (session->context == NULL) {
        return session_refuse(session, "clCreateContext", status, fault);
    }
    session->queue = session->cl.CreateCommandQueue(session->context, device->id,
                                                    CL_QUEUE_PROFILING_ENABLE, &status);
    if (session->queue == NULL) {
        return session_refuse(session, "clCreateCommandQueue", status, fault);
    }
    return settings->tuned == NULL || tuned_read(session, settings->tuned, fault);
}

cl_handle session_buffer(struct session *session, size_t bytes, struct fault *fault) {
    const struct opencl_device *device = &session->facts.device;
    int32_t status = 0;
    bytes = bytes < ALIGNMENT ? ALIGNMENT : bytes;
    cl_handle memory = NULL;
    if (bytes <= device->max_alloc_bytes) {
        memory =
            session->cl.CreateBuffer(session->context, CL_MEM_READ_WRITE, bytes, NULL, &status);
    }
    if (memory == NULL) {
        fault_say(fault, RUNNER_OUT_OF_MEMORY,
                  "%s gives no %llu kB in one piece (%llu kB at most); use a smaller batch",
                  device->name, (unsigned long long)(bytes / 1024),
                  (unsigned long long)(device->max_alloc_bytes / 1024));
    }
    return memory;
}

bool session_take_scratch(struct session *session, struct fault *fault) {
    for (int which = 0; which < SCRATCHES; which++) {
        size_t bytes = session->scratch_bytes[which];
        if (session->scratch[which] == NULL || bytes > session->scratch_taken[which]) {
            session->scratch[which] = session_buffer(session, bytes, fault);
            session->scratch_taken[which] = bytes;
        }
        if (session->scratch[which] == NULL) {
            return false;
        }
        for (int i = 0; i < session->launches; i++) {
            struct launch *launch = &session->launch[i];
            if (launch->scratch[which] >= 0) {
                int32_t status = session->cl.SetKernelArg(
                    launch->kernel, (uint32_t)launch->scratch[which], sizeof(cl_handle),
                    &session->scratch[which]);
                if (status != CL_SUCCESS) {
                    return session_refuse(session, "clSetKernelArg", status, fault);
                }
            }
        }
    }
    return true;
}

/* -- running */

static cl_handle *note(struct session *session, enum phase phase, bool copies) {
    if (session->notes == session->note_room) {
        return NULL; /* nobody tells more than there is room for; see device_open() */
    }
    struct note *note = &session->note[session->notes++];
    *note = (struct note){NULL, phase, copies};
    return &note->event;
}

/* 1 / (1 - base^exponent), in double precision. */
static float fade(double base, uint64_t exponent) {
    double product = 1.0;
    for (; exponent > 0; exponent /= 2, base *= base) {
        product *= exponent % 2 ? base : 1.0;
    }
    return (float)(1.0 / (1.0 - product));
}

static void set_moving(struct session *session, const struct launch *launch, const struct op *op,
                       const struct scene *scene) {
    uint32_t at = (uint32_t)launch->moving_at;
    if (launch->moving == MOVING_KEY) {
        uint64_t key = random_key(random_bits(scene->seed, RANDOM_DROPOUT, (uint64_t)op->number),
                                  scene->step);
        keep(session, "clSetKernelArg",
             session->cl.SetKernelArg(launch->kernel, at, sizeof key, &key));
    }
    for (int moment = 0; launch->moving == MOVING_FADES && moment < 2; moment++) {
        float grown = fade((double)op->f[1 + moment], scene->step + 1);
        keep(session, "clSetKernelArg",
             session->cl.SetKernelArg(launch->kernel, at + (uint32_t)moment, sizeof grown, &grown));
    }
}

void session_launch(struct session *session, struct launch *launch, const struct op *op,
                    const struct scene *scene) {
    if (launch->moving != MOVING_NOT) {
        set_moving(session, launch, op, scene);
    }
    keep(session, "clEnqueueNDRangeKernel",
         session->cl.EnqueueNDRangeKernel(session->queue, launch->kernel, (uint32_t)launch->dims,
                                          NULL, launch->size, launch->group, 0, NULL,
                                          note(session, op == NULL ? PHASE_FORWARD : op->phase,
                                               false)));
}

void session_copy(struct session *session, cl_handle memory, void *host, size_t bytes, bool there,
                  bool wait, enum phase phase) {
    cl_handle *event = note(session, phase, true);
    int32_t status =
        there ? session->cl.EnqueueWriteBuffer(session->queue, memory, wait, 0, bytes, host, 0,
                                               NULL, event)
              : session->cl.EnqueueReadBuffer(session->queue, memory, wait, 0, bytes, host, 0, NULL,
                                              event);
    keep(session, there ? "clEnqueueWriteBuffer" : "clEnqueueReadBuffer", status);
}

void session_wait(struct session *session) {
    keep(session, "clFinish", session->cl.Finish(session->queue));
}

/* When a command was queued, began and ended; false: the device does not say. */
static bool stamps_of(struct session *session, cl_handle event, uint64_t stamp[3]) {
    static const uint32_t moments[3] = {CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START,
                                        CL_PROFILING_COMMAND_END};
    bool known = event != NULL;
    for (int i = 0; i < 3 && known; i++) {
        known = session->cl.GetEventProfilingInfo(event, moments[i], sizeof stamp[i], &stamp[i],
                                                  NULL) == CL_SUCCESS;
    }
    return known && stamp[0] != 0 && stamp[0] <= stamp[1] && stamp[1] <= stamp[2];
}

void session_tell(struct session *session, struct device_tally *tally) {
    uint64_t before = 0;
    *tally = (struct device_tally){.known = true};
    for (int i = 0; i < session->notes; i++) {
        const struct note *note = &session->note[i];
        uint64_t stamp[3];
        bool known = stamps_of(session, note->event, stamp);
        if (note->event != NULL) {
            session->cl.ReleaseEvent(note->event);
        }
        tally->known = tally->known && known;
        if (!tally->known) {
            continue;
        }
        for (int moment = 1; moment < 3; moment++) { /* what overlaps the one before is its time */
            stamp[moment] = stamp[moment] < before ? before : stamp[moment];
        }
        uint64_t idle = before > stamp[0] ? before : stamp[0];
        tally->ns[DEVICE_QUEUE] += (int64_t)(stamp[1] - idle);
        tally->ns[note->copies ? DEVICE_COPY : DEVICE_COMPUTE] += (int64_t)(stamp[2] - stamp[1]);
        tally->phase_ns[note->phase] += (int64_t)(stamp[2] - (before == 0 ? stamp[0] : before));
        before = stamp[2];
    }
    session->notes = 0;
}

#endif
