/* optimizers.c - parameter updates: SGD, momentum, Adam and AdamW, each one pass over memory; and
 * the norm of gradients.
 *
 *   sgd        p -= RATE (g + DECAY p)
 *   momentum   v = MOMENTUM v + g + DECAY p, p -= RATE v
 *   adam       m = BETA1 m + (1 - BETA1) g, v = BETA2 v + (1 - BETA2) g g
 *              p -= RATE c1 m / (c2 sqrt(v) + EPSILON), c1 and c2: the correction of the bias
 *   adamw      p -= RATE DECAY p, then adam on SCALE g, limited to a norm of CLIP
 *              total: the squared norm of all gradients, from squared_norm and squared_norm_add */
#include <math.h>

#include "ops.h"
#include "parallel_for.h"
#include "reductions.h"
#include "vector.h"

static op_run sgd_run, momentum_run, adam_run, adamw_run, squared_norm_run;
static op_workspace squared_norm_workspace;
static op_check check_adam, check_adamw;

const struct op_kind optimizer_kinds[] = {
    {"sgd", "p[N] g[N] : p[N]=p : : RATE DECAY", .run = sgd_run},
    {"momentum", "p[N] g[N] v[N] : p[N]=p v[N]=v : : RATE MOMENTUM DECAY", .run = momentum_run},
    {"adam", "p[N] g[N] m[N] v[N] : p[N]=p m[N]=m v[N]=v : : RATE BETA1 BETA2 EPSILON", check_adam,
     .run = adam_run},
    {"adamw",
     "p[N] g[N] m[N] v[N] total[1] : p[N]=p m[N]=m v[N]=v"
     " : : RATE BETA1 BETA2 EPSILON DECAY CLIP SCALE",
     check_adamw, .run = adamw_run},
    {"squared_norm", "g[N] : total[1]", NULL, squared_norm_workspace, NULL, squared_norm_run},
    {"squared_norm_add", "g[N] total[1] : total[1]=total", NULL, squared_norm_workspace, NULL,
     squared_norm_run},
    {.name = NULL},
};

/* in: p, g and the state of the optimizer; out: p and the state. */
struct update {
    const float *in[4];
    float *out[3];
    int64_t count;
    float rate, decay, momentum;
    float beta1, beta2, epsilon, corrected_rate, corrected_deviation;
    float gradient_scale; /* of AdamW */
};

static struct update update_of(const struct op *op) {
    struct update update = {.count = op->out[0]->count, .rate = op->f[0]};
    for (int n = 0; n < op->ins && n < 4; n++) {
        update.in[n] = floats(op->in[n]);
    }
    for (int n = 0; n < op->outs; n++) {
        update.out[n] = floats(op->out[n]);
    }
    return update;
}

/* Eight parameters with their state. */
struct param_state {
    v8 p, first, second;
};

typedef struct param_state update_function(const struct update *update, v8 g,
                                           struct param_state old);

/* states: values of state per parameter; a constant after inlining. */
ALWAYS_INLINE void update_part(const struct update *update, int part, int parts, int states,
                               update_function *function) {
    int64_t i, last;
    split_range_by_cache_line(update->count, part, parts, &i, &last);
    for (; i < last; i += LANES) {
        int64_t count = last - i;
        struct param_state state = {.p = load8_up_to(update->in[0] + i, count)};
        if (states > 0) {
            state.first = load8_up_to(update->in[2] + i, count);
        }
        if (states > 1) {
            state.second = load8_up_to(update->in[3] + i, count);
        }
        state = function(update, load8_up_to(update->in[1] + i, count), state);
        store8_up_to(update->out[0] + i, state.p, count);
        if (states > 0) {
            store8_up_to(update->out[1] + i, state.first, count);
        }
        if (states > 1) {
            store8_up_to(update->out[2] + i, state.second, count);
        }
    }
}

static inline struct param_state sgd_step(const struct update *update, v8 g,
                                          struct param_state old) {
    old.p -= update->rate * (g + update->decay * old.p);
    return old;
}

static inline struct param_state momentum_step(const struct update *update, v8 g,
                                               struct param_state old) {
    old.first = update->momentum * old.first + (g + update->decay * old.p);
    old.p -= update->rate * old.first;
    return old;
}

static inline struct param_state adam_step(const struct update *update, v8 g,
                                           struct param_state old) {
    old.first = update->beta1 * old.first + (1.0f - update->beta1) * g;
    old.second = update->beta2 * old.second + (1.0f - update->beta2) * (g * g);
    v8 deviation = sqrt8(old.second) * update->corrected_deviation + update->epsilon;
    old.p -= update->corrected_rate * (old.first / deviation);
    return old;
}

