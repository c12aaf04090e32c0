/* shape_ops.c - add, concat, split, copy, repeat and upsample.
 *
 * They compute little: every value is read once and written once. Copies use memmove, because only
 * the plan knows which tensors overlap. */
#include <math.h>

#include "check.h"
#include "ops.h"
#include "parallel_for.h"
#include "vector.h"

/* ---- add ---- */

struct addition {
    const float *x[OPERANDS_MAX];
    float *y;
    int operands;
    int64_t count;
};

static void add_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct addition *add = context;
    const float *first = add->x[0], *second = add->x[1];
    int64_t i, last;
    split_range_by_cache_line(add->count, part, parts, &i, &last);
    if (add->operands == 2) {
        for (; i + LANES <= last; i += LANES) {
            store8(add->y + i, load8(first + i) + load8(second + i));
        }
    }
    for (; i < last; i += LANES) {
        v8 sum = load8_up_to(first + i, last - i);
        for (int n = 1; n < add->operands; n++) {
            sum += load8_up_to(add->x[n] + i, last - i);
        }
        store8_up_to(add->y + i, sum, last - i);
    }
}

static void add_run(const struct op *op, struct exec_context *exec) {
    struct addition add = {
        .y = floats(op->out[0]), .operands = op->ins, .count = op->out[0]->count};
    for (int n = 0; n < op->ins; n++) {
        add.x[n] = floats(op->in[n]);
    }
    parallel_for(exec, add.count, add.count * op->ins, add_part, &add);
}

/* Checks any number of operands, all of them floats. */
static const char *check_float_operands(const struct op *op, int ins, int outs, int ints) {
    static const char many[] = "ffffffffffffffffffffffff";
    _Static_assert(sizeof many == OPERANDS_MAX + 1, "a letter for every operand");
    if (op->ins < ins || op->outs < outs || op->ins > OPERANDS_MAX || op->outs > OPERANDS_MAX) {
        return "has the wrong number of operands";
    }
    return check_signature(op, many + OPERANDS_MAX - op->ins, many + OPERANDS_MAX - op->outs, ints,
                           0);
}

static const char *check_add(const struct op *op) {
    const char *fault = check_float_operands(op, 1, 1, 0);
    if (!fault && op->outs != 1) {
        fault = "has the wrong number of operands";
    }
    for (int n = 0; n < op->ins && !fault; n++) {
        if (op->in[n]->count != op->out[0]->count) {
            fault = "has operands of different sizes";
        }
    }
    return fault;
}

/* ---- concat and split ---- */

/* The joined tensor consists of rows, each of which is one run of every piece. */
struct concat_job {
    float *joined, *piece[OPERANDS_MAX];
    int64_t run[OPERANDS_MAX], row, count;
    int pieces;
    bool splits; /* from the joined tensor to the pieces */
};

static void copy_floats(float *to, const float *from, int64_t count) {
    memmove(to, from, (size_t)count * sizeof *to);
}

/* Copies a range of the joined tensor, run by run. */
static void concat_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct concat_job *concat_job = context;
    int64_t at, last;
    split_range_by_cache_line(concat_job->count, part, parts, &at, &last);
    int64_t row = at / concat_job->row, within = at % concat_job->row;
    for (int n = 0; at < last; n = (n + 1) % concat_job->pieces) {
        if (within >= concat_job->run[n]) {
            within -= concat_job->run[n];
        } else {
            int64_t count = concat_job->run[n] - within;
            count = count < last - at ? count : last - at;
            float *piece = concat_job->piece[n] + row * concat_job->run[n] + within;
            if (concat_job->splits) {
                copy_floats(piece, concat_job->joined + at, count);
            } else {
                copy_floats(concat_job->joined + at, piece, count);
            }
            at += count;
            within = 0;
        }
        row += n == concat_job->pieces - 1;
    }
}

