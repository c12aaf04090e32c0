/* device.c - a plan on the device: memory first, then kernels, then first values (device.h). */
#include "device.h"

#include <string.h>

#ifdef RUNNER_STATIC

/* A static executable cannot load a vendor's library: such a plan ends here. */
struct device *device_open(const struct plan *plan, const struct device_settings *settings,
                           struct fault *fault) {
    (void)plan;
    (void)settings;
    fault_say(fault, RUNNER_UNSUPPORTED,
              "this build is static and loads no OpenCL library; use the CPU");
    return NULL;
}

/* Since nothing is ever opened, nobody comes here. */
const struct device_facts *device_facts(const struct device *device) {
    return (const void *)device;
}
void device_run(struct device *device, const struct op *op, struct scene *scene) {
    (void)device;
    op->kind->run(op, scene);
}
void device_flush(struct device *device) { (void)device; }
void device_wait(struct device *device, bool loss) { (void)device, (void)loss; }
void device_fetch(struct device *device, const struct tensor *tensor) {
    (void)device, (void)tensor;
}
void device_tell(struct device *device, struct device_tally *tally) { (void)device, (void)tally; }
bool device_is_well(const struct device *device, struct fault *fault) {
    (void)fault;
    return device == NULL;
}

#else

#include <stdlib.h>

#include "../../runner/system.h"
#include "session.h"

struct device {
    struct session session;
    const struct plan *plan;
    cl_handle arena[ARENAS];
    cl_handle *memory; /* of every tensor: a part of its arena */
    int *first;        /* launch of every operation; the last one ends the list */
    bool *falls_back;
    bool hasty; /* the host writes over what it wrote before the step ends: copies are waited for */
};

static size_t bytes_of(const struct tensor *tensor) {
    return (size_t)tensor->count * (tensor->type == TYPE_BYTE ? 1 : 4);
}

static cl_handle memory_of(void *owner, const struct tensor *tensor) {
    const struct device *device = owner;
    return device->memory[tensor - device->plan->tensor];
}