static inline struct param_state adamw_step(const struct update *update, v8 g,
                                            struct param_state old) {
    old.p -= update->decay * old.p;
    return adam_step(update, g * update->gradient_scale, old);
}

static void sgd_part(void *context, int part, int parts, int worker) {
    (void)worker;
    update_part(context, part, parts, 0, sgd_step);
}

static void momentum_part(void *context, int part, int parts, int worker) {
    (void)worker;
    update_part(context, part, parts, 1, momentum_step);
}

static void adam_part(void *context, int part, int parts, int worker) {
    (void)worker;
    update_part(context, part, parts, 2, adam_step);
}

static void adamw_part(void *context, int part, int parts, int worker) {
    (void)worker;
    update_part(context, part, parts, 2, adamw_step);
}

static void sgd_run(const struct op *op, struct exec_context *exec) {
    struct update update = update_of(op);
    update.decay = op->f[1];
    parallel_for(exec, update.count, update.count * 2, sgd_part, &update);
}

static void momentum_run(const struct op *op, struct exec_context *exec) {
    struct update update = update_of(op);
    update.momentum = op->f[1];
    update.decay = op->f[2];
    parallel_for(exec, update.count, update.count * 3, momentum_part, &update);
}

/* base^exponent by squaring; the library's pow() would bring tables along that nothing else
 * needs. */
static double power(double base, uint64_t exponent) {
    double product = 1.0;
    for (; exponent > 0; exponent /= 2, base *= base) {
        product *= exponent % 2 ? base : 1.0;
    }
    return product;
}

static struct update adam_update_of(const struct op *op, const struct exec_context *exec) {
    struct update update = update_of(op);
    update.beta1 = op->f[1];
    update.beta2 = op->f[2];
    update.epsilon = op->f[3];
    uint64_t steps = exec->step + 1;
    update.corrected_rate =
        (float)((double)update.rate / (1.0 - power((double)update.beta1, steps)));
    update.corrected_deviation = (float)(1.0 / sqrt(1.0 - power((double)update.beta2, steps)));
    return update;
}

static const char *check_adam(const struct op *op) {
    bool fine = op->f[1] >= 0.0f && op->f[1] < 1.0f && op->f[2] >= 0.0f && op->f[2] < 1.0f;
    return fine ? NULL : "has a beta outside 0..1";
}

static void adam_run(const struct op *op, struct exec_context *exec) {
    struct update update = adam_update_of(op, exec);
    parallel_for(exec, update.count, update.count * 6, adam_part, &update);
}

static const char *check_adamw(const struct op *op) {
    return op->f[5] > 0.0f ? check_adam(op) : "needs a limit above 0";
}

static void adamw_run(const struct op *op, struct exec_context *exec) {
    struct update update = adam_update_of(op, exec);
    float clip = op->f[5], scale = op->f[6];
    float norm = scale * sqrtf(*floats(op->in[4])), factor = clip / (norm + 1e-6f);
    update.decay = update.rate * op->f[4];
    update.gradient_scale = factor < 1.0f ? scale * factor : scale;
    parallel_for(exec, update.count, update.count * 6, adamw_part, &update);
}

/* ---- the norm of gradients ---- */

enum { BLOCK = 4096 }; /* values summed in single precision at most, an eighth per lane */

struct norm {
    const float *g;
    int64_t count;
    double *partial_sums; /* one per part, a cache line apart */
};

static void squared_norm_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct norm *norm = context;
    int64_t i, last;
    split_range_by_cache_line(norm->count, part, parts, &i, &last);
    double sum = 0.0;
    for (; i < last; i += BLOCK) {
        int64_t count = last - i < BLOCK ? last - i : BLOCK;
        sum += (double)hsum8(squared_distance_lanes(norm->g + i, count, 0.0f));
    }
    norm->partial_sums[part * (int)(ALIGNMENT / sizeof(double))] = sum;
}

static void squared_norm_run(const struct op *op, struct exec_context *exec) {
    struct norm norm = {floats(op->in[0]), op->in[0]->count, exec->workspace};
    double total = op->ins == 2 ? (double)*floats(op->in[1]) : 0.0;
    parallel_for(exec, norm.count, norm.count, squared_norm_part, &norm);
    int parts = parallel_for_parts(exec, norm.count, norm.count);
    for (int part = 0; part < parts; part++) {
        total += norm.partial_sums[part * (int)(ALIGNMENT / sizeof(double))];
    }
    *floats(op->out[0]) = (float)total;
}

static size_t squared_norm_workspace(const struct op *op, int threads) {
    (void)op;
    return (size_t)threads * PARTS_PER_THREAD * ALIGNMENT;
}
