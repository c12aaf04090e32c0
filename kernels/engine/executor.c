/* executor.c - gives a plan its memory, data set, initial values and threads, and runs it.
 *
 * The one rule: all memory is allocated and touched in executor_open(), so that the first step is
 * like all others. Nothing is freed; the process ends with its plan. */
#include "executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "int_math.h"
#include "os.h"
#include "random.h"
#include "thread_pool.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static const size_t WORKSPACE_MAX = (size_t)1 << 40;

/* ---- memory ---- */

/* Kilobytes of a line of /proc/meminfo, or 0. */
static uint64_t kilobytes_of(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

/* Bytes that can be allocated without the kernel killing other processes; 0: not known. */
static uint64_t bytes_available(void) {
    char text[PAGE];
    if (read_file_start("/proc/meminfo", text, sizeof text) < 0) {
        return 0;
    }
    return (kilobytes_of(text, "MemAvailable:") + kilobytes_of(text, "\nSwapFree:")) * 1024;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* Maps zeroed memory, with every page present if `touch`; NULL: not enough memory. */
static void *map_zeroed(size_t bytes, bool touch) {
#ifdef __SANITIZE_ADDRESS__
    (void)touch;
    void *start = aligned_alloc(ALIGNMENT, bytes); /* AddressSanitizer watches its edges */
    return start == NULL ? NULL : memset(start, 0, bytes);
#else
    bool large = bytes >= 2 * HUGE_PAGE;
    size_t room = bytes + (large ? HUGE_PAGE : 0);
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return NULL;
    }
    if (large) {
        start += (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
        madvise(start, bytes, MADV_HUGEPAGE); /* advice only: fewer TLB misses */
    }
    for (size_t at = 0; touch && at < bytes; at += PAGE) {
        ((volatile char *)start)[at] = 0;
    }
    return start;
#endif
}

static size_t padded(size_t bytes) {
    return (size_t)round_up((int64_t)bytes, ALIGNMENT) + ALIGNMENT;
}

size_t plan_workspace(const struct plan *plan) {
    size_t largest = 0;
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        size_t bytes = op->kind->workspace == NULL ? 0 : op->kind->workspace(op, plan->threads);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static bool refuse_for_memory(struct fault *fault, uint64_t needed, uint64_t available) {
    return fault_set(fault, STATUS_OUT_OF_MEMORY,
                     "the plan needs %llu kB, and %llu kB are available; use a smaller batch",
                     (unsigned long long)(needed / 1024), (unsigned long long)(available / 1024));
}

/* Memory of the host is touched before the first step only where a step uses it. */
static bool allocate_memory(struct executor *executor, const struct dataset_settings *data,
                            bool touch, struct fault *fault) {
    struct plan *plan = executor->plan;
    executor->workspace_bytes = plan_workspace(plan);
    uint64_t needed = executor->workspace_bytes, available = bytes_available();
    if (executor->workspace_bytes > WORKSPACE_MAX) {
        return refuse_for_memory(fault, needed, available);
    }
    for (int arena = 0; arena < ARENAS; arena++) {
        needed += plan->arena[arena];
    }
    for (int stream = 0; stream < plan->streams && data->storage == NULL; stream++) {
        needed += stream_bytes(&plan->stream[stream]);
    }
    /* An allocation beyond this makes the kernel kill other processes first, and this one later. */
    if (available != 0 && needed > available) {
        return refuse_for_memory(fault, needed, available);
    }
    for (int i = 0; i < ARENAS; i++) {
        executor->arena[i] = map_zeroed(padded(plan->arena[i]), touch);
        if (executor->arena[i] == NULL) {
            return refuse_for_memory(fault, needed, available);
        }
    }
    executor->exec.workspace = map_zeroed(padded(executor->workspace_bytes), !plan->opencl);
    if (executor->exec.workspace == NULL) {
        return refuse_for_memory(fault, needed, available);
    }
    for (int i = 0; i < plan->tensors; i++) {
        struct tensor *tensor = &plan->tensor[i];
        tensor->data = executor->arena[tensor->arena] + tensor->offset;
    }
    return true;
}

/* Bytes of the data set that a load operation copies. */
static int64_t loaded_bytes(const struct plan *plan, const struct op *op) {
    const struct stream *stream = &plan->stream[op->i[0]];
    return op->out[0]->count * (int64_t)type_bytes(stream->type);
}

static bool make_data(struct executor *executor, const struct dataset_settings *data,
                      struct fault *fault) {
    struct plan *plan = executor->plan;
    struct dataset_settings settings = *data;
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (op_is(op, "load")) {
            int64_t bytes = loaded_bytes(plan, op);
            int64_t all = (int64_t)stream_bytes(&plan->stream[op->i[0]]);
            executor->load_bytes += op->phase == PHASE_LOAD ? bytes : 0;
            settings.read_bytes = max_i64(settings.read_bytes, min_i64(bytes, all));
        }
    }
    executor->dataset = dataset_open(plan->stream, plan->streams, plan->seed, &settings, fault);
    executor->exec.dataset = executor->dataset;
    return executor->dataset != NULL;
}

/* ---- initial values ---- */

struct fill {
    const struct tensor *tensor;
    uint64_t key;
};

static void fill_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct fill *fill = context;
    const struct tensor *tensor = fill->tensor;
    float *value = floats(tensor);
    float scale = tensor->init_value;
    int64_t first, last;
    split_range(tensor->count, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        if (tensor->init == INIT_CONSTANT) {
            value[i] = scale;
        } else if (tensor->init == INIT_UNIFORM) {
            value[i] = random_uniform(fill->key, (uint64_t)i, scale);
        } else {
            value[i] = scale * random_normal(fill->key, (uint64_t)i);
        }
    }
}

static void set_initial_values(struct executor *executor) {
    const struct plan *plan = executor->plan;
    for (int i = 0; i < plan->tensors; i++) {
        const struct tensor *tensor = &plan->tensor[i];
        if (tensor->init == INIT_ZERO) {
            if (!plan->opencl) { /* there the memory of host and device is zero and untouched */
                memset(tensor->data, 0, tensor_bytes(tensor));
            }
        } else if (tensor->init != INIT_NONE) {
            struct fill fill = {tensor, random_key(plan->seed, RANDOM_INITIAL + (uint64_t)i)};
            int parts = tensor->count < 4096 ? 1 : plan->threads;
            thread_pool_run(executor->pool, parts, fill_part, &fill);
        }
    }
}

/* ---- totals of the plan ---- */

static int find_phase_ranges(const struct plan *plan, bool evaluation, struct phase_range *range) {
    int count = 0;
    for (int i = 0; i < plan->ops; i++) {
        enum phase phase = plan->op[i].phase;
        if ((phase == PHASE_EVALUATE) != evaluation) {
            continue;
        }
        if (count > 0 && range[count - 1].phase == phase && range[count - 1].last == i) {
            range[count - 1].last = i + 1;
        } else {
            range[count++] = (struct phase_range){phase, i, i + 1};
        }
    }
    return count;
}

static uint64_t hash_of(const struct tensor *tensor) {
    return hash_bytes(0, tensor->data, tensor_bytes(tensor));
}

static bool is_parameter(const struct tensor *tensor) {
    return tensor != NULL && tensor->arena == ARENA_PARAMETER && tensor->type == TYPE_FLOAT;
}

/* Marks every parameter tensor that a step reads or, with `updates`, that an update writes. */
static void mark_parameters(const struct plan *plan, bool updates, bool *marked) {
    memset(marked, 0, (size_t)plan->tensors);
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (updates ? op->phase != PHASE_UPDATE : op->phase == PHASE_EVALUATE) {
            continue;
        }
        const struct tensor *const *operand = updates ? op->out : op->in;
        for (int k = 0; k < (updates ? op->outs : op->ins); k++) {
            if (is_parameter(operand[k])) {
                marked[operand[k] - plan->tensor] = true;
            }
        }
    }
}