static int64_t values_from_axis(const struct tensor *tensor, int64_t axis) {
    int64_t values = 1;
    for (int64_t n = axis; n < tensor->rank; n++) {
        values *= tensor->dim[n];
    }
    return values;
}

static void run_concat(const struct op *op, struct exec_context *exec, const struct tensor *joined,
                       const struct tensor *const *pieces, int count, bool splits) {
    struct concat_job concat_job = {.joined = floats(joined),
                                    .row = values_from_axis(joined, op->i[0]),
                                    .count = joined->count,
                                    .pieces = count,
                                    .splits = splits};
    for (int n = 0; n < count; n++) {
        concat_job.piece[n] = floats(pieces[n]);
        concat_job.run[n] = values_from_axis(pieces[n], op->i[0]);
    }
    parallel_for(exec, concat_job.count, concat_job.count, concat_part, &concat_job);
}

static void concat_run(const struct op *op, struct exec_context *exec) {
    run_concat(op, exec, op->out[0], op->in, op->ins, false);
}

static void split_run(const struct op *op, struct exec_context *exec) {
    run_concat(op, exec, op->in[0], op->out, op->outs, true);
}

/* All shapes agree except along the axis, where the pieces add up to the whole. */
static const char *check_pieces(const struct op *op, const struct tensor *joined,
                                const struct tensor *const *pieces, int count) {
    int64_t axis = op->i[0], sum = 0;
    if (axis < 0 || axis >= joined->rank) {
        return "has an axis that its operands do not have";
    }
    for (int n = 0; n < count; n++) {
        if (pieces[n]->rank != joined->rank) {
            return "has pieces of the wrong shape";
        }
        for (int other = 0; other < joined->rank; other++) {
            if (other != axis && pieces[n]->dim[other] != joined->dim[other]) {
                return "has pieces of the wrong shape";
            }
        }
        sum += pieces[n]->dim[axis];
    }
    return sum != joined->dim[axis] ? "has pieces that do not add up to the whole along its axis"
                                    : NULL;
}

static const char *check_concat(const struct op *op) {
    const char *fault = check_float_operands(op, 1, 1, 1);
    if (!fault && op->outs != 1) {
        fault = "has the wrong number of operands";
    }
    return fault ? fault : check_pieces(op, op->out[0], op->in, op->ins);
}

static const char *check_split(const struct op *op) {
    const char *fault = check_float_operands(op, 1, 1, 1);
    if (!fault && op->ins != 1) {
        fault = "has the wrong number of operands";
    }
    return fault ? fault : check_pieces(op, op->in[0], op->out, op->outs);
}

/* ---- copies ---- */

/* Rows of `length` values; x and y may have different numbers of rows. */
struct rows {
    const float *x, *p;
    float *y;
    int64_t rows, length, times;
    float scale;
};

static void copy_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t i, last;
    split_range_by_cache_line(rows->length, part, parts, &i, &last);
    if (i < last) {
        copy_floats(rows->y + i, rows->x + i, last - i);
    }
}

static void copy_scaled_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t i, last;
    split_range_by_cache_line(rows->length, part, parts, &i, &last);
    for (; i < last; i += LANES) {
        store8_up_to(rows->y + i, load8_up_to(rows->x + i, last - i) * rows->scale, last - i);
    }
}

static void copy_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = {
        .x = floats(op->in[0]), .y = floats(op->out[0]), .length = op->in[0]->count};
    parallel_for(exec, rows.length, rows.length, copy_part, &rows);
}

static void copy_scaled_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = {.x = floats(op->in[0]),
                        .y = floats(op->out[0]),
                        .length = op->in[0]->count,
                        .scale = op->f[0]};
    parallel_for(exec, rows.length, rows.length, copy_scaled_part, &rows);
}

static const char *check_copy(const struct op *op) {
    const char *fault = check_signature(op, "f", "f", 0, 0);
    if (!fault && op->in[0]->count != op->out[0]->count) {
        fault = "has operands of different sizes";
    }
    return fault;
}

