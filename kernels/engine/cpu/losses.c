/* losses.c - what training makes smaller, and the share of right answers.
 *
 * A loss is one float. Each thread adds up its own rows in double precision; the few sums are then
 * added in order, so that a loss is the same in every run. A label that names no class makes the
 * loss NaN, which ends the run: labels from a file are not to be trusted twice. */
#include "check.h"
#include "ops.h"
#include "spread.h"
#include "vector.h"

#include <math.h>

struct loss {
    const float *x, *target;
    const int32_t *labels;
    float *y; /* shares or gradient */
    int64_t rows, classes, count;
    double *sums; /* one a part, a cache line apart */
};

enum { SUM_STEP = ALIGNMENT / sizeof(double) };

static size_t sums_bytes(const struct op *op, int threads) {
    (void)op;
    return (size_t)threads * ALIGNMENT;
}

static struct loss loss_of(const struct op *op, struct scene *scene) {
    struct loss loss = {
        .x = floats(op->in[0]), .count = op->in[0]->count, .sums = scene->workspace};
    if (op->in[1]->type == TYPE_INDEX) {
        loss.labels = indices(op->in[1]);
        loss.rows = op->in[1]->count;
        loss.classes = loss.count / loss.rows;
    } else {
        loss.target = floats(op->in[1]);
    }
    return loss;
}

/* Runs work over `most` pieces and writes the sum of all parts, divided by `by`. */
static void add_up(struct scene *scene, struct loss *loss, int64_t most, pool_work *work, double by,
                   float *result) {
    spread(scene, most, loss->count * 8, work, loss);
    double sum = 0.0;
    for (int part = 0; part < spread_parts(scene, most, loss->count * 8); part++)
        sum += loss->sums[part * SUM_STEP];
    *result = (float)(sum / by);
}

static bool is_class(int32_t label, int64_t classes) { return label >= 0 && label < classes; }

/* --- of classes ---------------------------------------------------------------------------- */

static float greatest_of(const float *x, int64_t count) {
    v8 greatest = all8(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        greatest = max8(load8(x + i), greatest);
    if (i < count)
        greatest = max8(load8_part(x + i, count - i, -INFINITY), greatest);
    return greatest8(greatest);
}

/* Writes the shares of one row; returns the logarithm of what they were divided by. */
static float shares_of_row(const float *x, float *shares, int64_t classes, float greatest) {
    v8 sum = all8(0.0f);
    int64_t i = 0;
    for (; i + LANES <= classes; i += LANES) {
        v8 e = exp8(load8(x + i) - greatest);
        sum += e;
        store8(shares + i, e);
    }
    if (i < classes) {
        v8 e = exp8(load8_part(x + i, classes - i, -INFINITY) - greatest);
        sum += e;
        store8_part(shares + i, e, classes - i);
    }
    float total = sum8(sum), share = 1.0f / total;
    for (i = 0; i + LANES <= classes; i += LANES)
        store8(shares + i, load8(shares + i) * share);
    for (; i < classes; i++)
        shares[i] *= share;
    return logf(total);
}

static void softmax_cross_entropy_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct loss *loss = context;
    int64_t row, last;
    share_of(loss->rows, part, parts, &row, &last);
    double sum = 0.0;
    for (; row < last; row++) {
        const float *x = loss->x + row * loss->classes;
        int32_t label = loss->labels[row];
        float right = is_class(label, loss->classes) ? x[label] : NAN;
        float greatest = greatest_of(x, loss->classes);
        sum += (double)(greatest - right) +
               (double)shares_of_row(x, loss->y + row * loss->classes, loss->classes, greatest);
    }
    loss->sums[part * SUM_STEP] = sum;
}

static void softmax_cross_entropy_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    loss.y = floats(op->out[0]);
    add_up(scene, &loss, loss.rows, softmax_cross_entropy_part, (double)loss.rows,
           floats(op->out[1]));
}

static void softmax_cross_entropy_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct loss *loss = context;
    int64_t row, last;
    share_of(loss->rows, part, parts, &row, &last);
    float scale = 1.0f / (float)loss->rows;
    for (; row < last; row++) {
        const float *shares = loss->x + row * loss->classes;
        float *dx = loss->y + row * loss->classes;
        int32_t label = loss->labels[row];
        int64_t i = 0;
        for (; i + LANES <= loss->classes; i += LANES)
            store8(dx + i, load8(shares + i) * scale);
        for (; i < loss->classes; i++)
            dx[i] = shares[i] * scale;
        if (is_class(label, loss->classes))
            dx[label] -= scale;
    }
}