/* Shell sort with halving gaps. */
static void sort_by_offset(const struct tensor **tensor, int count) {
    for (int gap = count / 2; gap > 0; gap /= 2) {
        for (int i = gap; i < count; i++) {
            const struct tensor *current = tensor[i];
            int at = i;
            for (; at >= gap && tensor[at - gap]->offset > current->offset; at -= gap) {
                tensor[at] = tensor[at - gap];
            }
            tensor[at] = current;
        }
    }
}

/* Values in the marked tensors; bytes that two tensors share count once. */
static int64_t count_values(const struct plan *plan, const bool *marked,
                            const struct tensor **sorted) {
    int count = 0;
    for (int i = 0; i < plan->tensors; i++) {
        if (marked[i]) {
            sorted[count++] = &plan->tensor[i];
        }
    }
    sort_by_offset(sorted, count);
    size_t reached = 0, bytes = 0;
    for (int i = 0; i < count; i++) {
        size_t first = sorted[i]->offset > reached ? sorted[i]->offset : reached;
        size_t last = sorted[i]->offset + (size_t)sorted[i]->count * 4;
        if (last > first) {
            bytes += last - first;
            reached = last;
        }
    }
    return (int64_t)(bytes / 4);
}

static int64_t epoch_of(const struct plan *plan) {
    int64_t epoch = 1;
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (op->phase != PHASE_LOAD || !op_is(op, "load")) {
            continue;
        }
        int64_t batch = op->out[0]->rank > 0 ? op->out[0]->dim[0] : 1;
        int64_t batches = div_up(plan->stream[op->i[0]].count, batch);
        epoch = batches > epoch ? batches : epoch;
    }
    return epoch;
}