static const char *check_copy_scaled(const struct op *op) {
    const char *fault = check_signature(op, "f", "f", 0, 1);
    if (!fault && op->in[0]->count != op->out[0]->count) {
        fault = "has operands of different sizes";
    }
    return fault;
}

/* ---- position embeddings: one sample added to all ---- */

static void position_add_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t i, last;
    split_range_by_cache_line(rows->length, part, parts, &i, &last);
    for (int64_t row = 0; row < rows->rows; row++) {
        const float *x = rows->x + row * rows->length;
        float *y = rows->y + row * rows->length;
        for (int64_t j = i; j < last; j += LANES) {
            store8_up_to(y + j, load8_up_to(x + j, last - j) + load8_up_to(rows->p + j, last - j),
                         last - j);
        }
    }
}

/* y[i] = the sum over all rows, for a range of columns. */
static void sum_rows(const struct rows *rows, int64_t i, int64_t last) {
    for (; i < last; i += LANES) {
        v8 sum = splat8(0.0f);
        for (int64_t row = 0; row < rows->rows; row++) {
            sum += load8_up_to(rows->x + row * rows->length + i, last - i);
        }
        store8_up_to(rows->y + i, sum, last - i);
    }
}

static void position_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t i, last;
    split_range_by_cache_line(rows->length, part, parts, &i, &last);
    sum_rows(rows, i, last);
}

static void position_add_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = {.x = floats(op->in[0]),
                        .p = floats(op->in[1]),
                        .y = floats(op->out[0]),
                        .rows = op->in[0]->count / op->in[1]->count,
                        .length = op->in[1]->count};
    parallel_for(exec, rows.length, op->in[0]->count, position_add_part, &rows);
}

static void position_gradient_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = {.x = floats(op->in[0]),
                        .y = floats(op->out[0]),
                        .rows = op->in[0]->count / op->out[0]->count,
                        .length = op->out[0]->count};
    parallel_for(exec, rows.length, op->in[0]->count, position_gradient_part, &rows);
}

static const char *check_position_add(const struct op *op) {
    const char *fault = check_signature(op, "ff", "f", 0, 0);
    if (!fault &&
        (op->in[0]->count != op->out[0]->count || op->in[0]->count % op->in[1]->count != 0)) {
        fault = "has positions that do not match its samples";
    }
    return fault;
}

static const char *check_position_gradient(const struct op *op) {
    const char *fault = check_signature(op, "f", "f", 0, 0);
    if (!fault && op->in[0]->count % op->out[0]->count != 0) {
        fault = "has positions that do not match its samples";
    }
    return fault;
}

/* ---- time steps of sequences ---- */

/* `rows` samples of `times` time steps of `length` values each. */
static void last_moment_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t row, last;
    split_range(rows->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        copy_floats(rows->y + row * rows->length,
                    rows->x + ((row + 1) * rows->times - 1) * rows->length, rows->length);
    }
}

static void last_moment_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t row, last;
    split_range(rows->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        float *dx = rows->y + row * rows->times * rows->length;
        int64_t before = (rows->times - 1) * rows->length;
        memset(dx, 0, (size_t)before * sizeof *dx);
        copy_floats(dx + before, rows->x + row * rows->length, rows->length);
    }
}

static void repeat_moment_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t step, last;
    split_range(rows->rows * rows->times, part, parts, &step, &last);
    for (; step < last; step++) {
        copy_floats(rows->y + step * rows->length, rows->x + step / rows->times * rows->length,
                    rows->length);
    }
}

static void repeat_moment_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct rows *rows = context;
    int64_t row, last;
    split_range(rows->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        struct rows sample = {.x = rows->x + row * rows->times * rows->length,
                              .y = rows->y + row * rows->length,
                              .rows = rows->times,
                              .length = rows->length};
        sum_rows(&sample, 0, rows->length);
    }
}

