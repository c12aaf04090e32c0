/* launch.h - how the operations of a plan become kernel launches: one C function per operation.
 *
 * HOW TO ADD AN OPERATION. Write its kernel in a file of kernels/opencl/, and a launch function in
 * the launch_*.c file of its family:
 *
 *     static bool relu_forward(struct launcher *to, const struct op *op) {
 *         const struct tensor *x = op->in[0], *y = op->out[0];
 *         return LAUNCH(to, "activations.cl", "relu", grid1(y->count),
 *                       INT(y->count), BUFFER(x), BUFFER(y));
 *     }
 *
 * then add a line to the table at the end of that file, and run
 * tests/kernels/test_opencl_backend.py: it compares the operation with the CPU backend, whose
 * check() has validated the operands before a launch function is called. A launch function may
 * launch several kernels; they run in this order.
 *
 *   LAUNCH(to, FILE, ENTRY, GRID, ARGUMENT...)
 *              builds FILE once per set of definitions, creates the kernel ENTRY and sets its
 *              arguments. The kernel runs later, in every step. "FILE FILE" builds the second one
 *              with the first one in front of it. False: fault.
 *   GRID       grid1(x), grid2(x, y) or grid3(x, y, z) work items, or in_groups(GRID, x, y, z) for
 *              a chosen shape of a work group. Sizes are rounded up to whole groups, so a kernel
 *              must ignore items beyond its data. A size of 0 launches nothing.
 *   ARGUMENT   INT, INT4, UINT, FLOAT, BUFFER (a tensor; NULL becomes a null pointer), SCRATCH,
 *              HANDLE (memory that is no tensor); and FIRST_SAMPLE, DROPOUT_KEY and
 *              BIAS_CORRECTION, which the session sets in every step.
 *   define(to, "NAME", value)
 *              passes -DNAME=value to the build of the files launched after it in this operation.
 *   scratch(to, SLOT, floats)
 *              reserves memory for values between two kernels of one operation. All operations
 *              share the slots, since they run one after another.
 *   lacks(to)  reports that the backend cannot run this operation (device.h, fallback). */
#ifndef FARMHAND_LAUNCH_H
#define FARMHAND_LAUNCH_H

#include "../engine.h"
#include "../int_math.h"
#include "session.h"

/* What a launch function adds launches to. */
struct launcher {
    struct session *session;
    struct fault *fault;
    bool lacking;
    int variant; /* of the operation's line in its table */
    int group;   /* usual work items per group: 64, or what the device allows; a power of two */
    char defines[OPTIONS_BYTES];
    size_t defines_length;
};

enum arg_kind {
    ARG_INT,
    ARG_INT4,
    ARG_UINT,
    ARG_FLOAT,
    ARG_BUFFER,
    ARG_SCRATCH,
    ARG_HANDLE,
    ARG_FIRST_SAMPLE,
    ARG_DROPOUT_KEY,
    ARG_BIAS_CORRECTION
};

struct arg {
    enum arg_kind kind;
    float real;
    union {
        int64_t integer;
        const void *four; /* integers */
        const struct tensor *tensor;
        cl_handle handle;
    };
};

#define INT(value) ((struct arg){.kind = ARG_INT, .integer = (value)})
#define INT4(value) ((struct arg){.kind = ARG_INT4, .four = (value)})
#define UINT(value) ((struct arg){.kind = ARG_UINT, .integer = (value)})
#define FLOAT(value) ((struct arg){.kind = ARG_FLOAT, .real = (value)})
#define BUFFER(value) ((struct arg){.kind = ARG_BUFFER, .tensor = (value)})
#define SCRATCH(slot) ((struct arg){.kind = ARG_SCRATCH, .integer = (slot)})
#define HANDLE(value) ((struct arg){.kind = ARG_HANDLE, .handle = (value)})
/* int: the first sample of this step's batch, for the operation load. */
#define FIRST_SAMPLE ((struct arg){.kind = ARG_FIRST_SAMPLE})
/* ulong: the key of this step's random numbers. */
#define DROPOUT_KEY ((struct arg){.kind = ARG_DROPOUT_KEY})
/* Two floats: 1 / (1 - beta^step) for both moments of Adam. */
#define BIAS_CORRECTION                                                                            \
    ((struct arg){.kind = ARG_BIAS_CORRECTION}), ((struct arg){.kind = ARG_BIAS_CORRECTION})