static bool compute_totals(struct executor *executor, struct fault *fault) {
    const struct plan *plan = executor->plan;
    size_t ops = (size_t)plan->ops, tensors = (size_t)plan->tensors + 1;
    executor->step = calloc(ops, sizeof *executor->step);
    executor->evaluation = calloc(ops, sizeof *executor->evaluation);
    executor->learned = calloc(tensors, sizeof *executor->learned);
    bool *marked = calloc(tensors, sizeof *marked);
    const struct tensor **sorted = calloc(tensors, sizeof(struct tensor *));
    if (!executor->step || !executor->evaluation || !executor->learned || !marked || !sorted) {
        return fault_set(fault, STATUS_OUT_OF_MEMORY,
                         "not enough memory for the lists of the plan; close other programs");
    }
    executor->step_ranges = find_phase_ranges(plan, false, executor->step);
    executor->evaluation_ranges = find_phase_ranges(plan, true, executor->evaluation);
    mark_parameters(plan, false, marked);
    executor->parameters = count_values(plan, marked, sorted);
    mark_parameters(plan, true, marked);
    for (int i = 0; i < plan->tensors; i++) {
        if (marked[i]) {
            executor->learned[executor->learned_count++] =
                (struct learned_tensor){&plan->tensor[i], 0};
        }
    }
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (op->phase == PHASE_FORWARD && op->kind->macs != NULL) {
            executor->macs += op->kind->macs(op);
        }
    }
    executor->epoch = epoch_of(plan);
    free(marked);
    free(sorted);
    return true;
}

/* ---- open and run ---- */

bool executor_open(struct executor *executor, struct plan *plan,
                   const struct dataset_settings *data, const struct device_settings *settings,
                   uint64_t mask, struct fault *fault) {
    *executor = (struct executor){.plan = plan};
    executor->exec.seed = plan->seed;
    bool touch = !plan->opencl || settings->feed == FEED_COPIED;
    if (!compute_totals(executor, fault) || !allocate_memory(executor, data, touch, fault) ||
        !make_data(executor, data, fault)) {
        return false;
    }
    executor->pool = thread_pool_open(plan->threads, mask);
    if (executor->pool == NULL) {
        return fault_set(fault, STATUS_OUT_OF_MEMORY, "cannot start %d threads", plan->threads);
    }
    executor->exec.pool = executor->pool;
    set_initial_values(executor);
    for (int i = 0; i < executor->learned_count; i++) {
        executor->learned[i].initial_hash = hash_of(executor->learned[i].tensor);
    }
    return true;
}

