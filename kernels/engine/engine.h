/* engine.h - the engine: tensors and operations of a plan, and the interface of its backends.
 *
 * The engine knows no models. Python lowers a model to a flat list: tensors with a place in memory,
 * and operations on them in the order of execution. The engine checks the list once, allocates all
 * memory once, and then runs the list step after step without another allocation.
 *
 * THE BODY OF A PLAN (it follows the JSON header of a plan file, runner/runner.h). The body is
 * text, one record per line, words separated by exactly one space:
 *
 *   farmhand-body 1
 *   case DIGEST          as in the header
 *   backend cpu|opencl   see BACKENDS
 *   threads N
 *   training 0|1         1: the loss must fall and every learned tensor must change
 *   samples N            samples per step
 *   seed N               seed of initial values, data sets and dropout
 *   evaluate N           run the operations of phase "evaluate" after every N steps; 0: never
 *   arena NAME BYTES     five lines in this order: parameter gradient state activation input
 *   stream N TYPE COUNT RANK DIM... GENERATOR INT... | FLOAT...
 *                        a data set kept in memory: COUNT samples of shape DIM (dataset.h)
 *   tensor N TYPE ARENA OFFSET RANK DIM... INIT [FLOAT]
 *                        numbered from 0; TYPE float|index|byte (4, 4 and 1 bytes per value);
 *                        OFFSET in bytes, a multiple of 64; INIT none | zero | constant C | uniform
 *                        BOUND | normal DEVIATION. Tensors may overlap: the lowering decides which
 *                        lifetimes are disjoint, and a view is a tensor over the same bytes.
 *   op PHASE ENTRY KIND IN... : OUT... : INT... : FLOAT...
 *                        PHASE load|forward|backward|update|evaluate; ENTRY is the number of the
 *                        header's operation that this one is part of (-1: none, e.g. load); IN and
 *                        OUT are tensor numbers, "-" for an operand that is left out
 *   loss N               the tensor that holds the loss of a step, or -1
 *   end
 *
 * A line that breaks this grammar, a tensor outside its arena or an operation whose operands do not
 * fit is the fault "bad_plan"; an operation that the backend lacks is "unsupported".
 *
 * BACKENDS. Every operation exists in cpu/ first: check_op() makes a plan safe for every backend,
 * and its count of multiply-adds holds for every backend. The OpenCL backend (opencl/device.h)
 * keeps the arenas on a device and has one launch function per operation (opencl/launch.h). Buffers
 * on a device must begin at multiples of the device's alignment, so plans for OpenCL are lowered
 * with 512 bytes instead of 64.
 *
 * MEMORY. The arenas parameter, gradient, state, activation and input belong to the plan. Workspace
 * belongs to the engine: as large as the largest request of any operation, allocated once and
 * shared by all, since operations run one after another.
 *
 * HOW TO ADD AN OPERATION. Follow an existing one; gelu is short, and its name leads to all places:
 *   cpu/activations.c               a formula, and a row of the table at the top of the file of its
 *                                   family; with a check(), if its signature does not make run()
 *                                   safe for any plan
 *   workloads/layers/               the layer: its shape, its cost, what its backward pass needs
 *   workloads/lowering/             layer_lowerings.py: which operations the layer becomes, forward
 *                                   and backward; and which output may reuse an input's memory
 *   kernels/reference/              the same in numpy, and in torch_peer.py in PyTorch
 *   tests/kernels/test_gradients.py a model that contains it (a layer in no model fails there)
 * then build: python -m kernels.build. The tests compare its values and gradients on one thread and
 * on two. For OpenCL, see opencl/launch.h; until the operation has a launch function, the OpenCL
 * backend refuses a plan that contains it, or runs it on the CPU where the plan allows that.
 */
#ifndef FARMHAND_ENGINE_H
#define FARMHAND_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RANK_MAX = 6, OPERANDS_MAX = 24, INTS_MAX = 16, FLOATS_MAX = 8, ALIGNMENT = 64 };

enum type { TYPE_FLOAT, TYPE_INDEX, TYPE_BYTE };

/* Bytes of one value. */
static inline size_t type_bytes(enum type type) { return type == TYPE_BYTE ? 1 : 4; }

enum arena { ARENA_PARAMETER, ARENA_GRADIENT, ARENA_STATE, ARENA_ACTIVATION, ARENA_INPUT, ARENAS };

enum phase { PHASE_LOAD, PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE, PHASE_EVALUATE, PHASES };

enum init { INIT_NONE, INIT_ZERO, INIT_CONSTANT, INIT_UNIFORM, INIT_NORMAL };

struct tensor {
    enum type type;
    enum arena arena;
    size_t offset;
    int rank;
    int64_t dim[RANK_MAX];
    int64_t count; /* of values: the product of dim */
    enum init init;
    float init_value;
    void *data; /* on the host; set when the arenas are allocated */
};

static inline size_t tensor_bytes(const struct tensor *tensor) {
    return (size_t)tensor->count * type_bytes(tensor->type);
}

static inline float *floats(const struct tensor *tensor) { return tensor->data; }
static inline int32_t *indices(const struct tensor *tensor) { return tensor->data; }
static inline uint8_t *bytes(const struct tensor *tensor) { return tensor->data; }

struct op_kind;

struct op {
    const struct op_kind *kind;
    int number; /* position in the plan, from 0 */
    enum phase phase;
    int entry;
    int ins, outs, ints, reals;
    const struct tensor *in[OPERANDS_MAX]; /* NULL: left out */
    const struct tensor *out[OPERANDS_MAX];
    int64_t i[INTS_MAX];
    float f[FLOATS_MAX];
};

struct thread_pool;
struct dataset;

/* What an operation runs with. */
struct exec_context {
    struct thread_pool *pool;
    void *workspace; /* as many bytes as its kind requested, aligned to ALIGNMENT, not zeroed */
    uint64_t step;   /* from 0, warm-up included */
    uint64_t seed;
    struct dataset *dataset;
};

/* Why an operation cannot run (part of a sentence), or NULL. */
typedef const char *op_check(const struct op *op);
/* Bytes of workspace for this number of threads. */
typedef size_t op_workspace(const struct op *op, int threads);
/* Multiply-adds of one execution, counted from the operands; INT64_MAX: too many to count. */
typedef int64_t op_macs(const struct op *op);
typedef void op_run(const struct op *op, struct exec_context *exec);

/* One operation. Functions may be NULL, except run. */
struct op_kind {
    const char *name;
    const char *signature; /* its operands, their sizes, and its parameters (cpu/ops.h) */
    op_check *check;       /* only what the signature cannot say */
    op_workspace *workspace;
    op_macs *macs;
    op_run *run;
};

/* Checks an operation against its signature, its number of multiply-adds and its check(). After
 * NULL, run() touches nothing outside its operands and its workspace. */
op_check check_op;

/* Whether an operation is of the kind with this name. */
static inline bool op_is(const struct op *op, const char *kind) {
    return strcmp(op->kind->name, kind) == 0;
}

/* A backend is a list of operations, by family. */
struct backend {
    const char *name;
    const struct op_kind *const *families; /* ends with NULL, each family with a name of NULL */
};

/* Returns the operation of that name, or NULL. */
const struct op_kind *backend_kind(const struct backend *backend, const char *name);

extern const struct backend cpu_backend;

#endif