static struct rows time_steps_of(const struct op *op, const struct tensor *sequence) {
    return (struct rows){.x = floats(op->in[0]),
                         .y = floats(op->out[0]),
                         .rows = sequence->dim[0],
                         .times = sequence->dim[1],
                         .length = sequence->dim[2]};
}

static void last_moment_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = time_steps_of(op, op->in[0]);
    parallel_for(exec, rows.rows, op->out[0]->count, last_moment_part, &rows);
}

static void last_moment_gradient_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = time_steps_of(op, op->out[0]);
    parallel_for(exec, rows.rows, op->out[0]->count, last_moment_gradient_part, &rows);
}

static void repeat_moment_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = time_steps_of(op, op->out[0]);
    parallel_for(exec, rows.rows * rows.times, op->out[0]->count, repeat_moment_part, &rows);
}

static void repeat_moment_gradient_run(const struct op *op, struct exec_context *exec) {
    struct rows rows = time_steps_of(op, op->in[0]);
    parallel_for(exec, rows.rows, op->in[0]->count, repeat_moment_gradient_part, &rows);
}

static const char *check_time_steps(const struct op *op, const struct tensor *const *sequence,
                                    const struct tensor *const *step) {
    const char *fault = check_signature(op, "f", "f", 0, 0);
    if (!fault &&
        (sequence[0]->rank != 3 || step[0]->count != sequence[0]->dim[0] * sequence[0]->dim[2])) {
        fault = "has a time step that does not match its sequence";
    }
    return fault;
}

static const char *check_from_sequence(const struct op *op) {
    return check_time_steps(op, op->in, op->out);
}

static const char *check_to_sequence(const struct op *op) {
    return check_time_steps(op, op->out, op->in);
}

/* ---- upsample ---- */

struct upsampling {
    const float *x;              /* x or dy */
    float *y;                    /* y or dx */
    int64_t rows, width, factor; /* of the smaller image; rows: of all channels */
};

static void upsample_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct upsampling *e = context;
    int64_t row, last, factor = e->factor;
    split_range(e->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *x = e->x + row * e->width;
        float *y = e->y + row * factor * e->width * factor;
        for (int64_t w = 0; w < e->width; w++) {
            for (int64_t n = 0; n < factor; n++) {
                y[w * factor + n] = x[w];
            }
        }
        for (int64_t n = 1; n < factor; n++) {
            copy_floats(y + n * e->width * factor, y, e->width * factor);
        }
    }
}

static void upsample_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct upsampling *e = context;
    int64_t row, last, factor = e->factor;
    split_range(e->rows, part, parts, &row, &last);
    for (; row < last; row++) {
        const float *dy = e->x + row * factor * e->width * factor;
        for (int64_t w = 0; w < e->width; w++) {
            float sum = 0.0f;
            for (int64_t n = 0; n < factor * factor; n++) {
                sum += dy[n / factor * e->width * factor + w * factor + n % factor];
            }
            e->y[row * e->width + w] = sum;
        }
    }
}

static void upsample_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *small = op->in[0];
    struct upsampling e = {floats(small), floats(op->out[0]), small->count / small->dim[3],
                           small->dim[3], op->i[0]};
    parallel_for(exec, e.rows, op->out[0]->count, upsample_part, &e);
}

static void upsample_gradient_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *small = op->out[0];
    struct upsampling e = {floats(op->in[0]), floats(small), small->count / small->dim[3],
                           small->dim[3], op->i[0]};
    parallel_for(exec, e.rows, op->in[0]->count, upsample_gradient_part, &e);
}

static const char *check_upsampling(const struct op *op, const struct tensor *const *small,
                                    const struct tensor *const *large) {
    const char *fault = check_signature(op, "f", "f", 1, 0);
    if (fault) {
        return fault;
    }
    const struct tensor *s = small[0], *l = large[0];
    if (s->rank != 4 || l->rank != 4 || s->dim[0] != l->dim[0] || s->dim[1] != l->dim[1]) {
        return "has images of different sizes";
    }
    for (int axis = 2; axis < 4; axis++) {
        if (op->i[0] < 1 || l->dim[axis] % op->i[0] != 0 ||
            l->dim[axis] / op->i[0] != s->dim[axis]) {
            return "has images that do not match its factor";
        }
    }
    return NULL;
}