bool executor_open_device(struct executor *executor, const struct device_settings *settings,
                          struct fault *fault) {
    struct plan *plan = executor->plan;
    if (!plan->opencl) {
        return true;
    }
    thread_pool_unpin_caller(executor->pool); /* the driver starts its threads now */
    executor->device = device_open(plan, executor->dataset, settings, fault);
    thread_pool_pin_caller(executor->pool);
    return executor->device != NULL;
}

void executor_run(struct executor *executor, int first, int last) {
    if (executor->device != NULL) {
        device_run(executor->device, first, last, &executor->exec);
        return;
    }
    for (int i = first; i < last; i++) {
        const struct op *op = &executor->plan->op[i];
        op->kind->run(op, &executor->exec);
    }
}

void executor_wait(struct executor *executor, bool step_ends) {
    if (executor->device != NULL) {
        device_wait(executor->device, step_ends);
    }
}

bool executor_check(const struct executor *executor, struct fault *fault) {
    return (executor->device == NULL || device_check(executor->device, fault)) &&
           dataset_check(executor->dataset, fault);
}

void executor_fetch(const struct executor *executor, const struct tensor *tensor) {
    if (executor->device != NULL) {
        device_fetch(executor->device, tensor);
    }
}

int executor_changed_tensors(const struct executor *executor) {
    int changed = 0;
    for (int i = 0; i < executor->learned_count; i++) {
        executor_fetch(executor, executor->learned[i].tensor);
        changed += hash_of(executor->learned[i].tensor) != executor->learned[i].initial_hash;
    }
    return changed;
}

/* ---- the error of matrix products ---- */

/* The error of one value of op(a) op(b), relative to the sum of its absolute terms. */
static double error_at(const struct op *op, int64_t row, int64_t column, int64_t depth) {
    const float *a = floats(op->in[0]), *b = floats(op->in[1]), *c = floats(op->out[0]);
    int64_t a_width = op->in[0]->dim[1], b_width = op->in[1]->dim[1];
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < depth; k++) {
        double left = op->i[0] ? a[k * a_width + row] : a[row * a_width + k];
        double right = op->i[1] ? b[column * b_width + k] : b[k * b_width + column];
        sum += left * right;
        magnitude += fabs(left * right);
    }
    double error = fabs(c[row * op->out[0]->dim[1] + column] - sum);
    return magnitude > 0 ? error / magnitude : error;
}

double matmul_error(const struct op *op) {
    int64_t rows = op->out[0]->dim[0], columns = op->out[0]->dim[1];
    int64_t depth = op->i[0] ? op->in[0]->dim[0] : op->in[0]->dim[1];
    /* All values of a small product, 4096 of a large one, evenly spaced with both ends. */
    int64_t points = rows * columns, samples = min_i64(points, 4096);
    double worst = 0;
    for (int64_t n = 0; n < samples; n++) {
        int64_t point = samples == 1 ? 0 : n * (points - 1) / (samples - 1);
        double error = error_at(op, point / columns, point % columns, depth);
        worst = error > worst || isnan(error) ? error : worst;
        if (isnan(error)) {
            break;
        }
    }
    return worst;
}

double executor_matmul_error(const struct executor *executor) {
    double worst = -1;
    for (int i = 0; i < executor->plan->ops; i++) {
        const struct op *op = &executor->plan->op[i];
        if (op_is(op, "sgemm")) {
            executor_fetch(executor, op->in[0]);
            executor_fetch(executor, op->in[1]);
            executor_fetch(executor, op->out[0]);
            double error = matmul_error(op);
            worst = error > worst || isnan(error) ? error : worst;
        }
    }
    return worst;
}
