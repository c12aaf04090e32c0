/* losses.c - losses, their gradients, and accuracy.
 *
 *   softmax_cross_entropy   loss = mean of -log(probs[label]) over rows, probs = softmax(x)
 *                           dx = (probs - 1 at the label) / N
 *   cross_entropy           loss = mean of -log(x[label]), x are probabilities
 *                           dx = -1 / (x N) at the label
 *   mean_squared_error      loss = mean of (x - target)^2 over values, dx = 2 (x - target) / N
 *   binary_cross_entropy    loss = mean of -t log(s) - (1 - t) log(1 - s), s = sigmoid(x)
 *                           dx = (s - t) / N
 *   accuracy                the fraction of rows with the largest value at the label
 *
 * A loss is one float. Each thread sums its rows in double precision, and the few partial sums are
 * added in order, so that a loss is the same in every run. A label outside the classes makes the
 * loss NaN, which ends the run: labels may come from a file. */
#include <math.h>

#include "ops.h"
#include "parallel_for.h"
#include "reductions.h"

static op_run softmax_cross_entropy_run, softmax_cross_entropy_gradient_run;
static op_run cross_entropy_run, cross_entropy_gradient_run, accuracy_run;
static op_run mean_squared_error_run, mean_squared_error_gradient_run;
static op_run binary_cross_entropy_run, binary_cross_entropy_gradient_run;
static op_workspace partial_sums_bytes;
static op_check check_classes;

const struct op_kind loss_kinds[] = {
    {"softmax_cross_entropy", "x[N*C] labels[N] : probs[N*C] loss[1]", check_classes,
     partial_sums_bytes, NULL, softmax_cross_entropy_run},
    {"softmax_cross_entropy_gradient", "probs[N*C] labels[N] : dx[N*C]=probs", check_classes,
     .run = softmax_cross_entropy_gradient_run},
    {"cross_entropy", "x[N*C] labels[N] : loss[1]", check_classes, .run = cross_entropy_run},
    {"cross_entropy_gradient", "x[N*C] labels[N] : dx[N*C]", check_classes,
     .run = cross_entropy_gradient_run},
    {"mean_squared_error", "x[N] target[N] : loss[1]", NULL, partial_sums_bytes, NULL,
     mean_squared_error_run},
    {"mean_squared_error_gradient", "x[N] target[N] : dx[N]",
     .run = mean_squared_error_gradient_run},
    {"binary_cross_entropy", "x[N] target[N] : loss[1]", NULL, partial_sums_bytes, NULL,
     binary_cross_entropy_run},
    {"binary_cross_entropy_gradient", "x[N] target[N] : dx[N]",
     .run = binary_cross_entropy_gradient_run},
    {"accuracy", "x[N*C] labels[N] : accuracy[1]", check_classes, .run = accuracy_run},
    {.name = NULL},
};

struct loss {
    const float *x, *target;
    const int32_t *labels;
    float *y; /* probabilities or gradient */
    int64_t rows, classes, count;
    double *partial_sums; /* one per part, a cache line apart */
};

enum { SUM_STRIDE = ALIGNMENT / sizeof(double) };

static size_t partial_sums_bytes(const struct op *op, int threads) {
    (void)op;
    return (size_t)threads * PARTS_PER_THREAD * ALIGNMENT;
}

static struct loss loss_of(const struct op *op, struct exec_context *exec) {
    struct loss loss = {
        .x = floats(op->in[0]), .count = op->in[0]->count, .partial_sums = exec->workspace};
    if (op->in[1]->type == TYPE_INDEX) {
        loss.labels = indices(op->in[1]);
        loss.rows = op->in[1]->count;
        loss.classes = loss.count / loss.rows;
    } else {
        loss.target = floats(op->in[1]);
    }
    return loss;
}

/* Runs the task in at most `max_parts` parts and writes the sum of all parts, divided by
 * `count`. */
