/* device.c - a plan on a device: memory, then kernels, then initial values; see device.h. */
#include "device.h"

#include <string.h>

const char *const FEED_NAMES[FEEDS + 1] = {
    [FEED_COPIED] = "copied",
    [FEED_MAPPED] = "mapped",
    [FEED_RESIDENT] = "resident",
    [FEED_PRELOADED] = "preloaded",
};

const char *const SUBMISSION_NAMES[SUBMISSIONS + 1] = {
    [SUBMIT_STEP] = "step",
    [SUBMIT_LAUNCH] = "launch",
    [SUBMIT_RECORDED] = "recorded",
};

const char *const KERNEL_NAMES[] = {"naive",  "vector", "tiled", "tiled_vector",
                                    "packed", "tuned",  NULL};

#ifdef RUNNER_STATIC

/* A static executable cannot load the library of a vendor, so a plan for OpenCL ends here. */
struct device *device_open(const struct plan *plan, const struct dataset *dataset,
                           const struct device_settings *settings, struct fault *fault) {
    (void)plan;
    (void)dataset;
    (void)settings;
    fault_set(fault, STATUS_UNSUPPORTED,
              "this build is static and cannot load an OpenCL library; use the CPU backend");
    return NULL;
}

/* Nothing is ever opened, so nothing calls these. */
const struct device_facts *device_facts(const struct device *device) {
    return (const void *)device;
}
void device_run(struct device *device, int first, int last, struct exec_context *exec) {
    (void)device, (void)first, (void)last, (void)exec;
}
void device_wait(struct device *device, bool loss) { (void)device, (void)loss; }
void device_fetch(struct device *device, const struct tensor *tensor) {
    (void)device, (void)tensor;
}
void device_collect_times(struct device *device, struct device_times *times) {
    (void)device, (void)times;
}
bool device_check(const struct device *device, struct fault *fault) {
    (void)fault;
    return device == NULL;
}

#else

#include <stdlib.h>

#include "../os.h"
#include "session.h"

/* Operations that are submitted as one command. */
struct part {
    cl_handle recorded; /* NULL: none begins with this operation */
    int last;           /* the operation after it */
};

struct device {
    struct session session;
    const struct plan *plan;
    cl_handle arena[ARENAS];
    cl_handle *memory;  /* of every tensor: a sub-buffer of its arena */
    int *first;         /* the first launch of every operation, and the end of the list */
    struct part *parts; /* by their first operation */
    bool *falls_back;
    enum feed feed;
    /* The host overwrites within a step what it copies to the device, so it waits for every
     * copy. */
    bool waits_for_copies;
};

static cl_handle memory_of(void *owner, const struct tensor *tensor) {
    const struct device *device = owner;
    return device->memory[tensor - device->plan->tensor];
}

