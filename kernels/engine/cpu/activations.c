/* activations.c - functions of single values, dropout, and softmax.
 *
 * Most of them map one or two values to one; such a function is written once, for eight lanes, and
 * everything else about it is shared. */
#include "../random.h"
#include "check.h"
#include "ops.h"
#include "spread.h"
#include "vector.h"

#include <math.h>

/* --- maps ---------------------------------------------------------------------------------- */

struct map_kind;

struct map {
    const struct map_kind *kind;
    const float *a, *b;
    float *y;
    int64_t count;
    float number;
};

typedef v8 map_function(v8 a, v8 b, float number);

/* Always inlined, so that the function disappears in the loop. */
__attribute__((always_inline)) static inline void map_over(const struct map *map, int64_t i,
                                                           int64_t last, map_function *function) {
    for (; i < last; i += LANES) {
        v8 a = load8_up_to(map->a + i, last - i), b = load8_up_to(map->b + i, last - i);
        store8_up_to(map->y + i, function(a, b, map->number), last - i);
    }
}

struct map_kind {
    struct op_kind kind; /* first, so that an operation's kind leads here */
    void (*over)(const struct map *map, int64_t first, int64_t last);
    int cost; /* of one value, as a multiple of copying it */
};

static void map_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct map *map = context;
    int64_t first, last;
    share_of_values(map->count, part, parts, &first, &last);
    map->kind->over(map, first, last);
}

static void map_run(const struct op *op, struct scene *scene) {
    const struct map_kind *kind = (const struct map_kind *)op->kind;
    struct map map = {kind,
                      floats(op->in[0]),
                      floats(op->in[op->ins - 1]),
                      floats(op->out[0]),
                      op->out[0]->count,
                      op->f[0]};
    spread(scene, map.count, map.count * kind->cost, map_part, &map);
}

static const char *check_sizes(const struct op *op) {
    if (op->in[0]->count != op->out[0]->count || op->in[op->ins - 1]->count != op->out[0]->count)
        return "has operands of different sizes";
    return NULL;
}

static const char *check_forward(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 0, 0);
    return fault ? fault : check_sizes(op);
}

static const char *check_gradient(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 0);
    return fault ? fault : check_sizes(op);
}

static const char *check_slope(const struct op *op) {
    /* The gradient tells the two branches apart by the sign of what came out. */
    return op->f[0] < 0.0f ? "has a negative slope" : check_sizes(op);
}

static const char *check_leaky_forward(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 0, 1);
    return fault ? fault : check_slope(op);
}

static const char *check_leaky_gradient(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 1);
    return fault ? fault : check_slope(op);
}

static v8 relu(v8 x, v8 same, float none) {
    (void)same, (void)none;
    return max8(x, all8(0.0f));
}

static v8 relu_slope(v8 y, v8 dy, float none) {
    (void)none;
    return (v8)((v8i)dy & (y > 0.0f));
}

static v8 relu6(v8 x, v8 same, float none) {
    (void)same, (void)none;
    return min8(max8(x, all8(0.0f)), all8(6.0f));
}

static v8 relu6_slope(v8 y, v8 dy, float none) {
    (void)none;
    return (v8)((v8i)dy & (y > 0.0f) & (y < 6.0f));
}

static v8 leaky(v8 x, v8 same, float slope) {
    (void)same;
    return select8(x > 0.0f, x, x * slope);
}

static v8 leaky_slope(v8 y, v8 dy, float slope) { return select8(y > 0.0f, dy, dy * slope); }

static v8 hyperbolic(v8 x, v8 same, float none) {
    (void)same, (void)none;
    return tanh8(x);
}

static v8 hyperbolic_slope(v8 y, v8 dy, float none) {
    (void)none;
    return dy * (1.0f - y * y);
}

static v8 sigmoid(v8 x, v8 same, float none) {
    (void)same, (void)none;
    return sigmoid8(x);
}

static v8 sigmoid_slope(v8 y, v8 dy, float none) {
    (void)none;
    return dy * (y * (1.0f - y));
}