static void reduce_mean(struct exec_context *exec, struct loss *loss, int64_t max_parts,
                        thread_pool_task *task, double count, float *result) {
    parallel_for(exec, max_parts, loss->count * 8, task, loss);
    double sum = 0.0;
    for (int part = 0; part < parallel_for_parts(exec, max_parts, loss->count * 8); part++) {
        sum += loss->partial_sums[part * SUM_STRIDE];
    }
    *result = (float)(sum / count);
}

/* Labels are int32_t. */
static const char *check_classes(const struct op *op) {
    return op->in[0]->count / op->in[1]->count > INT32_MAX ? "has too many classes" : NULL;
}

static bool is_class(int32_t label, int64_t classes) { return label >= 0 && label < classes; }

/* ---- losses over classes ---- */

static void softmax_cross_entropy_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct loss *loss = context;
    int64_t row, last;
    split_range(loss->rows, part, parts, &row, &last);
    double sum = 0.0;
    for (; row < last; row++) {
        const float *x = loss->x + row * loss->classes;
        int32_t label = loss->labels[row];
        float right = is_class(label, loss->classes) ? x[label] : NAN;
        float max = max_value(x, loss->classes);
        sum += (double)(max - right) +
               (double)logf(softmax_row(x, loss->y + row * loss->classes, loss->classes, max));
    }
    loss->partial_sums[part * SUM_STRIDE] = sum;
}

static void softmax_cross_entropy_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    loss.y = floats(op->out[0]);
    reduce_mean(exec, &loss, loss.rows, softmax_cross_entropy_part, (double)loss.rows,
                floats(op->out[1]));
}

static void softmax_cross_entropy_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct loss *loss = context;
    int64_t row, last;
    split_range(loss->rows, part, parts, &row, &last);
    float scale = 1.0f / (float)loss->rows;
    for (; row < last; row++) {
        const float *probs = loss->x + row * loss->classes;
        float *dx = loss->y + row * loss->classes;
        int32_t label = loss->labels[row];
        int64_t i = 0;
        for (; i + LANES <= loss->classes; i += LANES) {
            store8(dx + i, load8(probs + i) * scale);
        }
        for (; i < loss->classes; i++) {
            dx[i] = probs[i] * scale;
        }
        if (is_class(label, loss->classes)) {
            dx[label] -= scale;
        }
    }
}

static void softmax_cross_entropy_gradient_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    loss.y = floats(op->out[0]);
    parallel_for(exec, loss.rows, loss.count, softmax_cross_entropy_gradient_part, &loss);
}

/* Keeps the logarithm of a probability finite. */
static float clamp_probability(float p) { return p < 1e-12f ? 1e-12f : p; }

static void cross_entropy_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    double sum = 0.0;
    for (int64_t row = 0; row < loss.rows; row++) {
        int32_t label = loss.labels[row];
        bool known = is_class(label, loss.classes);
        sum -= known ? (double)logf(clamp_probability(loss.x[row * loss.classes + label]))
                     : (double)NAN;
    }
    *floats(op->out[0]) = (float)(sum / (double)loss.rows);
}

static void cross_entropy_gradient_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    for (int64_t row = 0; row < loss.rows; row++) {
        const float *probs = loss.x + row * loss.classes;
        float *dx = floats(op->out[0]) + row * loss.classes;
        int32_t label = loss.labels[row];
        float right = is_class(label, loss.classes) ? clamp_probability(probs[label]) : NAN;
        memset(dx, 0, (size_t)loss.classes * sizeof *dx);
        if (is_class(label, loss.classes)) {
            dx[label] = -1.0f / (right * (float)loss.rows);
        }
    }
}

static void accuracy_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    int64_t right = 0;
    for (int64_t row = 0; row < loss.rows; row++) {
        const float *x = loss.x + row * loss.classes;
        int64_t best = 0;
        for (int64_t i = 1; i < loss.classes; i++) {
            best = x[i] > x[best] ? i : best;
        }
        right += best == loss.labels[row];
    }
    *floats(op->out[0]) = (float)right / (float)loss.rows;
}

