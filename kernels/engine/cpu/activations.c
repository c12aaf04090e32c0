/* activations.c - element-wise activations, dropout, and softmax.
 *
 *   relu      y = max(x, 0)                       dx = dy where y > 0
 *   relu6     y = min(max(x, 0), 6)               dx = dy where 0 < y < 6
 *   leaky     y = x > 0 ? x : SLOPE x             dx = y > 0 ? dy : SLOPE dy
 *   tanh      y = tanh(x)                         dx = dy (1 - y y)
 *   sigmoid   y = 1 / (1 + exp(-x))               dx = dy y (1 - y)
 *   gelu      y = x P(x), P(x) = (1 + erf(x / sqrt(2))) / 2
 *                                                 dx = dy (P(x) + x exp(-x x / 2) / sqrt(2 pi))
 *   dropout   y = x mask / (1 - RATE)             dx = dy mask / (1 - RATE)
 *             mask: 1, or 0 for about RATE of the values
 *   softmax   y = exp(x) / sum of exp(x)          dx = y (dy - sum of y dy)
 *             the sums are over LENGTH values that are INNER apart
 *
 * An element-wise function is written once, for eight lanes; the loop, the threads and the
 * operation around it are shared. */
#include <math.h>

#include "../random.h"
#include "ops.h"
#include "parallel_for.h"
#include "reductions.h"

static op_run relu_forward_run, relu_gradient_run, relu6_forward_run, relu6_gradient_run;
static op_run leaky_forward_run, leaky_gradient_run, tanh_forward_run, tanh_gradient_run;
static op_run sigmoid_forward_run, sigmoid_gradient_run, gelu_forward_run, gelu_gradient_run;
static op_run dropout_forward_run, dropout_gradient_run;
static op_run softmax_forward_run, softmax_gradient_run;
static op_check check_slope, check_rate;

const struct op_kind activation_kinds[] = {
    {"relu_forward", "x[N] : y[N]=x", .run = relu_forward_run},
    {"relu_gradient", "y[N] dy[N] : dx[N]=dy", .run = relu_gradient_run},
    {"relu6_forward", "x[N] : y[N]=x", .run = relu6_forward_run},
    {"relu6_gradient", "y[N] dy[N] : dx[N]=dy", .run = relu6_gradient_run},
    {"leaky_forward", "x[N] : y[N]=x : : SLOPE", check_slope, .run = leaky_forward_run},
    {"leaky_gradient", "y[N] dy[N] : dx[N]=dy : : SLOPE", check_slope, .run = leaky_gradient_run},
    {"tanh_forward", "x[N] : y[N]=x", .run = tanh_forward_run},
    {"tanh_gradient", "y[N] dy[N] : dx[N]=dy", .run = tanh_gradient_run},
    {"sigmoid_forward", "x[N] : y[N]=x", .run = sigmoid_forward_run},
    {"sigmoid_gradient", "y[N] dy[N] : dx[N]=dy", .run = sigmoid_gradient_run},
    {"gelu_forward", "x[N] : y[N]", .run = gelu_forward_run},
    {"gelu_gradient", "x[N] dy[N] : dx[N]=dy", .run = gelu_gradient_run},
    {"dropout_forward", "x[N] : y[N]=x mask[N] : : RATE", check_rate, .run = dropout_forward_run},
    {"dropout_gradient", "mask[N] dy[N] : dx[N]=dy : : RATE", check_rate,
     .run = dropout_gradient_run},
    {"softmax_forward", "x[OUTER*LENGTH*INNER] : y[OUTER*LENGTH*INNER]=x : OUTER LENGTH INNER",
     .run = softmax_forward_run},
    {"softmax_gradient",
     "y[OUTER*LENGTH*INNER] dy[OUTER*LENGTH*INNER] : dx[OUTER*LENGTH*INNER]=dy"
     " : OUTER LENGTH INNER",
     .run = softmax_gradient_run},
    {.name = NULL},
};

/* ---- element-wise functions ---- */

struct map {
    void (*range)(const struct map *map, int64_t first, int64_t last);
    const float *a, *b;
    float *y;
    int64_t count;
    float param;
};

typedef v8 map_function(v8 a, v8 b, float param);

/* Always inlined, so that the function is inlined into the loop. */
ALWAYS_INLINE void map_range(const struct map *map, int64_t i, int64_t last,
                             map_function *function) {
    for (; i < last; i += LANES) {
        v8 a = load8_up_to(map->a + i, last - i), b = load8_up_to(map->b + i, last - i);
        store8_up_to(map->y + i, function(a, b, map->param), last - i);
    }
}

static void map_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct map *map = context;
    int64_t first, last;
    split_range_by_cache_line(map->count, part, parts, &first, &last);
    map->range(map, first, last);
}

/* cost: per value, as a multiple of the cost of copying it. */
static void run_map(const struct op *op, struct exec_context *exec,
                    void (*range)(const struct map *map, int64_t first, int64_t last), int cost) {
    struct map map = {
        .range = range,
        .a = floats(op->in[0]),
        .b = floats(op->in[op->ins - 1]),
        .y = floats(op->out[0]),
        .count = op->out[0]->count,
        .param = op->f[0],
    };
    parallel_for(exec, map.count, map.count * cost, map_part, &map);
}

