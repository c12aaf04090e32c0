/* lstm.c - an LSTM layer over (N, T, F), and its backpropagation through time.
 *
 *   i, f, g, o = wi x(t) + ws y(t-1) + b       gates: input, forget, cell, output
 *   c(t) = s(f) c(t-1) + s(i) tanh(g)          s: sigmoid; y and c are 0 before the first step
 *   y(t) = s(o) tanh(c(t))
 *   gates: (N,T,4U), after their functions; dgates: before them
 *   dwi = sum of dgates(t) x(t)T, dws = sum of dgates(t) y(t-1)T; the gradients of b and x are
 *   row_bias_gradient and linear_input_gradient over dgates
 *
 * The one rule: a sample or a time step is selected by pointer and stride, never copied, so that
 * each product is a plain call of gemm(). */
#include <string.h>

#include "gemm.h"
#include "ops.h"
#include "parallel_for.h"
#include "vector.h"

static op_run lstm_forward_run, lstm_gradient_run, lstm_weight_gradient_run;
static op_workspace lstm_forward_workspace, lstm_gradient_workspace;
static op_workspace lstm_weight_gradient_workspace;
static op_macs lstm_forward_macs, lstm_gradient_macs, lstm_weight_gradient_macs;

const struct op_kind lstm_kinds[] = {
    {"lstm_forward", "x(N,T,F) wi(4*U,F) ws(4*U,U) b[4*U] : y(N,T,U) gates(N,T,4*U) cells(N,T,U)",
     NULL, lstm_forward_workspace, lstm_forward_macs, lstm_forward_run},
    {"lstm_gradient", "dy(N,T,U) gates(N,T,4*U) cells(N,T,U) ws(4*U,U) : dgates(N,T,4*U)", NULL,
     lstm_gradient_workspace, lstm_gradient_macs, lstm_gradient_run},
    {"lstm_weight_gradient", "x(N,T,F) y(N,T,U) dgates(N,T,4*U) : dwi(4*U,F) dws(4*U,U)", NULL,
     lstm_weight_gradient_workspace, lstm_weight_gradient_macs, lstm_weight_gradient_run},
    {.name = NULL},
};

/* One time step of all samples: (N, width) within (N, T, width). */
static struct matrix time_step(const struct tensor *x, int64_t t) {
    return (struct matrix){floats(x) + t * x->dim[2], x->dim[1] * x->dim[2], 1};
}

static size_t lstm_forward_workspace(const struct op *op, int threads) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    int64_t units = y->dim[2];
    return max_size(gemm_workspace(x->dim[0] * x->dim[1], 4 * units, x->dim[2], threads),
                    gemm_workspace(x->dim[0], 4 * units, units, threads));
}

static int64_t lstm_forward_macs(const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->out[0];
    return mul_saturated(y->count, 4 * (x->dim[2] + y->dim[2]));
}

/* One time step of all samples. */
struct time_step_job {
    const struct op *op;
    int64_t t;
    float *dh, *dc; /* (N, H): gradients that come back from the next time step */
};

static void fill_bias(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *gates = op->out[1];
    int64_t width = gates->dim[2], first, last;
    split_range(gates->dim[0] * gates->dim[1], part, parts, &first, &last);
    for (int64_t row = first; row < last; row++) {
        memcpy(floats(gates) + row * width, floats(op->in[3]), (size_t)width * sizeof(float));
    }
}

struct cell {
    v8 in, forget, fresh, out, state;
};

static struct cell apply_gates(struct cell previous, v8 state) {
    struct cell cell = {sigmoid8(previous.in), sigmoid8(previous.forget), tanh8(previous.fresh),
                        sigmoid8(previous.out), state};
    cell.state = cell.forget * state + cell.in * cell.fresh;
    return cell;
}

static void lstm_step(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct time_step_job *job = context;
    const struct tensor *y = job->op->out[0], *gates = job->op->out[1], *cells = job->op->out[2];
    int64_t units = y->dim[2], first, last;
    split_range(y->dim[0], part, parts, &first, &last);
    for (int64_t n = first; n < last; n++) {
        int64_t row = n * y->dim[1] + job->t;
        float *gate = floats(gates) + row * 4 * units, *state = floats(cells) + row * units;
        float *out = floats(y) + row * units;
        for (int64_t u = 0; u < units; u += LANES) {
            int64_t count = units - u < LANES ? units - u : LANES;
            v8 gate_input[4], old = splat8(0.0f);
            for (int g = 0; g < 4; g++) {
                gate_input[g] = load8_up_to(gate + g * units + u, count);
            }
            if (job->t > 0) {
                old = load8_up_to(state - units + u, count);
            }
            struct cell cell = apply_gates(
                (struct cell){gate_input[0], gate_input[1], gate_input[2], gate_input[3], old},
                old);
            store8_up_to(gate + u, cell.in, count);
            store8_up_to(gate + units + u, cell.forget, count);
            store8_up_to(gate + 2 * units + u, cell.fresh, count);
            store8_up_to(gate + 3 * units + u, cell.out, count);
            store8_up_to(state + u, cell.state, count);
            store8_up_to(out + u, cell.out * tanh8(cell.state), count);
        }
    }
}

static void lstm_forward_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *x = op->in[0], *y = op->out[0], *gates = op->out[1];
    int64_t units = y->dim[2], rows = x->dim[0] * x->dim[1];
    parallel_for(exec, rows, gates->count, fill_bias, (void *)op);
    gemm(exec->pool, rows, 4 * units, x->dim[2], as_matrix(x), transposed(as_matrix(op->in[1])),
         as_matrix(gates), true, exec->workspace);
    for (int64_t t = 0; t < y->dim[1]; t++) {
        if (t > 0) {
            gemm(exec->pool, y->dim[0], 4 * units, units, time_step(y, t - 1),
                 transposed(as_matrix(op->in[2])), time_step(gates, t), true, exec->workspace);
        }
        struct time_step_job job = {op, t, NULL, NULL};
        parallel_for(exec, y->dim[0], 32 * y->dim[0] * units, lstm_step, &job);
    }
}