struct grid {
    int dims;
    int64_t size[DIMS], group[DIMS]; /* group 0: the usual shape */
};

struct grid grid1(int64_t x);
struct grid grid2(int64_t x, int64_t y);
struct grid grid3(int64_t x, int64_t y, int64_t z);
struct grid in_groups(struct grid grid, int64_t x, int64_t y, int64_t z);

#define LAUNCH(to, file, entry, grid, ...)                                                         \
    add_launch(to, file, entry, grid, (const struct arg[]){__VA_ARGS__},                           \
               (int)(sizeof((const struct arg[]){__VA_ARGS__}) / sizeof(struct arg)))
bool add_launch(struct launcher *to, const char *file, const char *entry, struct grid grid,
                const struct arg *args, int count);

void define(struct launcher *to, const char *name, int64_t value);
void clear_defines(struct launcher *to);

/* Products may use SLOT_A and SLOT_B. */
enum { SLOT_A, SLOT_B, SLOT_C, SLOT_D };
bool scratch(struct launcher *to, int slot, int64_t floats);

/* Always false. */
bool lacks(struct launcher *to);
/* Whether an output is the memory of an input, as kernels that work in place need it. */
bool in_place(const struct tensor *input, const struct tensor *output);

typedef bool launch_function(struct launcher *to, const struct op *op);

/* A line of a table. One function may serve several operations, which differ in to->variant. */
struct launch_entry {
    char name[32];
    launch_function *launch;
    int variant;
};

/* One table per family; each ends with an empty name. */
extern const struct launch_entry elementwise_launches[];
extern const struct launch_entry matmul_launches[];
extern const struct launch_entry conv_launches[];
extern const struct launch_entry pooling_launches[];
extern const struct launch_entry norm_launches[];
extern const struct launch_entry training_launches[];
extern const struct launch_entry sequence_launches[];
extern const struct launch_entry load_launches[];

/* y = x or, with `accumulates`, y += x. */
bool launch_accumulate(struct launcher *to, const struct tensor *x, const struct tensor *y,
                       bool accumulates);
bool launch_fill(struct launcher *to, const struct tensor *y, float value);
/* y += bias, per channel; y in place. */
bool launch_bias(struct launcher *to, const struct tensor *bias, const struct tensor *y,
                 int64_t channels, int64_t pixels);
/* db = the sum over the rows of dy. */
bool launch_row_sum(struct launcher *to, const struct tensor *dy, int64_t columns,
                    const struct tensor *db);

/* Values from axis `axis` on; axis 2 of an image: pixels per channel. */
int64_t values_from_axis(const struct tensor *tensor, int64_t axis);

/* ---- matrix products ---- */

/* Where the matrices of a batch of products begin: that of product i at first + i / inner * outer +
 * i % inner * step, in floats. In the order of sgemm_common.cl. */
struct placement {
    int32_t first, outer, step, inner;
};

/* c (m, n) = op(a) op(b), of depth k; lda, ldb and ldc are the row lengths in memory. a, b and c
 * are BUFFER or SCRATCH. */
struct matmul {
    struct arg a, b, c;
    int32_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b;
    int32_t batch; /* 0: one product, whose matrices begin where their buffers do */
    struct placement at_a, at_b, at_c;
};

/* Fills in the sizes; false: fault, a matrix is too large for 32-bit sizes. */
bool matmul_of(struct matmul *matmul, const struct tensor *a, bool transpose_a,
               const struct tensor *b, bool transpose_b, const struct tensor *c,
               struct fault *fault);

/* Launches a product by the named variant with these parameters ("NAME=VALUE ..."); variant NULL:
 * by the option --kernel, by the tuning file, or by a rule of thumb. */
bool launch_matmul(struct launcher *to, const struct matmul *matmul, const char *variant,
                   const char *params);

/* c = op(a) op(b) for whole tensors. */
bool launch_product(struct launcher *to, const struct tensor *a, bool transpose_a,
                    const struct tensor *b, bool transpose_b, const struct tensor *c);

#endif
