/* work.c - gives a plan its memory, its data, its first values and its threads, and runs it.
 *
 * The one rule: everything is taken in work_open(), and touched there, so that the first step is a
 * step like all others. Nothing is ever given back; the process ends with its plan. */
#include "work.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool.h"
#include "random.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static const size_t WORKSPACE_MAX = (size_t)1 << 40;

/* -- memory */

/* Kilobytes of a line of /proc/meminfo, or 0. */
static uint64_t kilobytes_of(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

/* Bytes that can be had without killing anybody; 0 where the phone does not say. */
static uint64_t bytes_available(void) {
    char text[PAGE];
    int file = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    text[count < 0 ? 0 : count] = '\0';
    return (kilobytes_of(text, "MemAvailable:") + kilobytes_of(text, "\nSwapFree:")) * 1024;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* Zeroed bytes, every page of them there already if asked for; NULL: none left. */
static void *take(size_t bytes, bool touched) {
#ifdef __SANITIZE_ADDRESS__
    (void)touched;
    void *start = aligned_alloc(ALIGNMENT, bytes); /* so that its edges are watched */
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
        madvise(start, bytes, MADV_HUGEPAGE); /* advice only: fewer misses in the address cache */
    }
    for (size_t at = 0; touched && at < bytes; at += PAGE) {
        ((volatile char *)start)[at] = 0;
    }
    return start;
#endif
}

static size_t rounded(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
}

static size_t workspace_of(const struct plan *plan) {
    size_t most = 0;
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        size_t bytes = op->kind->workspace == NULL ? 0 : op->kind->workspace(op, plan->threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool refuse_memory(struct fault *fault, uint64_t needed, uint64_t available) {
    return fault_say(fault, RUNNER_OUT_OF_MEMORY,
                     "needs %llu kB of %llu kB that are left; use a smaller batch",
                     (unsigned long long)(needed / 1024), (unsigned long long)(available / 1024));
}

static bool take_memory(struct work *work, struct fault *fault) {
    struct plan *plan = work->plan;
    work->workspace_bytes = workspace_of(plan);
    uint64_t needed = work->workspace_bytes, available = bytes_available();
    if (work->workspace_bytes > WORKSPACE_MAX) {
        return refuse_memory(fault, needed, available);
    }
    for (int arena = 0; arena < ARENAS; arena++) {
        needed += plan->arena[arena];
    }
    for (int stream = 0; stream < plan->streams; stream++) {
        needed += stream_bytes(&plan->stream[stream]);
    }
    /* Asking for more than there is would end other processes first, and this one later. */
    if (available != 0 && needed > available) {
        return refuse_memory(fault, needed, available);
    }
    char *arena[ARENAS];
    for (int i = 0; i < ARENAS; i++) {
        arena[i] = take(rounded(plan->arena[i]), !plan->opencl);
        if (arena[i] == NULL) {
            return refuse_memory(fault, needed, available);
        }
    }
    work->scene.workspace = take(rounded(work->workspace_bytes), !plan->opencl);
    if (work->scene.workspace == NULL) {
        return refuse_memory(fault, needed, available);
    }
    for (int i = 0; i < plan->tensors; i++) {
        struct tensor *tensor = &plan->tensor[i];
        tensor->data = arena[tensor->arena] + tensor->offset;
    }
    return true;
}

static bool make_data(struct work *work, const char *data_file, struct fault *fault) {
    static const enum runner_exit exits[] = {
        [DATASET_REFUSED] = RUNNER_BAD_PLAN,
        [DATASET_UNREADABLE] = RUNNER_IO,
        [DATASET_NO_MEMORY] = RUNNER_OUT_OF_MEMORY,
    };
    struct plan *plan = work->plan;
    char why[DATA_FAULT_BYTES] = "";
    enum dataset_result result = dataset_open(plan->stream, plan->streams, plan->seed, data_file,
                                              &work->dataset, why);
    if (result != DATASET_OPEN) {
        return fault_say(fault, exits[result], "the data set: %s", why);
    }
    work->scene.dataset = work->dataset;
    return true;
}

/* -- first values */

struct filling {
    const struct tensor *tensor;
    uint64_t key;
};

static void fill_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct filling *filling = context;
    const struct tensor *tensor = filling->tensor;
    float *value = floats(tensor);
    float scale = tensor->init_value;
    int64_t first, last;
    share_of(tensor->count, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        if (tensor->init == INIT_CONSTANT) {
            value[i] = scale;
        } else if (tensor->init == INIT_UNIFORM) {
            value[i] = random_uniform(filling->key, (uint64_t)i, scale);
        } else {
            value[i] = scale * random_normal(filling->key, (uint64_t)i);
        }
    }
}

static void set_first_values(struct work *work) {
    const struct plan *plan = work->plan;
    for (int i = 0; i < plan->tensors; i++) {
        const struct tensor *tensor = &plan->tensor[i];
        if (tensor->init == INIT_ZERO) {
            memset(tensor->data, 0, (size_t)tensor->count * (tensor->type == TYPE_BYTE ? 1 : 4));
        } else if (tensor->init != INIT_NONE) {
            struct filling filling = {tensor, random_key(plan->seed, RANDOM_INITIAL + (uint64_t)i)};
            int parts = tensor->count < 4096 ? 1 : plan->threads;
            pool_run(work->pool, parts, fill_part, &filling);
        }
    }
}

/* -- what the plan amounts to */

static int cut_stretches(const struct plan *plan, bool evaluation, struct stretch *stretch) {
    int count = 0;
    for (int i = 0; i < plan->ops; i++) {
        enum phase phase = plan->op[i].phase;
        if ((phase == PHASE_EVALUATE) != evaluation) {
            continue;
        }
        if (count > 0 && stretch[count - 1].phase == phase && stretch[count - 1].last == i) {
            stretch[count - 1].last = i + 1;
        } else {
            stretch[count++] = (struct stretch){phase, i, i + 1};
        }
    }
    return count;
}

static uint64_t hash_of(const struct tensor *tensor) {
    const uint32_t *word = tensor->data;
    uint64_t hash = 0;
    for (int64_t i = 0; i < tensor->count; i++) {
        hash = (hash ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

static bool is_parameter(const struct tensor *tensor) {
    return tensor != NULL && tensor->arena == ARENA_PARAMETER && tensor->type == TYPE_FLOAT;
}

/* Marks every parameter tensor that the plan's steps read (or, of updates, write). */
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

/* By where they begin: Shell's sort, in steps that halve. */
static void sort_by_offset(const struct tensor **tensor, int count) {
    for (int gap = count / 2; gap > 0; gap /= 2) {
        for (int i = gap; i < count; i++) {
            const struct tensor *moving = tensor[i];
            int at = i;
            for (; at >= gap && tensor[at - gap]->offset > moving->offset; at -= gap) {
                tensor[at] = tensor[at - gap];
            }
            tensor[at] = moving;
        }
    }
}

/* Values under the marked tensors; what two of them share counts once. */
static int64_t values_under(const struct plan *plan, const bool *marked,
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

static int64_t round_of(const struct plan *plan) {
    int64_t round = 1;
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (op->phase != PHASE_LOAD || strcmp(op->kind->name, "load") != 0) {
            continue;
        }
        int64_t batch = op->out[0]->rank > 0 ? op->out[0]->dim[0] : 1;
        int64_t batches = (plan->stream[op->i[0]].count + batch - 1) / batch;
        round = batches > round ? batches : round;
    }
    return round;
}

static bool count_plan(struct work *work, struct fault *fault) {
    const struct plan *plan = work->plan;
    size_t ops = (size_t)plan->ops, tensors = (size_t)plan->tensors + 1;
    work->step = calloc(ops, sizeof *work->step);
    work->evaluation = calloc(ops, sizeof *work->evaluation);
    work->learned = calloc(tensors, sizeof *work->learned);
    bool *marked = calloc(tensors, sizeof *marked);
    const struct tensor **sorted = calloc(tensors, sizeof(struct tensor *));
    if (!work->step || !work->evaluation || !work->learned || !marked || !sorted) {
        return fault_say(fault, RUNNER_OUT_OF_MEMORY, "no memory for the plan itself");
    }
    work->stretches = cut_stretches(plan, false, work->step);
    work->evaluations = cut_stretches(plan, true, work->evaluation);
    mark_parameters(plan, false, marked);
    work->parameters = values_under(plan, marked, sorted);
    mark_parameters(plan, true, marked);
    for (int i = 0; i < plan->tensors; i++) {
        if (marked[i]) {
            work->learned[work->learned_count++] = (struct learned){&plan->tensor[i], 0};
        }
    }
    for (int i = 0; i < plan->ops; i++) {
        const struct op *op = &plan->op[i];
        if (op->phase == PHASE_FORWARD && op->kind->macs != NULL) {
            work->macs += op->kind->macs(op);
        }
    }
    work->round = round_of(plan);
    free(marked);
    free(sorted);
    return true;
}

/* -- the whole */

bool work_open(struct work *work, struct plan *plan, const char *data_file,
               const struct device_settings *settings, uint64_t mask, struct fault *fault) {
    *work = (struct work){.plan = plan};
    work->scene.seed = plan->seed;
    if (!count_plan(work, fault) || !take_memory(work, fault) ||
        !make_data(work, data_file, fault)) {
        return false;
    }
    work->pool = pool_open(plan->threads, mask);
    if (work->pool == NULL) {
        return fault_say(fault, RUNNER_OUT_OF_MEMORY, "%d threads cannot be started",
                         plan->threads);
    }
    work->scene.pool = work->pool;
    set_first_values(work);
    for (int i = 0; i < work->learned_count; i++) {
        work->learned[i].first_hash = hash_of(work->learned[i].tensor);
    }
    work->device = plan->opencl ? device_open(plan, settings, fault) : NULL;
    return !plan->opencl || work->device != NULL;
}

void work_run(struct work *work, int first, int last) {
    for (int i = first; i < last; i++) {
        const struct op *op = &work->plan->op[i];
        if (work->device != NULL) {
            device_run(work->device, op, &work->scene);
        } else {
            op->kind->run(op, &work->scene);
        }
    }
    if (work->device != NULL) {
        device_flush(work->device);
    }
}

void work_wait(struct work *work, bool step_ends) {
    if (work->device != NULL) {
        device_wait(work->device, step_ends);
    }
}

void work_fetch(const struct work *work, const struct tensor *tensor) {
    if (work->device != NULL) {
        device_fetch(work->device, tensor);
    }
}

int work_moved(const struct work *work) {
    int moved = 0;
    for (int i = 0; i < work->learned_count; i++) {
        work_fetch(work, work->learned[i].tensor);
        moved += hash_of(work->learned[i].tensor) != work->learned[i].first_hash;
    }
    return moved;
}

/* -- the answer of a product */

/* One value of op(a) op(b), and its error relative to the sum of its terms' sizes. */
static double error_at(const struct op *op, int64_t row, int64_t column, int64_t depth) {
    const float *a = floats(op->in[0]), *b = floats(op->in[1]), *c = floats(op->out[0]);
    int64_t a_width = op->in[0]->dim[1], b_width = op->in[1]->dim[1];
    double sum = 0, size = 0;
    for (int64_t k = 0; k < depth; k++) {
        double left = op->i[0] ? a[k * a_width + row] : a[row * a_width + k];
        double right = op->i[1] ? b[column * b_width + k] : b[k * b_width + column];
        sum += left * right;
        size += fabs(left * right);
    }
    double error = fabs(c[row * op->out[0]->dim[1] + column] - sum);
    return size > 0 ? error / size : error;
}

double product_error(const struct op *op) {
    int64_t rows = op->out[0]->dim[0], columns = op->out[0]->dim[1];
    int64_t depth = op->i[0] ? op->in[0]->dim[0] : op->in[0]->dim[1];
    /* All values of a small product, thousands of a large one: corners, edges, and points between. */
    int64_t points = rows * columns, looks = points < 4096 ? points : 4096;
    double worst = 0;
    for (int64_t look = 0; look < looks; look++) {
        int64_t point = looks == 1 ? 0 : look * (points - 1) / (looks - 1);
        double error = error_at(op, point / columns, point % columns, depth);
        worst = error > worst || isnan(error) ? error : worst;
        if (isnan(error)) {
            break;
        }
    }
    return worst;
}

double work_answer_error(const struct work *work) {
    double worst = -1;
    for (int i = 0; i < work->plan->ops; i++) {
        const struct op *op = &work->plan->op[i];
        if (strcmp(op->kind->name, "sgemm") == 0) {
            work_fetch(work, op->in[0]);
            work_fetch(work, op->in[1]);
            work_fetch(work, op->out[0]);
            double error = product_error(op);
            worst = error > worst || isnan(error) ? error : worst;
        }
    }
    return worst;
}