static void softmax_cross_entropy_gradient_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    loss.y = floats(op->out[0]);
    spread(scene, loss.rows, loss.count, softmax_cross_entropy_gradient_part, &loss);
}

/* A share of nothing would cost infinitely much; this is the dearest that there is. */
static float payable(float share) { return share < 1e-12f ? 1e-12f : share; }

static void cross_entropy_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    double sum = 0.0;
    for (int64_t row = 0; row < loss.rows; row++) {
        int32_t label = loss.labels[row];
        bool known = is_class(label, loss.classes);
        sum -= known ? (double)logf(payable(loss.x[row * loss.classes + label])) : (double)NAN;
    }
    *floats(op->out[0]) = (float)(sum / (double)loss.rows);
}

static void cross_entropy_gradient_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    for (int64_t row = 0; row < loss.rows; row++) {
        const float *shares = loss.x + row * loss.classes;
        float *dx = floats(op->out[0]) + row * loss.classes;
        int32_t label = loss.labels[row];
        float right = is_class(label, loss.classes) ? payable(shares[label]) : NAN;
        memset(dx, 0, (size_t)loss.classes * sizeof *dx);
        if (is_class(label, loss.classes))
            dx[label] = -1.0f / (right * (float)loss.rows);
    }
}

static void accuracy_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    int64_t right = 0;
    for (int64_t row = 0; row < loss.rows; row++) {
        const float *x = loss.x + row * loss.classes;
        int64_t best = 0;
        for (int64_t i = 1; i < loss.classes; i++)
            best = x[i] > x[best] ? i : best;
        right += best == loss.labels[row];
    }
    *floats(op->out[0]) = (float)right / (float)loss.rows;
}

/* --- of values ----------------------------------------------------------------------------- */

typedef v8 value_function(v8 x, v8 target);

__attribute__((always_inline)) static inline void sum_part(const struct loss *loss, int part,
                                                           int parts, value_function *cost) {
    enum { STRETCH = 4096 }; /* values added in single precision at most, an eighth in each lane */
    int64_t i, last;
    share_of_values(loss->count, part, parts, &i, &last);
    double total = 0.0;
    while (i < last) {
        int64_t stretch_end = i + STRETCH < last ? i + STRETCH : last;
        v8 sum = all8(0.0f);
        for (; i + LANES <= stretch_end; i += LANES)
            sum += cost(load8(loss->x + i), load8(loss->target + i));
        total += (double)sum8(sum);
        int64_t rest = stretch_end - i;
        v8 end = cost(load8_up_to(loss->x + i, rest), load8_up_to(loss->target + i, rest));
        for (int64_t lane = 0; lane < rest; lane++)
            total += (double)end[lane];
        i = stretch_end;
    }
    loss->sums[part * SUM_STEP] = total;
}

__attribute__((always_inline)) static inline void slope_part(const struct loss *loss, int part,
                                                             int parts, value_function *slope) {
    int64_t i, last;
    share_of_values(loss->count, part, parts, &i, &last);
    float scale = 1.0f / (float)loss->count;
    for (; i + LANES <= last; i += LANES)
        store8(loss->y + i, slope(load8(loss->x + i), load8(loss->target + i)) * scale);
    if (i < last) {
        v8 x = load8_part(loss->x + i, last - i, 0.0f);
        v8 target = load8_part(loss->target + i, last - i, 0.0f);
        store8_part(loss->y + i, slope(x, target) * scale, last - i);
    }
}

static v8 square(v8 x, v8 target) { return (x - target) * (x - target); }

static v8 square_slope(v8 x, v8 target) { return 2.0f * (x - target); }

/* max(x, 0) - x t + log(1 + e^-|x|): no exponential of anything great. */
static v8 binary(v8 x, v8 target) {
    return max8(x, all8(0.0f)) - x * target + log8(1.0f + exp8(-abs8(x)));
}

static v8 binary_slope(v8 x, v8 target) { return sigmoid8(x) - target; }

static void mean_squared_error_part(void *context, int part, int parts, int worker) {
    (void)worker;
    sum_part(context, part, parts, square);
}

static void binary_cross_entropy_part(void *context, int part, int parts, int worker) {
    (void)worker;
    sum_part(context, part, parts, binary);
}

static void mean_squared_error_slope_part(void *context, int part, int parts, int worker) {
    (void)worker;
    slope_part(context, part, parts, square_slope);
}