static v8 gelu(v8 x, v8 same, float none) {
    (void)same, (void)none;
    return 0.5f * x * (1.0f + erf8(x * 0.70710678f));
}

static v8 gelu_slope(v8 x, v8 dy, float none) {
    (void)none;
    v8 share = 0.5f * (1.0f + erf8(x * 0.70710678f));
    v8 density = 0.39894228f * exp8(-0.5f * x * x);
    return dy * (share + x * density);
}

static void relu_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, relu);
}

static void relu_slope_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, relu_slope);
}

static void relu6_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, relu6);
}

static void relu6_slope_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, relu6_slope);
}

static void leaky_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, leaky);
}

static void leaky_slope_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, leaky_slope);
}

static void tanh_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, hyperbolic);
}

static void tanh_slope_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, hyperbolic_slope);
}

static void sigmoid_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, sigmoid);
}

static void sigmoid_slope_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, sigmoid_slope);
}

static void gelu_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, gelu);
}

static void gelu_slope_over(const struct map *map, int64_t first, int64_t last) {
    map_over(map, first, last, gelu_slope);
}

static const struct map_kind relu_forward = {
    {"relu_forward", check_forward, NULL, NULL, map_run}, relu_over, 1};
static const struct map_kind relu_gradient = {
    {"relu_gradient", check_gradient, NULL, NULL, map_run}, relu_slope_over, 1};
static const struct map_kind relu6_forward = {
    {"relu6_forward", check_forward, NULL, NULL, map_run}, relu6_over, 1};
static const struct map_kind relu6_gradient = {
    {"relu6_gradient", check_gradient, NULL, NULL, map_run}, relu6_slope_over, 1};
static const struct map_kind leaky_forward = {
    {"leaky_forward", check_leaky_forward, NULL, NULL, map_run}, leaky_over, 1};
static const struct map_kind leaky_gradient = {
    {"leaky_gradient", check_leaky_gradient, NULL, NULL, map_run}, leaky_slope_over, 1};
static const struct map_kind tanh_forward = {
    {"tanh_forward", check_forward, NULL, NULL, map_run}, tanh_over, 8};
static const struct map_kind tanh_gradient = {
    {"tanh_gradient", check_gradient, NULL, NULL, map_run}, tanh_slope_over, 1};
static const struct map_kind sigmoid_forward = {
    {"sigmoid_forward", check_forward, NULL, NULL, map_run}, sigmoid_over, 6};
static const struct map_kind sigmoid_gradient = {
    {"sigmoid_gradient", check_gradient, NULL, NULL, map_run}, sigmoid_slope_over, 1};
static const struct map_kind gelu_forward = {
    {"gelu_forward", check_forward, NULL, NULL, map_run}, gelu_over, 10};
static const struct map_kind gelu_gradient = {
    {"gelu_gradient", check_gradient, NULL, NULL, map_run}, gelu_slope_over, 14};

/* --- dropout ------------------------------------------------------------------------------- */

struct dropout {
    const float *x;
    float *y;
    uint8_t *mask;
    int64_t count;
    float scale;
    uint32_t dropped; /* of 65536 */
    uint64_t key;
};

typedef uint8_t b8 __attribute__((vector_size(8)));

static v8 masked(const uint8_t *mask, v8 x, float scale) {
    b8 kept;
    memcpy(&kept, mask, sizeof kept);
    return x * (__builtin_convertvector(kept, v8) * scale);
}

/* Four values share the 64 bits of one number; first is a multiple of four. */
static void draw_mask(const struct dropout *dropout, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i += 4) {
        uint64_t bits = random_at(dropout->key, (uint64_t)i / 4);
        for (int64_t n = i; n < i + 4 && n < last; n++, bits >>= 16)
            dropout->mask[n] = (bits & 0xffff) >= dropout->dropped;
    }
}

static void apply_mask(const struct dropout *dropout, int64_t i, int64_t last) {
    for (; i + LANES <= last; i += LANES)
        store8(dropout->y + i, masked(dropout->mask + i, load8(dropout->x + i), dropout->scale));
    for (; i < last; i++)
        dropout->y[i] = dropout->x[i] * ((float)dropout->mask[i] * dropout->scale);
}

