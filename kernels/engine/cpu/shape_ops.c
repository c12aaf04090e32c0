/* shape_ops.c - add, concat, split, copy, repeat and upsample.
 *
 *   add               y = the sum of all x
 *   concat, split     y = all x side by side along AXIS, which counts the batch as axis 0
 *   copy_scaled       y = SCALE x
 *   position_add      y = x + p for every sample, dp = the sum of dy over samples
 *   last_moment       y = the last time step of x, dx = dy there, else 0
 *   repeat_moment     y = x at every time step, dx = the sum of dy over time steps
 *   upsample          y = every pixel of x, F x F times, dx = the sum of dy over these
 *   td_target         target = q, but reward + DISCOUNT max(qnext) at the action taken (DQN)
 *
 * They compute little: every value is read once and written once. Copies use memmove, because only
 * the plan knows which tensors overlap. */
#include <math.h>

#include "ops.h"
#include "parallel_for.h"
#include "vector.h"

static op_run add_run, concat_run, split_run, copy_run, copy_scaled_run;
static op_run position_add_run, position_gradient_run, last_moment_run, last_moment_gradient_run;
static op_run repeat_moment_run, repeat_moment_gradient_run, upsample_run, upsample_gradient_run;
static op_run td_target_run;
static op_check check_concat, check_split;

const struct op_kind shape_kinds[] = {
    {"add", "x[N]... : y[N]=x", .run = add_run},
    {"concat", "x... : y : AXIS", check_concat, .run = concat_run},
    {"split", "y : x... : AXIS", check_split, .run = split_run},
    {"copy", "x[N] : y[N]", .run = copy_run},
    {"copy_scaled", "x[N] : y[N]=x : : SCALE", .run = copy_scaled_run},
    {"position_add", "x[N*P] p[P] : y[N*P]=x", .run = position_add_run},
    {"position_gradient", "dy[N*P] : dp[P]", .run = position_gradient_run},
    {"last_moment", "x(N,T,F) : y[N*F]", .run = last_moment_run},
    {"last_moment_gradient", "dy[N*F] : dx(N,T,F)", .run = last_moment_gradient_run},
    {"repeat_moment", "x[N*F] : y(N,T,F)", .run = repeat_moment_run},
    {"repeat_moment_gradient", "dy(N,T,F) : dx[N*F]", .run = repeat_moment_gradient_run},
    {"upsample", "x(N,C,H,W) : y(N,C,H*F,W*F) : F", .run = upsample_run},
    {"upsample_gradient", "dy(N,C,H*F,W*F) : dx(N,C,H,W) : F", .run = upsample_gradient_run},
    {"td_target", "q[N*A] qnext[N*A] action[N] reward[N] : target[N*A]=q : : DISCOUNT",
     .run = td_target_run},
    {.name = NULL},
};

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
    return check_pieces(op, op->out[0], op->in, op->ins);
}

static const char *check_split(const struct op *op) {
    return check_pieces(op, op->in[0], op->out, op->outs);
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