static void binary_cross_entropy_slope_part(void *context, int part, int parts, int worker) {
    (void)worker;
    slope_part(context, part, parts, binary_slope);
}

static void mean_squared_error_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    add_up(scene, &loss, loss.count, mean_squared_error_part, (double)loss.count,
           floats(op->out[0]));
}

static void binary_cross_entropy_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    add_up(scene, &loss, loss.count, binary_cross_entropy_part, (double)loss.count,
           floats(op->out[0]));
}

static void mean_squared_error_gradient_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    loss.y = floats(op->out[0]);
    spread(scene, loss.count, loss.count, mean_squared_error_slope_part, &loss);
}

static void binary_cross_entropy_gradient_run(const struct op *op, struct scene *scene) {
    struct loss loss = loss_of(op, scene);
    loss.y = floats(op->out[0]);
    spread(scene, loss.count, loss.count * 6, binary_cross_entropy_slope_part, &loss);
}

/* --- checks -------------------------------------------------------------------------------- */

static const char *check_labels(const struct op *op) {
    if (op->in[0]->count % op->in[1]->count != 0)
        return "has labels that do not fit its rows";
    if (op->in[0]->count / op->in[1]->count > INT32_MAX)
        return "has too many classes";
    return NULL;
}

static const char *check_one(const struct tensor *loss) {
    return loss->count != 1 ? "has a result that is not one value" : NULL;
}

static const char *check_softmax_cross_entropy(const struct op *op) {
    const char *fault = check_form(op, "fx", "ff", 0, 0);
    if (!fault)
        fault = check_labels(op);
    if (!fault && op->out[0]->count != op->in[0]->count)
        fault = "has shares of another size";
    return fault ? fault : check_one(op->out[1]);
}

static const char *check_label_gradient(const struct op *op) {
    const char *fault = check_form(op, "fx", "f", 0, 0);
    if (!fault)
        fault = check_labels(op);
    if (!fault && op->out[0]->count != op->in[0]->count)
        fault = "has a gradient of another size";
    return fault;
}

static const char *check_label_loss(const struct op *op) {
    const char *fault = check_form(op, "fx", "f", 0, 0);
    if (!fault)
        fault = check_labels(op);
    return fault ? fault : check_one(op->out[0]);
}

static const char *check_value_loss(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 0);
    if (!fault && op->in[0]->count != op->in[1]->count)
        fault = "has a target of another size";
    return fault ? fault : check_one(op->out[0]);
}

static const char *check_value_gradient(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 0);
    if (!fault && op->in[0]->count != op->in[1]->count)
        fault = "has a target of another size";
    if (!fault && op->in[0]->count != op->out[0]->count)
        fault = "has a gradient of another size";
    return fault;
}

static const struct op_kind softmax_cross_entropy = {
    "softmax_cross_entropy", check_softmax_cross_entropy, sums_bytes, NULL,
    softmax_cross_entropy_run};
static const struct op_kind softmax_cross_entropy_gradient = {
    "softmax_cross_entropy_gradient", check_label_gradient, NULL, NULL,
    softmax_cross_entropy_gradient_run};
static const struct op_kind cross_entropy = {"cross_entropy", check_label_loss, NULL, NULL,
                                             cross_entropy_run};
static const struct op_kind cross_entropy_gradient = {
    "cross_entropy_gradient", check_label_gradient, NULL, NULL, cross_entropy_gradient_run};
static const struct op_kind mean_squared_error = {"mean_squared_error", check_value_loss,
                                                  sums_bytes, NULL, mean_squared_error_run};
static const struct op_kind mean_squared_error_gradient = {
    "mean_squared_error_gradient", check_value_gradient, NULL, NULL,
    mean_squared_error_gradient_run};
static const struct op_kind binary_cross_entropy = {"binary_cross_entropy", check_value_loss,
                                                    sums_bytes, NULL, binary_cross_entropy_run};
static const struct op_kind binary_cross_entropy_gradient = {
    "binary_cross_entropy_gradient", check_value_gradient, NULL, NULL,
    binary_cross_entropy_gradient_run};
static const struct op_kind accuracy = {"accuracy", check_label_loss, NULL, NULL, accuracy_run};

const struct op_kind *const loss_kinds[] = {
    &softmax_cross_entropy,
    &softmax_cross_entropy_gradient,
    &cross_entropy,
    &cross_entropy_gradient,
    &mean_squared_error,
    &mean_squared_error_gradient,
    &binary_cross_entropy,
    &binary_cross_entropy_gradient,
    &accuracy,
    NULL,
};