static void dropout_forward_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct dropout *dropout = context;
    int64_t first, last;
    share_of_values(dropout->count, part, parts, &first, &last);
    draw_mask(dropout, first, last);
    apply_mask(dropout, first, last);
}

static void dropout_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct dropout *dropout = context;
    int64_t first, last;
    share_of_values(dropout->count, part, parts, &first, &last);
    apply_mask(dropout, first, last);
}

static void dropout_forward_run(const struct op *op, struct scene *scene) {
    uint64_t key = random_bits(scene->seed, RANDOM_DROPOUT, (uint64_t)op->number);
    struct dropout dropout = {floats(op->in[0]),
                              floats(op->out[0]),
                              bytes(op->out[1]),
                              op->out[0]->count,
                              1.0f / (1.0f - op->f[0]),
                              (uint32_t)(op->f[0] * 65536.0f),
                              random_key(key, scene->step)};
    spread(scene, dropout.count, dropout.count * 4, dropout_forward_part, &dropout);
}

static void dropout_gradient_run(const struct op *op, struct scene *scene) {
    struct dropout dropout = {.x = floats(op->in[1]),
                              .y = floats(op->out[0]),
                              .mask = bytes(op->in[0]),
                              .count = op->out[0]->count,
                              .scale = 1.0f / (1.0f - op->f[0])};
    spread(scene, dropout.count, dropout.count, dropout_gradient_part, &dropout);
}

static const char *check_share(const struct op *op, const struct tensor *mask) {
    if (!(op->f[0] >= 0.0f && op->f[0] < 1.0f))
        return "drops a share outside 0..1";
    if (mask->count != op->out[0]->count)
        return "has a mask of another size";
    return check_sizes(op);
}

static const char *check_dropout_forward(const struct op *op) {
    const char *fault = check_form(op, "f", "fb", 0, 1);
    return fault ? fault : check_share(op, op->out[1]);
}

static const char *check_dropout_gradient(const struct op *op) {
    const char *fault = check_form(op, "bf", "f", 0, 1);
    return fault ? fault : check_share(op, op->in[0]);
}

static const struct op_kind dropout_forward = {"dropout_forward", check_dropout_forward, NULL, NULL,
                                               dropout_forward_run};
static const struct op_kind dropout_gradient = {"dropout_gradient", check_dropout_gradient, NULL,
                                                NULL, dropout_gradient_run};

/* --- softmax ------------------------------------------------------------------------------- */

struct softmax {
    const float *x, *dy; /* forward: x; gradient: x is what came out */
    float *y;
    int64_t outer, length, inner;
};

static float greatest_of_row(const float *x, int64_t length) {
    v8 greatest = all8(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= length; i += LANES)
        greatest = max8(load8(x + i), greatest);
    if (i < length)
        greatest = max8(load8_part(x + i, length - i, -INFINITY), greatest);
    return greatest8(greatest);
}

static void softmax_row(const float *x, float *y, int64_t length) {
    float greatest = greatest_of_row(x, length);
    v8 sum = all8(0.0f);
    int64_t i = 0;
    for (; i + LANES <= length; i += LANES) {
        v8 e = exp8(load8(x + i) - greatest);
        sum += e;
        store8(y + i, e);
    }
    if (i < length) {
        v8 e = exp8(load8_part(x + i, length - i, -INFINITY) - greatest);
        sum += e;
        store8_part(y + i, e, length - i);
    }
    float share = 1.0f / sum8(sum);
    for (i = 0; i + LANES <= length; i += LANES)
        store8(y + i, load8(y + i) * share);
    for (; i < length; i++)
        y[i] *= share;
}

static void softmax_row_gradient(const float *y, const float *dy, float *dx, int64_t length) {
    v8 sum = all8(0.0f);
    int64_t i = 0;
    for (; i + LANES <= length; i += LANES)
        sum += load8(y + i) * load8(dy + i);
    if (i < length)
        sum += load8_part(y + i, length - i, 0.0f) * load8_part(dy + i, length - i, 0.0f);
    float mean = sum8(sum);
    for (i = 0; i + LANES <= length; i += LANES)
        store8(dx + i, load8(y + i) * (load8(dy + i) - mean));
    for (; i < length; i++)
        dx[i] = y[i] * (dy[i] - mean);
}