/* ---- losses over values ---- */

typedef v8 value_function(v8 x, v8 target);

ALWAYS_INLINE void sum_part(const struct loss *loss, int part, int parts, value_function *cost) {
    enum { BLOCK = 4096 }; /* values summed in single precision at most, an eighth per lane */
    int64_t i, last;
    split_range_by_cache_line(loss->count, part, parts, &i, &last);
    double total = 0.0;
    while (i < last) {
        int64_t block_end = i + BLOCK < last ? i + BLOCK : last;
        v8 sum = splat8(0.0f);
        for (; i + LANES <= block_end; i += LANES) {
            sum += cost(load8(loss->x + i), load8(loss->target + i));
        }
        total += (double)hsum8(sum);
        int64_t rest = block_end - i;
        v8 end = cost(load8_up_to(loss->x + i, rest), load8_up_to(loss->target + i, rest));
        for (int64_t lane = 0; lane < rest; lane++) {
            total += (double)end[lane];
        }
        i = block_end;
    }
    loss->partial_sums[part * SUM_STRIDE] = total;
}

ALWAYS_INLINE void grad_part(const struct loss *loss, int part, int parts, value_function *grad) {
    int64_t i, last;
    split_range_by_cache_line(loss->count, part, parts, &i, &last);
    float scale = 1.0f / (float)loss->count;
    for (; i + LANES <= last; i += LANES) {
        store8(loss->y + i, grad(load8(loss->x + i), load8(loss->target + i)) * scale);
    }
    if (i < last) {
        v8 x = load8_part(loss->x + i, last - i, 0.0f);
        v8 target = load8_part(loss->target + i, last - i, 0.0f);
        store8_part(loss->y + i, grad(x, target) * scale, last - i);
    }
}

static v8 squared_error(v8 x, v8 target) { return (x - target) * (x - target); }

static v8 squared_error_grad(v8 x, v8 target) { return 2.0f * (x - target); }

/* max(x, 0) - x t + log(1 + e^-|x|): the exponential cannot overflow. */
static v8 logistic_loss(v8 x, v8 target) {
    return max8(x, splat8(0.0f)) - x * target + log8(1.0f + exp8(-abs8(x)));
}

static v8 logistic_loss_grad(v8 x, v8 target) { return sigmoid8(x) - target; }

static void mean_squared_error_part(void *context, int part, int parts, int worker) {
    (void)worker;
    sum_part(context, part, parts, squared_error);
}

static void binary_cross_entropy_part(void *context, int part, int parts, int worker) {
    (void)worker;
    sum_part(context, part, parts, logistic_loss);
}

static void mean_squared_error_grad_part(void *context, int part, int parts, int worker) {
    (void)worker;
    grad_part(context, part, parts, squared_error_grad);
}

static void binary_cross_entropy_grad_part(void *context, int part, int parts, int worker) {
    (void)worker;
    grad_part(context, part, parts, logistic_loss_grad);
}

static void mean_squared_error_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    reduce_mean(exec, &loss, loss.count, mean_squared_error_part, (double)loss.count,
                floats(op->out[0]));
}

static void binary_cross_entropy_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    reduce_mean(exec, &loss, loss.count, binary_cross_entropy_part, (double)loss.count,
                floats(op->out[0]));
}

static void mean_squared_error_gradient_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    loss.y = floats(op->out[0]);
    parallel_for(exec, loss.count, loss.count, mean_squared_error_grad_part, &loss);
}

static void binary_cross_entropy_gradient_run(const struct op *op, struct exec_context *exec) {
    struct loss loss = loss_of(op, exec);
    loss.y = floats(op->out[0]);
    parallel_for(exec, loss.count, loss.count * 6, binary_cross_entropy_grad_part, &loss);
}