static const char *check_upsample(const struct op *op) {
    return check_upsampling(op, op->in, op->out);
}

static const char *check_upsample_gradient(const struct op *op) {
    return check_upsampling(op, op->out, op->in);
}

/* ---- Q-learning ---- */

static void td_target_run(const struct op *op, struct exec_context *exec) {
    (void)exec;
    int64_t rows = op->in[2]->count, actions = op->in[0]->count / rows;
    for (int64_t row = 0; row < rows; row++) {
        const float *next = floats(op->in[1]) + row * actions;
        float *target = floats(op->out[0]) + row * actions;
        int32_t action = indices(op->in[2])[row];
        float best = next[0];
        for (int64_t n = 1; n < actions; n++) {
            best = next[n] > best || next[n] != next[n] ? next[n] : best;
        }
        best = floats(op->in[3])[row] + op->f[0] * best;
        copy_floats(target, floats(op->in[0]) + row * actions, actions);
        bool known = action >= 0 && action < actions;
        target[known ? action : 0] = known ? best : NAN; /* shows in the loss */
    }
}

static const char *check_td_target(const struct op *op) {
    const char *fault = check_signature(op, "ffxf", "f", 0, 1);
    if (!fault && (op->in[0]->count != op->in[1]->count || op->in[0]->count != op->out[0]->count)) {
        fault = "has values of different sizes";
    }
    if (!fault &&
        (op->in[2]->count != op->in[3]->count || op->in[0]->count % op->in[2]->count != 0)) {
        fault = "has actions or rewards that do not match its rows";
    }
    return fault;
}

static const struct op_kind add = {"add", check_add, NULL, NULL, add_run};
static const struct op_kind concat = {"concat", check_concat, NULL, NULL, concat_run};
static const struct op_kind split = {"split", check_split, NULL, NULL, split_run};
static const struct op_kind copy = {"copy", check_copy, NULL, NULL, copy_run};
static const struct op_kind copy_scaled = {"copy_scaled", check_copy_scaled, NULL, NULL,
                                           copy_scaled_run};
static const struct op_kind position_add = {"position_add", check_position_add, NULL, NULL,
                                            position_add_run};
static const struct op_kind position_gradient = {"position_gradient", check_position_gradient, NULL,
                                                 NULL, position_gradient_run};
static const struct op_kind last_moment = {"last_moment", check_from_sequence, NULL, NULL,
                                           last_moment_run};
static const struct op_kind last_moment_gradient = {"last_moment_gradient", check_to_sequence, NULL,
                                                    NULL, last_moment_gradient_run};
static const struct op_kind repeat_moment = {"repeat_moment", check_to_sequence, NULL, NULL,
                                             repeat_moment_run};
static const struct op_kind repeat_moment_gradient = {"repeat_moment_gradient", check_from_sequence,
                                                      NULL, NULL, repeat_moment_gradient_run};
static const struct op_kind upsample = {"upsample", check_upsample, NULL, NULL, upsample_run};
static const struct op_kind upsample_gradient = {"upsample_gradient", check_upsample_gradient, NULL,
                                                 NULL, upsample_gradient_run};
static const struct op_kind td_target = {"td_target", check_td_target, NULL, NULL, td_target_run};

const struct op_kind *const shape_kinds[] = {
    &add,
    &concat,
    &split,
    &copy,
    &copy_scaled,
    &position_add,
    &position_gradient,
    &last_moment,
    &last_moment_gradient,
    &repeat_moment,
    &repeat_moment_gradient,
    &upsample,
    &upsample_gradient,
    &td_target,
    NULL,
};