/* The gradient tells the branches apart by the sign of y. */
static const char *check_slope(const struct op *op) {
    return op->f[0] < 0.0f ? "has a negative slope" : NULL;
}

/* Forward functions take x twice; gradients take y (gelu: x) and dy. */
#define UNUSED __attribute__((unused))

static v8 relu(v8 x, UNUSED v8 same, UNUSED float param) { return max8(x, splat8(0.0f)); }

static v8 relu_grad(v8 y, v8 dy, UNUSED float param) { return mask8(y > 0.0f, dy); }

static v8 relu6(v8 x, UNUSED v8 same, UNUSED float param) {
    return min8(max8(x, splat8(0.0f)), splat8(6.0f));
}

static v8 relu6_grad(v8 y, v8 dy, UNUSED float param) { return mask8((y > 0.0f) & (y < 6.0f), dy); }

static v8 leaky(v8 x, UNUSED v8 same, float slope) { return select8(x > 0.0f, x, x * slope); }

static v8 leaky_grad(v8 y, v8 dy, float slope) { return select8(y > 0.0f, dy, dy * slope); }

static v8 tanh_activation(v8 x, UNUSED v8 same, UNUSED float param) { return tanh8(x); }

static v8 tanh_activation_grad(v8 y, v8 dy, UNUSED float param) { return dy * (1.0f - y * y); }

static v8 sigmoid(v8 x, UNUSED v8 same, UNUSED float param) { return sigmoid8(x); }

static v8 sigmoid_grad(v8 y, v8 dy, UNUSED float param) { return dy * (y * (1.0f - y)); }

static v8 gelu(v8 x, UNUSED v8 same, UNUSED float param) {
    return 0.5f * x * (1.0f + erf8(x * 0.70710678f));
}

static v8 gelu_grad(v8 x, v8 dy, UNUSED float param) {
    v8 normal_cdf = 0.5f * (1.0f + erf8(x * 0.70710678f));
    v8 normal_density = 0.39894228f * exp8(-0.5f * x * x);
    return dy * (normal_cdf + x * normal_density);
}

/* Defines NAME_run(), which maps `function` over the operands. */
#define MAP(NAME, FUNCTION, COST)                                                                  \
    static void NAME##_range(const struct map *map, int64_t first, int64_t last) {                 \
        map_range(map, first, last, FUNCTION);                                                     \
    }                                                                                              \
    static void NAME##_run(const struct op *op, struct exec_context *exec) {                       \
        run_map(op, exec, NAME##_range, COST);                                                     \
    }

MAP(relu_forward, relu, 1)
MAP(relu_gradient, relu_grad, 1)
MAP(relu6_forward, relu6, 1)
MAP(relu6_gradient, relu6_grad, 1)
MAP(leaky_forward, leaky, 1)
MAP(leaky_gradient, leaky_grad, 1)
MAP(tanh_forward, tanh_activation, 8)
MAP(tanh_gradient, tanh_activation_grad, 1)
MAP(sigmoid_forward, sigmoid, 6)
MAP(sigmoid_gradient, sigmoid_grad, 1)
MAP(gelu_forward, gelu, 10)
MAP(gelu_gradient, gelu_grad, 14)

/* ---- dropout ---- */

struct dropout {
    const float *x;
    float *y;
    uint8_t *mask;
    int64_t count;
    float scale;
    uint32_t threshold; /* dropped values of 65536 */
    uint64_t key;
};

typedef uint8_t b8 __attribute__((vector_size(8)));

static v8 apply_mask8(const uint8_t *mask, v8 x, float scale) {
    b8 kept;
    memcpy(&kept, mask, sizeof kept);
    return x * (__builtin_convertvector(kept, v8) * scale);
}

/* Four values share the 64 bits of one random number; first is a multiple of four. */
static void draw_mask(const struct dropout *dropout, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i += 4) {
        uint64_t bits = random_at(dropout->key, (uint64_t)i / 4);
        for (int64_t n = i; n < i + 4 && n < last; n++, bits >>= 16) {
            dropout->mask[n] = (bits & 0xffff) >= dropout->threshold;
        }
    }
}

static void apply_mask(const struct dropout *dropout, int64_t i, int64_t last) {
    for (; i + LANES <= last; i += LANES) {
        store8(dropout->y + i,
               apply_mask8(dropout->mask + i, load8(dropout->x + i), dropout->scale));
    }
    for (; i < last; i++) {
        dropout->y[i] = dropout->x[i] * ((float)dropout->mask[i] * dropout->scale);
    }
}

static void dropout_forward_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct dropout *dropout = context;
    int64_t first, last;
    split_range_by_cache_line(dropout->count, part, parts, &first, &last);
    draw_mask(dropout, first, last);
    apply_mask(dropout, first, last);
}