static bool take_memory(struct device *device, struct fault *fault) {
    struct session *session = &device->session;
    const struct plan *plan = device->plan;
    size_t align = (size_t)session->facts.device.align_bits / 8;
    for (int arena = 0; arena < ARENAS; arena++) {
        device->arena[arena] = session_buffer(session, plan->arena[arena], fault);
        if (device->arena[arena] == NULL) {
            return false;
        }
    }
    /* Zeroed, as on the CPU; and every page is there before the first step. */
    static const float nothing = 0.0f;
    for (int arena = 0; arena < ARENAS; arena++) {
        size_t bytes = plan->arena[arena] / 4 * 4;
        int32_t status = bytes == 0 ? 0
                                    : session->cl.EnqueueFillBuffer(
                                          session->queue, device->arena[arena], &nothing,
                                          sizeof nothing, 0, bytes, 0, NULL, NULL);
        if (status != CL_SUCCESS) {
            return session_refuse(session, "clEnqueueFillBuffer", status, fault);
        }
    }
    for (int i = 0; i < plan->tensors; i++) {
        const struct tensor *tensor = &plan->tensor[i];
        const struct cl_region region = {tensor->offset, bytes_of(tensor)};
        int32_t status = 0;
        if (align > 1 && tensor->offset % align != 0) {
            return fault_say(fault, RUNNER_UNSUPPORTED,
                             "tensor %d begins at byte %llu, and %s wants multiples of %llu; lower "
                             "the plan for OpenCL",
                             i, (unsigned long long)tensor->offset, session->facts.device.name,
                             (unsigned long long)align);
        }
        device->memory[i] =
            session->cl.CreateSubBuffer(device->arena[tensor->arena], CL_MEM_READ_WRITE,
                                        CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
        if (device->memory[i] == NULL) {
            return session_refuse(session, "clCreateSubBuffer", status, fault);
        }
    }
    return true;
}

static bool is_load(const struct op *op) { return strcmp(op->kind->name, "load") == 0; }

static bool prepare(struct device *device, bool fallback, struct fault *fault) {
    struct session *session = &device->session;
    for (int i = 0; i < device->plan->ops; i++) {
        const struct op *op = &device->plan->op[i];
        bool lacking = false;
        device->first[i] = session->launches;
        if (is_load(op)) {
            continue;
        }
        if (!session_prepare(session, op, &lacking, fault)) {
            return false;
        }
        if (lacking && !fallback) {
            return fault_say(fault, RUNNER_UNSUPPORTED,
                             "the OpenCL backend has no '%s'; use the CPU, or allow --fallback cpu",
                             op->kind->name);
        }
        device->falls_back[i] = lacking;
        session->facts.fallbacks += lacking;
    }
    device->first[device->plan->ops] = session->launches;
    return session_take_scratch(session, fault);
}

/* Whether two loads of the plan fill memory of which some is the same. */
static bool loads_overlap(const struct plan *plan) {
    for (int i = 0; i < plan->ops; i++) {
        for (int j = 0; j < i && is_load(&plan->op[i]); j++) {
            const struct tensor *one = plan->op[i].out[0], *other = plan->op[j].out[0];
            if (is_load(&plan->op[j]) && one->arena == other->arena &&
                one->offset < other->offset + bytes_of(other) &&
                other->offset < one->offset + bytes_of(one)) {
                return true;
            }
        }
    }
    return false;
}

/* Room for the stamps of one step: every launch, every copy of what the host does, the loss. */
static bool make_notes(struct device *device, struct fault *fault) {
    struct session *session = &device->session;
    int room = session->launches + 8;
    for (int i = 0; i < device->plan->ops; i++) {
        const struct op *op = &device->plan->op[i];
        room += is_load(op) || device->falls_back[i] ? op->ins + op->outs : 0;
    }
    session->note = calloc((size_t)room, sizeof *session->note);
    session->note_room = session->note == NULL ? 0 : room;
    device->hasty = session->facts.fallbacks > 0 || loads_overlap(device->plan);
    return session->note != NULL ||
           fault_say(fault, RUNNER_OUT_OF_MEMORY, "no memory for %d stamps", room);
}

/* What no operation writes before it is read: parameters, and what begins at a value. */
static bool copy_first_values(struct device *device, struct fault *fault) {
    struct session *session = &device->session;
    int64_t start = now_ns();
    for (int i = 0; i < device->plan->tensors; i++) {
        const struct tensor *tensor = &device->plan->tensor[i];
        if (tensor->init != INIT_NONE) {
            session_copy(session, device->memory[i], tensor->data, bytes_of(tensor), true, true,
                         PHASE_LOAD);
            struct device_tally unused;
            session_tell(session, &unused);
        }
    }
    session_wait(session);
    session->facts.copy_ns = now_ns() - start;
    return device_is_well(device, fault);
}

struct device *device_open(const struct plan *plan, const struct device_settings *settings,
                           struct fault *fault) {
    struct device *device = calloc(1, sizeof *device);
    size_t ops = (size_t)plan->ops + 1;
    if (device == NULL || (device->memory = calloc((size_t)plan->tensors + 1,
                                                   sizeof *device->memory)) == NULL ||
        (device->first = calloc(ops, sizeof *device->first)) == NULL ||
        (device->falls_back = calloc(ops, sizeof *device->falls_back)) == NULL) {
        fault_say(fault, RUNNER_OUT_OF_MEMORY, "no memory for the plan's launches");
        return NULL;
    }
    device->plan = plan;
    device->session.owner = device;
    device->session.memory_of = memory_of;
    bool fine = session_open(&device->session, settings, fault) && take_memory(device, fault) &&
                prepare(device, settings->fallback != NULL, fault) && make_notes(device, fault) &&
                copy_first_values(device, fault);
    return fine ? device : NULL;
}

const struct device_facts *device_facts(const struct device *device) {
    return &device->session.facts;
}

static void copy_operands(struct device *device, const struct tensor *const *operand, int count,
                          bool there, enum phase phase) {
    for (int i = 0; i < count; i++) {
        if (operand[i] != NULL) {
            session_copy(&device->session, memory_of(device, operand[i]), operand[i]->data,
                         bytes_of(operand[i]), there, !there || device->hasty, phase);
        }
    }
}

void device_run(struct device *device, const struct op *op, struct scene *scene) {
    struct session *session = &device->session;
    if (is_load(op) || device->falls_back[op->number]) {
        copy_operands(device, op->in, op->ins, false, op->phase);
        op->kind->run(op, scene);
        copy_operands(device, op->out, op->outs, true, op->phase);
        return;
    }
    for (int i = device->first[op->number]; i < device->first[op->number + 1]; i++) {
        session_launch(session, &session->launch[i], op, scene);
    }
}

void device_flush(struct device *device) { device->session.cl.Flush(device->session.queue); }

void device_wait(struct device *device, bool loss) {
    if (loss && device->plan->loss != NULL) {
        copy_operands(device, &device->plan->loss, 1, false, PHASE_LOAD);
    }
    session_wait(&device->session);
}

void device_fetch(struct device *device, const struct tensor *tensor) {
    struct device_tally unused;
    copy_operands(device, &tensor, 1, false, PHASE_LOAD);
    session_tell(&device->session, &unused);
}

void device_tell(struct device *device, struct device_tally *tally) {
    session_tell(&device->session, tally);
}

bool device_is_well(const struct device *device, struct fault *fault) {
    const struct fault *own = &device->session.fault;
    return own->exit == RUNNER_DONE || fault_say(fault, own->exit, "%s", own->text);
}

#endif