static size_t lstm_gradient_workspace(const struct op *op, int threads) {
    const struct tensor *dy = op->in[0];
    return 2 * cache_line_bytes(dy->dim[0] * dy->dim[2]) +
           gemm_workspace(dy->dim[0], dy->dim[2], 4 * dy->dim[2], threads);
}

static int64_t lstm_gradient_macs(const struct op *op) {
    return mul_saturated(op->in[0]->count, 4 * op->in[0]->dim[2]);
}

static void lstm_gradient_step(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct time_step_job *job = context;
    const struct op *op = job->op;
    const struct tensor *dy = op->in[0];
    int64_t units = dy->dim[2], first, last;
    split_range(dy->dim[0], part, parts, &first, &last);
    for (int64_t n = first; n < last; n++) {
        int64_t row = n * dy->dim[1] + job->t;
        const float *gate = floats(op->in[1]) + row * 4 * units;
        const float *state = floats(op->in[2]) + row * units, *dy_row = floats(dy) + row * units;
        float *dgate = floats(op->out[0]) + row * 4 * units;
        float *dh = job->dh + n * units, *dc = job->dc + n * units;
        for (int64_t u = 0; u < units; u += LANES) {
            int64_t count = units - u < LANES ? units - u : LANES;
            v8 in = load8_up_to(gate + u, count);
            v8 forget = load8_up_to(gate + units + u, count);
            v8 fresh = load8_up_to(gate + 2 * units + u, count);
            v8 out = load8_up_to(gate + 3 * units + u, count);
            v8 old = job->t > 0 ? load8_up_to(state - units + u, count) : splat8(0.0f);
            v8 tanh_state = tanh8(load8_up_to(state + u, count));
            v8 h = load8_up_to(dy_row + u, count) + load8_up_to(dh + u, count);
            v8 c = load8_up_to(dc + u, count) + h * out * (1.0f - tanh_state * tanh_state);
            store8_up_to(dgate + u, c * fresh * in * (1.0f - in), count);
            store8_up_to(dgate + units + u, c * old * forget * (1.0f - forget), count);
            store8_up_to(dgate + 2 * units + u, c * in * (1.0f - fresh * fresh), count);
            store8_up_to(dgate + 3 * units + u, h * tanh_state * out * (1.0f - out), count);
            store8_up_to(dc + u, c * forget, count);
        }
    }
}

static void lstm_gradient_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *dy = op->in[0];
    int64_t samples = dy->dim[0], units = dy->dim[2];
    size_t bytes = cache_line_bytes(samples * units);
    struct time_step_job job = {op, 0, exec->workspace, (float *)((char *)exec->workspace + bytes)};
    void *rest = (char *)exec->workspace + 2 * bytes;
    memset(exec->workspace, 0, 2 * bytes);
    for (job.t = dy->dim[1] - 1; job.t >= 0; job.t--) {
        parallel_for(exec, samples, 32 * samples * units, lstm_gradient_step, &job);
        if (job.t > 0) {
            gemm(exec->pool, samples, units, 4 * units, time_step(op->out[0], job.t),
                 as_matrix(op->in[3]), (struct matrix){job.dh, units, 1}, false, rest);
        }
    }
}

/* dws = sum over n and t of dgates(n, t) y(n, t - 1)T. One product covers either all time steps of
 * one sample or all samples of one time step, whichever are more. */
static bool sums_by_sample(const struct tensor *y) { return y->dim[0] <= y->dim[1] - 1; }

static size_t lstm_weight_gradient_workspace(const struct op *op, int threads) {
    const struct tensor *x = op->in[0], *y = op->in[1];
    int64_t units = y->dim[2];
    int64_t depth = sums_by_sample(y) ? y->dim[1] - 1 : y->dim[0];
    return max_size(gemm_workspace(4 * units, x->dim[2], x->dim[0] * x->dim[1], threads),
                    gemm_workspace(4 * units, units, depth, threads));
}

static int64_t lstm_weight_gradient_macs(const struct op *op) {
    const struct tensor *x = op->in[0], *y = op->in[1];
    return mul_saturated(y->count, 4 * (x->dim[2] + y->dim[2]));
}

static void lstm_weight_gradient_run(const struct op *op, struct exec_context *exec) {
    const struct tensor *x = op->in[0], *y = op->in[1], *dgates = op->in[2];
    int64_t samples = y->dim[0], steps = y->dim[1], units = y->dim[2];
    gemm(exec->pool, 4 * units, x->dim[2], samples * steps, transposed(as_matrix(dgates)),
         as_matrix(x), as_matrix(op->out[0]), false, exec->workspace);
    if (steps == 1) {
        memset(floats(op->out[1]), 0, (size_t)op->out[1]->count * sizeof(float));
    } else if (sums_by_sample(y)) {
        for (int64_t n = 0; n < samples; n++) {
            struct matrix next_gates = {floats(dgates) + (n * steps + 1) * 4 * units, 1, 4 * units};
            struct matrix previous = {floats(y) + n * steps * units, units, 1};
            gemm(exec->pool, 4 * units, units, steps - 1, next_gates, previous,
                 as_matrix(op->out[1]), n > 0, exec->workspace);
        }
    } else {
        for (int64_t t = 1; t < steps; t++) {
            gemm(exec->pool, 4 * units, units, samples, transposed(time_step(dgates, t)),
                 time_step(y, t - 1), as_matrix(op->out[1]), t > 1, exec->workspace);
        }
    }
}