static void dropout_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct dropout *dropout = context;
    int64_t first, last;
    split_range_by_cache_line(dropout->count, part, parts, &first, &last);
    apply_mask(dropout, first, last);
}

static const char *check_rate(const struct op *op) {
    return op->f[0] >= 0.0f && op->f[0] < 1.0f ? NULL : "has a dropout rate outside 0..1";
}

static void dropout_forward_run(const struct op *op, struct exec_context *exec) {
    uint64_t key = random_bits(exec->seed, RANDOM_DROPOUT, (uint64_t)op->number);
    struct dropout dropout = {
        .x = floats(op->in[0]),
        .y = floats(op->out[0]),
        .mask = bytes(op->out[1]),
        .count = op->out[0]->count,
        .scale = 1.0f / (1.0f - op->f[0]),
        .threshold = (uint32_t)(op->f[0] * 65536.0f),
        .key = random_key(key, exec->step),
    };
    parallel_for(exec, dropout.count, dropout.count * 4, dropout_forward_part, &dropout);
}

static void dropout_gradient_run(const struct op *op, struct exec_context *exec) {
    struct dropout dropout = {.x = floats(op->in[1]),
                              .y = floats(op->out[0]),
                              .mask = bytes(op->in[0]),
                              .count = op->out[0]->count,
                              .scale = 1.0f / (1.0f - op->f[0])};
    parallel_for(exec, dropout.count, dropout.count, dropout_gradient_part, &dropout);
}

/* ---- softmax ---- */

struct softmax {
    const float *x, *dy; /* in the gradient, x is the output of the forward pass */
    float *y;
    int64_t outer, length, inner;
};

static void softmax_row_gradient(const float *y, const float *dy, float *dx, int64_t length) {
    v8 sum = splat8(0.0f);
    int64_t i = 0;
    for (; i + LANES <= length; i += LANES) {
        sum += load8(y + i) * load8(dy + i);
    }
    if (i < length) {
        sum += load8_part(y + i, length - i, 0.0f) * load8_part(dy + i, length - i, 0.0f);
    }
    float dot = hsum8(sum);
    for (i = 0; i + LANES <= length; i += LANES) {
        store8(dx + i, load8(y + i) * (load8(dy + i) - dot));
    }
    for (; i < length; i++) {
        dx[i] = y[i] * (dy[i] - dot);
    }
}

/* Rows whose values are `step` apart in memory, e.g. along a channel axis. */
static void softmax_column(const float *x, float *y, int64_t length, int64_t step) {
    float max = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < length; i++) {
        max = x[i * step] < max ? max : x[i * step];
    }
    for (int64_t i = 0; i < length; i++) {
        sum += y[i * step] = expf(x[i * step] - max);
    }
    for (int64_t i = 0; i < length; i++) {
        y[i * step] *= 1.0f / sum;
    }
}

static void softmax_column_gradient(const float *y, const float *dy, float *dx, int64_t length,
                                    int64_t step) {
    float mean = 0.0f;
    for (int64_t i = 0; i < length; i++) {
        mean += y[i * step] * dy[i * step];
    }
    for (int64_t i = 0; i < length; i++) {
        dx[i * step] = y[i * step] * (dy[i * step] - mean);
    }
}

static void softmax_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct softmax *s = context;
    int64_t row, last;
    split_range(s->outer * s->inner, part, parts, &row, &last);
    for (; row < last; row++) {
        int64_t at = row / s->inner * s->length * s->inner + row % s->inner;
        if (s->inner > 1) {
            softmax_column(s->x + at, s->y + at, s->length, s->inner);
        } else {
            softmax_row(s->x + at, s->y + at, s->length, max_value(s->x + at, s->length));
        }
    }
}

static void softmax_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct softmax *s = context;
    int64_t row, last;
    split_range(s->outer * s->inner, part, parts, &row, &last);
    for (; row < last; row++) {
        int64_t at = row / s->inner * s->length * s->inner + row % s->inner;
        if (s->inner > 1) {
            softmax_column_gradient(s->x + at, s->dy + at, s->y + at, s->length, s->inner);
        } else {
            softmax_row_gradient(s->x + at, s->dy + at, s->y + at, s->length);
        }
    }
}

static struct softmax softmax_of(const struct op *op) {
    return (struct softmax){.x = floats(op->in[0]),
                            .y = floats(op->out[0]),
                            .outer = op->i[0],
                            .length = op->i[1],
                            .inner = op->i[2]};
}

static void softmax_forward_run(const struct op *op, struct exec_context *exec) {
    struct softmax softmax = softmax_of(op);
    parallel_for(exec, softmax.outer * softmax.inner, op->in[0]->count * 8, softmax_part, &softmax);
}

static void softmax_gradient_run(const struct op *op, struct exec_context *exec) {
    struct softmax softmax = softmax_of(op);
    softmax.dy = floats(op->in[1]);
    parallel_for(exec, softmax.outer * softmax.inner, op->in[0]->count * 2, softmax_gradient_part,
                 &softmax);
}
