/* layer_norm.c - normalisation along the last axis, row by row, and the way back. */
#include "check.h"
#include "ops.h"
#include "spread.h"
#include "sums.h"

#include <math.h>

struct layer_norm {
    const float *x, *dy, *scale, *shift, *mean, *rstd;
    float *y, *new_mean, *new_rstd, *dscale, *dshift;
    int64_t rows, length;
    float epsilon;
};

static void layer_norm_forward_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t row, last;
    share_of(norm->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = norm->x + row * norm->length;
        float *y = norm->y + row * norm->length;
        float mean = sum8(sum_of(x, norm->length)) / (float)norm->length;
        float variance = sum8(squares_of(x, norm->length, mean)) / (float)norm->length;
        float rstd = 1.0f / sqrtf(variance + norm->epsilon);
        norm->new_mean[row] = mean;
        norm->new_rstd[row] = rstd;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 scale = load8_up_to(norm->scale + i, count);
            v8 shift = load8_up_to(norm->shift + i, count);
            v8 away = (load8_up_to(x + i, count) - mean) * rstd;
            store8_up_to(y + i, away * scale + shift, count);
        }
    }
}

/* Each thread has columns of its own and walks down all rows. */
static void layer_norm_weight_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t i, last;
    share_of_values(norm->length, part, parts, &i, &last);
    for (; i < last; i += LANES) {
        v8 plain = all8(0.0f), weighted = plain;
        for (int64_t row = 0; row < norm->rows; row++) {
            int64_t at = row * norm->length + i;
            v8 dy = load8_up_to(norm->dy + at, last - i);
            plain += dy;
            weighted +=
                dy * ((load8_up_to(norm->x + at, last - i) - norm->mean[row]) * norm->rstd[row]);
        }
        store8_up_to(norm->dshift + i, plain, last - i);
        store8_up_to(norm->dscale + i, weighted, last - i);
    }
}

static void layer_norm_input_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct layer_norm *norm = context;
    int64_t row, last;
    share_of(norm->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = norm->x + row * norm->length, *dy = norm->dy + row * norm->length;
        float *dx = norm->y + row * norm->length;
        float mean = norm->mean[row], rstd = norm->rstd[row];
        v8 plain = all8(0.0f), weighted = plain;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 g = load8_up_to(dy + i, count) * load8_up_to(norm->scale + i, count);
            plain += g;
            weighted += g * (load8_up_to(x + i, count) - mean);
        }
        float all = sum8(plain) / (float)norm->length;
        float away = sum8(weighted) / (float)norm->length * rstd * rstd;
        for (int64_t i = 0; i < norm->length; i += LANES) {
            int64_t count = norm->length - i;
            v8 g = load8_up_to(dy + i, count) * load8_up_to(norm->scale + i, count);
            v8 back = g - all - (load8_up_to(x + i, count) - mean) * away;
            store8_up_to(dx + i, back * rstd, count);
        }
    }
}

static struct layer_norm layer_norm_of(const struct op *op) {
    const struct tensor *x = op->in[0];
    int64_t length = x->dim[x->rank - 1];
    return (struct layer_norm){.x = floats(x), .rows = x->count / length, .length = length};
}

static void layer_norm_forward_run(const struct op *op, struct scene *scene) {
    struct layer_norm norm = layer_norm_of(op);
    norm.scale = floats(op->in[1]);
    norm.shift = floats(op->in[2]);
    norm.y = floats(op->out[0]);
    norm.new_mean = floats(op->out[1]);
    norm.new_rstd = floats(op->out[2]);
    norm.epsilon = op->f[0];
    spread(scene, norm.rows, op->in[0]->count * 2, layer_norm_forward_part, &norm);
}

static void layer_norm_weight_gradient_run(const struct op *op, struct scene *scene) {
    struct layer_norm norm = layer_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.mean = floats(op->in[2]);
    norm.rstd = floats(op->in[3]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    spread(scene, norm.length, op->in[0]->count * 2, layer_norm_weight_gradient_part, &norm);
}

static void layer_norm_input_gradient_run(const struct op *op, struct scene *scene) {
    struct layer_norm norm = layer_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.mean = floats(op->in[3]);
    norm.rstd = floats(op->in[4]);
    norm.y = floats(op->out[0]);
    spread(scene, norm.rows, op->in[0]->count * 3, layer_norm_input_gradient_part, &norm);
}

static bool has(const struct tensor *tensor, int64_t count) { return tensor->count == count; }

static const char *check_layer_norm_forward(const struct op *op) {
    const char *fault = check_form(op, "fff", "fff", 0, 1);
    if (fault || op->in[0]->rank < 1)
        return fault ? fault : "has an operand without an axis";
    struct layer_norm norm = layer_norm_of(op);
    bool fits = has(op->in[1], norm.length) && has(op->in[2], norm.length) &&
                has(op->out[0], op->in[0]->count) && has(op->out[1], norm.rows) &&
                has(op->out[2], norm.rows);
    return fits ? NULL : "has operands that do not fit its rows";
}

static const char *check_layer_norm_weight_gradient(const struct op *op) {
    const char *fault = check_form(op, "ffff", "ff", 0, 0);
    if (fault || op->in[0]->rank < 1)
        return fault ? fault : "has an operand without an axis";
    struct layer_norm norm = layer_norm_of(op);
    bool fits = has(op->in[1], op->in[0]->count) && has(op->in[2], norm.rows) &&
                has(op->in[3], norm.rows) && has(op->out[0], norm.length) &&
                has(op->out[1], norm.length);
    return fits ? NULL : "has operands that do not fit its rows";
}

static const char *check_layer_norm_input_gradient(const struct op *op) {
    const char *fault = check_form(op, "fffff", "f", 0, 0);
    if (fault || op->in[0]->rank < 1)
        return fault ? fault : "has an operand without an axis";
    struct layer_norm norm = layer_norm_of(op);
    bool fits = has(op->in[1], op->in[0]->count) && has(op->in[2], norm.length) &&
                has(op->in[3], norm.rows) && has(op->in[4], norm.rows) &&
                has(op->out[0], op->in[0]->count);
    return fits ? NULL : "has operands that do not fit its rows";
}

static const struct op_kind layer_norm_forward = {"layer_norm_forward", check_layer_norm_forward,
                                                  NULL, NULL, layer_norm_forward_run};
static const struct op_kind layer_norm_weight_gradient = {
    "layer_norm_weight_gradient", check_layer_norm_weight_gradient, NULL, NULL,
    layer_norm_weight_gradient_run};
static const struct op_kind layer_norm_input_gradient = {
    "layer_norm_input_gradient", check_layer_norm_input_gradient, NULL, NULL,
    layer_norm_input_gradient_run};

const struct op_kind *const layer_norm_kinds[] = {
    &layer_norm_forward,
    &layer_norm_weight_gradient,
    &layer_norm_input_gradient,
    NULL,
};