static bool allocate_memory(struct device *device, struct fault *fault) {
    struct session *session = &device->session;
    const struct plan *plan = device->plan;
    size_t align = (size_t)session->facts.device.align_bits / 8;
    for (int arena = 0; arena < ARENAS; arena++) {
        bool mappable = device->feed == FEED_MAPPED && arena == ARENA_INPUT;
        device->arena[arena] = session_buffer(session, plan->arena[arena], mappable, fault);
        if (device->arena[arena] == NULL) {
            return false;
        }
    }
    /* Zeroed, as on the CPU; and so that every page is present before the first step. */
    static const float zero = 0.0f;
    for (int arena = 0; arena < ARENAS; arena++) {
        size_t bytes = plan->arena[arena] / 4 * 4;
        int32_t status =
            bytes == 0 ? 0
                       : session->cl.EnqueueFillBuffer(session->queue, device->arena[arena], &zero,
                                                       sizeof zero, 0, bytes, 0, NULL, NULL);
        if (status != CL_SUCCESS) {
            return session_fault(session, "clEnqueueFillBuffer", status, fault);
        }
    }
    for (int i = 0; i < plan->tensors; i++) {
        const struct tensor *tensor = &plan->tensor[i];
        const struct cl_region region = {tensor->offset, tensor_bytes(tensor)};
        int32_t status = 0;
        if (align > 1 && tensor->offset % align != 0) {
            return fault_set(fault, STATUS_UNSUPPORTED,
                             "tensor %d begins at byte %llu, and %s needs multiples of %llu; lower "
                             "the plan for OpenCL",
                             i, (unsigned long long)tensor->offset, session->facts.device.name,
                             (unsigned long long)align);
        }
        device->memory[i] =
            session->cl.CreateSubBuffer(device->arena[tensor->arena], CL_MEM_READ_WRITE,
                                        CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
        if (device->memory[i] == NULL) {
            return session_fault(session, "clCreateSubBuffer", status, fault);
        }
    }
    return true;
}

static bool is_load(const struct op *op) { return op_is(op, "load"); }

/* Copies all streams of a data set to the device. */
static bool preload(struct device *device, const struct dataset *dataset, struct fault *fault) {
    struct session *session = &device->session;
    int64_t start = now_ns();
    for (int i = 0; i < device->plan->streams; i++) {
        size_t bytes = stream_bytes(&device->plan->stream[i]);
        session->stream_memory[i] = session_buffer(session, bytes, false, fault);
        if (session->stream_memory[i] == NULL) {
            return false;
        }
        session_copy(session, session->stream_memory[i], (void *)dataset_samples(dataset, i), bytes,
                     true, true, PHASE_LOAD);
    }
    session->facts.copy_ns += now_ns() - start;
    return device_check(device, fault);
}

static bool add_launches(struct device *device, bool fallback, struct fault *fault) {
    struct session *session = &device->session;
    for (int i = 0; i < device->plan->ops; i++) {
        const struct op *op = &device->plan->op[i];
        bool lacking = false;
        device->first[i] = session->launches;
        if (is_load(op) && device->feed != FEED_PRELOADED) {
            continue; /* the host makes the batch */
        }
        if (!session_add_op(session, op, &lacking, fault)) {
            return false;
        }
        if (lacking && !fallback) {
            return fault_set(
                fault, STATUS_UNSUPPORTED,
                "the OpenCL backend cannot run '%s'; use the CPU backend, or pass --fallback cpu",
                op->kind->name);
        }
        device->falls_back[i] = lacking;
        session->facts.fallbacks += lacking;
    }
    device->first[device->plan->ops] = session->launches;
    return session_allocate_scratch(session, fault);
}

/* Whether the outputs of two loads overlap. */
static bool loads_overlap(const struct plan *plan) {
    for (int i = 0; i < plan->ops; i++) {
        for (int j = 0; j < i && is_load(&plan->op[i]); j++) {
            const struct tensor *one = plan->op[i].out[0], *other = plan->op[j].out[0];
            if (is_load(&plan->op[j]) && one->arena == other->arena &&
                one->offset < other->offset + tensor_bytes(other) &&
                other->offset < one->offset + tensor_bytes(one)) {
                return true;
            }
        }
    }
    return false;
}

/* Makes room for the timestamps of one step: all launches, all copies for the host, the loss. */
static bool allocate_timestamps(struct device *device, struct fault *fault) {
    struct session *session = &device->session;
    int room = session->launches + 8;
    for (int i = 0; i < device->plan->ops; i++) {
        const struct op *op = &device->plan->op[i];
        bool copies = is_load(op) || device->falls_back[i] || device->feed == FEED_COPIED;
        room += copies ? op->ins + op->outs + 1 : 0; /* a mapping has two commands */
    }
    session->timed = calloc((size_t)room, sizeof *session->timed);
    session->timed_room = session->timed == NULL ? 0 : room;
    device->waits_for_copies =
        session->facts.fallbacks > 0 || device->feed == FEED_COPIED || loads_overlap(device->plan);
    return session->timed != NULL ||
           fault_set(fault, STATUS_OUT_OF_MEMORY,
                     "not enough memory for %d timestamps; close other programs", room);
}

/* Whether an operation only launches kernels, with the same arguments in every step. */
static bool is_recordable(const struct device *device, int op) {
    for (int i = device->first[op]; i < device->first[op + 1]; i++) {
        if (device->session.launch[i].per_step != PER_STEP_NONE) {
            return false;
        }
    }
    return !device->falls_back[op] && device->first[op] < device->first[op + 1];
}

/* Records the operations of a phase between two that cannot be recorded. A driver that cannot
 * record a part gets no recorded parts at all. */
static void record_parts(struct device *device) {
    struct session *session = &device->session;
    const struct plan *plan = device->plan;
    for (int first = 0, last; first < plan->ops; first = last + (last == first)) {
        for (last = first; last < plan->ops && plan->op[last].phase == plan->op[first].phase &&
                           is_recordable(device, last);) {
            last++;
        }
        int launches = device->first[last] - device->first[first];
        if (launches > 1 && session->records) {
            device->parts[first] = (struct part){
                session_record(session, &session->launch[device->first[first]], launches), last};
            session->facts.recorded++;
        }
    }
    if (!session->records) {
        memset(device->parts, 0, (size_t)plan->ops * sizeof *device->parts);
        session->facts.recorded = 0;
    }
}

/* Copies the tensors that have initial values other than zero. */
static bool copy_initial_values(struct device *device, struct fault *fault) {
    struct session *session = &device->session;
    int64_t start = now_ns();
    for (int i = 0; i < device->plan->tensors; i++) {
        const struct tensor *tensor = &device->plan->tensor[i];
        if (tensor->init != INIT_NONE && tensor->init != INIT_ZERO) {
            session_copy(session, device->memory[i], tensor->data, tensor_bytes(tensor), true, true,
                         PHASE_LOAD);
            struct device_times unused;
            session_collect_times(session, &unused);
        }
    }
    session_wait(session);
    session->facts.copy_ns += now_ns() - start;
    return device_check(device, fault);
}

struct device *device_open(const struct plan *plan, const struct dataset *dataset,
                           const struct device_settings *settings, struct fault *fault) {
    struct device *device = calloc(1, sizeof *device);
    size_t ops = (size_t)plan->ops + 1;
    if (device == NULL ||
        (device->memory = calloc((size_t)plan->tensors + 1, sizeof *device->memory)) == NULL ||
        (device->first = calloc(ops, sizeof *device->first)) == NULL ||
        (device->parts = calloc(ops, sizeof *device->parts)) == NULL ||
        (device->falls_back = calloc(ops, sizeof *device->falls_back)) == NULL) {
        fault_set(fault, STATUS_OUT_OF_MEMORY,
                  "not enough memory for the launches of the plan; close other programs");
        return NULL;
    }
    device->plan = plan;
    device->session.owner = device;
    device->session.memory_of = memory_of;
    device->session.stream = plan->stream;
    device->feed = settings->feed;
    bool fine = session_open(&device->session, settings, fault) && allocate_memory(device, fault) &&
                (device->feed != FEED_PRELOADED || preload(device, dataset, fault)) &&
                add_launches(device, settings->fallback != NULL, fault) &&
                allocate_timestamps(device, fault) && copy_initial_values(device, fault);
    if (fine && settings->submission != SUBMIT_LAUNCH && device->feed != FEED_COPIED) {
        session_test_recording(&device->session, settings->submission == SUBMIT_RECORDED);
        record_parts(device);
    }
    return fine ? device : NULL;
}

const struct device_facts *device_facts(const struct device *device) {
    return &device->session.facts;
}

static void copy_operands(struct device *device, const struct tensor *const *operand, int count,
                          bool to_device, enum phase phase) {
    for (int i = 0; i < count; i++) {
        if (operand[i] != NULL) {
            session_copy(&device->session, memory_of(device, operand[i]), operand[i]->data,
                         tensor_bytes(operand[i]), to_device,
                         !to_device || device->waits_for_copies, phase);
        }
    }
}

/* Makes a batch in the memory of the device. */
static void load_mapped(struct device *device, const struct op *op, struct exec_context *exec) {
    struct tensor batch = *op->out[0];
    struct op load = *op;
    cl_handle memory = memory_of(device, op->out[0]);
    batch.data = session_map(&device->session, memory, tensor_bytes(&batch), op->phase);
    load.out[0] = &batch;
    if (batch.data != NULL) {
        op->kind->run(&load, exec);
        session_unmap(&device->session, memory, batch.data, op->phase);
    }
}

/* Runs an operation on the host, with the copies that it needs. */
static void run_on_host(struct device *device, const struct op *op, struct exec_context *exec) {
    bool copies = device->feed != FEED_COPIED;
    copy_operands(device, op->in, copies ? op->ins : 0, false, op->phase);
    op->kind->run(op, exec);
    copy_operands(device, op->out, copies ? op->outs : 0, true, op->phase);
}

static void run_op(struct device *device, const struct op *op, struct exec_context *exec) {
    struct session *session = &device->session;
    bool copied = device->feed == FEED_COPIED;
    if (is_load(op) && device->feed == FEED_MAPPED) {
        load_mapped(device, op, exec);
        return;
    }
    if ((is_load(op) && device->feed != FEED_PRELOADED) || device->falls_back[op->number]) {
        run_on_host(device, op, exec);
        return;
    }
    copy_operands(device, op->in, copied ? op->ins : 0, true, op->phase);
    for (int i = device->first[op->number]; i < device->first[op->number + 1]; i++) {
        session_launch(session, &session->launch[i], op, exec);
    }
    copy_operands(device, op->out, copied ? op->outs : 0, false, op->phase);
}

void device_run(struct device *device, int first, int last, struct exec_context *exec) {
    struct session *session = &device->session;
    for (int i = first; i < last;) {
        struct part *part = &device->parts[i];
        const struct op *op = &device->plan->op[i];
        if (part->recorded != NULL && part->last <= last) {
            if (session_submit(session, part->recorded, op->phase)) {
                i = part->last;
                continue;
            }
            part->recorded = NULL; /* its launches one by one, now and in the steps to come */
            session->facts.recorded--;
        }
        run_op(device, op, exec);
        i++;
    }
    session->cl.Flush(session->queue);
}

void device_wait(struct device *device, bool loss) {
    if (loss && device->plan->loss != NULL && device->feed != FEED_COPIED) {
        copy_operands(device, &device->plan->loss, 1, false, PHASE_LOAD);
    }
    session_wait(&device->session);
}

void device_fetch(struct device *device, const struct tensor *tensor) {
    struct device_times unused;
    if (device->feed != FEED_COPIED) {
        copy_operands(device, &tensor, 1, false, PHASE_LOAD);
        session_collect_times(&device->session, &unused);
    }
}

void device_collect_times(struct device *device, struct device_times *times) {
    session_collect_times(&device->session, times);
}

bool device_check(const struct device *device, struct fault *fault) {
    const struct fault *own = &device->session.fault;
    return own->status == STATUS_DONE || fault_set(fault, own->status, "%s", own->text);
}

#endif