/* Rows that lie `step` values apart from one value to the next, as those of a channel axis do. */
static void softmax_column(const float *x, float *y, int64_t length, int64_t step) {
    float greatest = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < length; i++)
        greatest = x[i * step] < greatest ? greatest : x[i * step];
    for (int64_t i = 0; i < length; i++)
        sum += y[i * step] = expf(x[i * step] - greatest);
    for (int64_t i = 0; i < length; i++)
        y[i * step] *= 1.0f / sum;
}

static void softmax_column_gradient(const float *y, const float *dy, float *dx, int64_t length,
                                    int64_t step) {
    float mean = 0.0f;
    for (int64_t i = 0; i < length; i++)
        mean += y[i * step] * dy[i * step];
    for (int64_t i = 0; i < length; i++)
        dx[i * step] = y[i * step] * (dy[i * step] - mean);
}

static void softmax_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct softmax *s = context;
    int64_t row, last;
    share_of(s->outer * s->inner, part, parts, &row, &last);
    for (; row < last; row++) {
        int64_t at = row / s->inner * s->length * s->inner + row % s->inner;
        if (s->inner > 1)
            softmax_column(s->x + at, s->y + at, s->length, s->inner);
        else
            softmax_row(s->x + at, s->y + at, s->length);
    }
}

static void softmax_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct softmax *s = context;
    int64_t row, last;
    share_of(s->outer * s->inner, part, parts, &row, &last);
    for (; row < last; row++) {
        int64_t at = row / s->inner * s->length * s->inner + row % s->inner;
        if (s->inner > 1)
            softmax_column_gradient(s->x + at, s->dy + at, s->y + at, s->length, s->inner);
        else
            softmax_row_gradient(s->x + at, s->dy + at, s->y + at, s->length);
    }
}

static void softmax_forward_run(const struct op *op, struct scene *scene) {
    struct softmax softmax = {floats(op->in[0]), NULL,     floats(op->out[0]),
                              op->i[0],          op->i[1], op->i[2]};
    spread(scene, softmax.outer * softmax.inner, op->in[0]->count * 8, softmax_part, &softmax);
}

static void softmax_gradient_run(const struct op *op, struct scene *scene) {
    struct softmax softmax = {floats(op->in[0]), floats(op->in[1]), floats(op->out[0]),
                              op->i[0],          op->i[1],          op->i[2]};
    spread(scene, softmax.outer * softmax.inner, op->in[0]->count * 2, softmax_gradient_part,
           &softmax);
}

static const char *check_axes(const struct op *op) {
    int64_t left = op->in[0]->count;
    for (int n = 0; n < 3; n++) {
        if (op->i[n] < 1 || left % op->i[n] != 0)
            return "has axes that do not fit its operand";
        left /= op->i[n];
    }
    return left != 1 ? "has axes that do not fit its operand" : check_sizes(op);
}

static const char *check_softmax_forward(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 3, 0);
    return fault ? fault : check_axes(op);
}

static const char *check_softmax_gradient(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 3, 0);
    return fault ? fault : check_axes(op);
}

static const struct op_kind softmax_forward = {"softmax_forward", check_softmax_forward, NULL, NULL,
                                               softmax_forward_run};
static const struct op_kind softmax_gradient = {"softmax_gradient", check_softmax_gradient, NULL,
                                                NULL, softmax_gradient_run};

const struct op_kind *const activation_kinds[] = {
    &relu_forward.kind,    &relu_gradient.kind,    &relu6_forward.kind, &relu6_gradient.kind,
    &leaky_forward.kind,   &leaky_gradient.kind,   &tanh_forward.kind,  &tanh_gradient.kind,
    &sigmoid_forward.kind, &sigmoid_gradient.kind, &gelu_forward.kind,  &gelu_gradient.kind,
    &dropout_forward,      &dropout_gradient,      &softmax_forward,    &softmax_gradient,
    NULL,
};
